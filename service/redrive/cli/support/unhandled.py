"""Warnings about kinds that no live worker handles while their jobs wait."""

from redrive.cli.support.output import counted
from redrive.live_jobs.surroundings.unhandled import Unhandled

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
