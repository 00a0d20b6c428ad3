"""Run the enqueued jobs of a TestCase, inside its transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from redrive import testing
from redrive.django.database import alias
from redrive.django.registry import collect, within
from redrive.signals import Seconds


def run_enqueued(*, ahead: Seconds = 0) -> dict[int, testing.Outcome]:
    """Run one attempt of each due job, and of the jobs that they enqueue.

    It is like `redrive.testing.run_enqueued`, with the handlers of all apps. The
    handlers use the same connection of Django.

    Args:
        ahead: run jobs that are due within this time, too.

    Returns:
        The end of each job, by its id.
    """
    ours = connections[alias()]
    ours.ensure_connection()

    @contextmanager
    def shared() -> Iterator[None]:
        # Each thread has its own set of connections.
        connections[alias()] = ours
        try:
            yield
        finally:
            del connections[alias()]

    # Handlers run in other threads, and Django would refuse its connection there.
    ours.inc_thread_sharing()
    try:
        return testing.run_enqueued(
            within(shared, collect()), ours.connection, ahead=ahead
        )
    finally:
        ours.dec_thread_sharing()
