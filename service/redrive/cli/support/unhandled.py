"""Warnings about kinds that no live worker handles while their jobs wait."""

from redrive.cli.support.output import counted
from redrive.live_jobs.surroundings.unhandled import Unhandled

MAX_HANDLED = 10


def sentence(found: Unhandled) -> str:
    """Return a sentence about waiting jobs and the kinds that workers handle there."""
    more = len(found.handled) - MAX_HANDLED
    handled = ", ".join(found.handled[:MAX_HANDLED]) + (
        f" and {more} more" if more > 0 else ""
    )

    return (
        f"{found.queue}: {counted(found.jobs, 'due job')} of {found.kind}, and no live worker"
        f" handles this kind; workers here handle: {handled or 'nothing'}"
    )
