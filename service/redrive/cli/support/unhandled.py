"""Warnings about kinds that no live worker handles while their jobs wait."""

from redrive.jobs.unhandled import Unhandled
from redrive.rules.brief import counted

MAX_HANDLED = 10


def sentence(found: Unhandled) -> str:
    """Return a sentence about waiting jobs and the kinds that workers handle there."""
    jobs = counted(found.jobs, "due job")
    handled = ", ".join(found.handled[:MAX_HANDLED]) or "nothing"

    more = len(found.handled) - MAX_HANDLED
    if more > 0:
        handled += f" and {more} more"

    return (
        f"{found.queue}: {jobs} of {found.kind}, and no live worker"
        f" handles this kind; workers here handle: {handled}"
    )
