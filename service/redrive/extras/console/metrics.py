"""Metrics of the console itself."""

from redrive.observability.metrics import CALL_BUCKETS, Counter, Histogram

ACCEPTED, REFUSED = SIGN_INS = ("accepted", "refused")


def requests() -> Histogram:
    """Make the histogram of response times by page."""
    return Histogram(
        name="redrive_console_request_seconds",
        documentation="Time until the console answers, by page and status."
        " 401: nobody is signed in.",
        labels=("page", "status"),
        buckets=CALL_BUCKETS,
    )


def sign_ins() -> Counter:
    """Make the counter of sign-ins, accepted and refused."""
    made = Counter(
        name="redrive_console_sign_ins_total",
        documentation="Sessions that began, and sign-ins that were refused,"
        " by outcome.",
        labels=("outcome",),
    )

    for outcome in SIGN_INS:
        made.create((outcome,))

    return made
