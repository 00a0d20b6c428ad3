"""Events for the loop: messages of runners, room in their channels, and wake-ups."""

import contextlib
import os
import selectors
from collections.abc import Iterable

from redrive.worker.processes.runner_process import RunnerProcess

_WAKE_BYTES = 4096


class RunnerSelector:
    """Waits for the runners of one worker."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()

        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)

        self._selector.register(self._wake_read, selectors.EVENT_READ)

    def watch(self, runner: RunnerProcess) -> None:
        """Wait for this runner too."""
        self._selector.register(runner.fileno(), selectors.EVENT_READ, runner)

    def unwatch(self, runner: RunnerProcess) -> None:
        """Stop waiting for this runner. Call it before its channel is closed."""
        self._selector.unregister(runner.fileno())

    def wake(self) -> None:
        """End the wait. Any thread or signal handler may call it."""
        # A full pipe wakes the loop all the same.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"w")

    def wait(
        self, runners: Iterable[RunnerProcess], seconds: float
    ) -> list[RunnerProcess]:
        """Wait until something happens. Returns the runners that have sent something.

        It also sends what channels had no room for before.
        """
        self._watch_blocked(runners)
        speakers: list[RunnerProcess] = []

        for key, events in self._selector.select(seconds):
            runner: RunnerProcess | None = key.data
            # The pipe belongs to no runner: something has woken the loop.
            if runner is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, _WAKE_BYTES)

                continue

            if events & selectors.EVENT_WRITE:
                runner.flush()
            if events & selectors.EVENT_READ:
                speakers.append(runner)

        return speakers

    def _watch_blocked(self, runners: Iterable[RunnerProcess]) -> None:
        """Watch for room in the channels that are full."""
        for runner in runners:
            events = selectors.EVENT_READ
            if runner.is_blocked:
                events |= selectors.EVENT_WRITE

            if self._selector.get_key(runner.fileno()).events != events:
                self._selector.modify(runner.fileno(), events, runner)
