"""Clock for the deadlines of all slots: it replaces a timer for each job."""

import asyncio
from collections.abc import Callable, Sequence

from redrive.worker.run.attempt import NEVER, Attempt
from redrive.worker.run.own import clock

TICK, IDLE_TICK = 0.05, 0.25
"""Seconds between two looks: if an attempt has a deadline, and if none has."""


class Clock:
    """Cancels async attempts when their time is over.

    It is no task, because a handler may cancel all tasks of its loop.

    Args:
        attempts: the running ones.
        beat: called at each look.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        attempts: Sequence[Attempt | None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._attempts = attempts
        self._beat = beat
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on, until `stop`."""
        self._beat()
        has_deadline = any(
            attempt is not None and attempt.over_at != NEVER
            for attempt in self._attempts
        )
        self._next = self._loop.call_later(
            TICK if has_deadline else IDLE_TICK, self._look_soon
        )

    def stop(self) -> None:
        """Look no longer."""
        if self._next is not None:
            self._next.cancel()

    def _look_soon(self) -> None:
        # The process may have been suspended. Read first how long that was: a timer
        # comes after what there is to read, which `call_soon` does not.
        self._next = self._loop.call_later(0, self._look)

    def _look(self) -> None:
        now = clock.monotonic()
        for attempt in self._attempts:
            if attempt is not None:
                attempt.cancel_if_overdue(now)

        self.start()
