"""What the console counts of its own work."""

from redrive.observability.metrics import CALL_BUCKETS, Histogram


def requests() -> Histogram:
    """How long it took to answer, of each page."""
    return Histogram(
        "redrive_console_request_seconds",
        "Time until the console answers, by page and status; 401: nobody could be signed in.",
        ("page", "status"),
        CALL_BUCKETS,
    )
