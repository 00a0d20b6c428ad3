"""What commands say of kinds whose jobs wait while no living worker handles them."""

from redrive.live_jobs.unhandled import Unhandled

MAX_HANDLED = 10


def sentence(found: Unhandled) -> str:
    """For people: what waits, and what workers handle there instead."""
    more = len(found.handled) - MAX_HANDLED
    handled = ", ".join(found.handled[:MAX_HANDLED]) + (f" and {more} more" if more > 0 else "")
    return (
        f"{found.queue}: {found.jobs} due jobs of {found.kind}, and no live worker handles this"
        f" kind; workers here handle: {handled or 'nothing'}"
    )
