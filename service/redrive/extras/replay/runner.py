"""The parent's side of a confined runner: it sends jobs and receives their ends."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence

from redrive.encryption import KEYS
from redrive.extras.replay.process import (
    AFTER_CALL_SECONDS,
    START_SECONDS,
    CannotConfine,
    ConfinedProcess,
)
from redrive.worker.channel import Channel
from redrive.worker.crash import Crash
from redrive.worker.processes.start import RUNNER
from redrive.worker.protocol import (
    Checkpoint,
    CheckpointKept,
    Done,
    Down,
    Ended,
    Hello,
    Jobs,
    Report,
    Up,
    Work,
    decode_up,
)
from redrive.worker.shared_state import SharedState


class TookTooLong(Exception):
    """The attempt did not end in time."""


class Died(Exception):
    """The process ended before the attempt did."""


class ConfinedRunner:
    """One process for one job at a time."""

    def __init__(self, handlers: str) -> None:
        """Start the process, and wait until it has imported the registry.

        Raises:
            CannotConfine: the message says why.
        """
        self._calls_before = 0
        # If a step fails, the stack undoes the steps before it.
        with contextlib.ExitStack() as stack:
            shared = stack.enter_context(contextlib.closing(SharedState(1)))

            self._process = _confined(shared.fd, handlers)
            stack.callback(self._process.close)
            self._channel = Channel(self._process.channel)
            self._wait_for_import()

            self.close = stack.pop_all().close
            """End it, and remove the files it made."""

    @property
    def calls(self) -> int:
        """Return the number of refused calls of the current job."""
        return self._process.calls - self._calls_before

    def _wait_for_import(self) -> None:
        with contextlib.suppress(TookTooLong, Died):
            for message in self._hear(START_SECONDS, START_SECONDS):
                if isinstance(message, Hello):
                    return

        raise CannotConfine(self._no_import())

    def _no_import(self) -> str:
        # A runner's own messages have no secrets; other output may have some.
        _, _, own_message = self._process.last_words().partition("redrive: ")
        why = own_message or Crash(self.status())
        how = "without outgoing calls" if self.calls else "where nothing can leave"

        return f"--try: the handlers cannot be imported {how}: {why}"

    def run(self, work: Work, queue: str, seconds: float) -> Report | None:
        """Run an attempt of a job and return its failure; None = the handler returned.

        Raises:
            TookTooLong, Died: the runner can no longer be used.
        """
        self._calls_before = self._process.calls
        self._tell(Jobs(0, [queue], [work]))

        for message in self._hear(seconds):
            match message:
                case Done():
                    return None
                case Ended(reports=[report]):
                    return report
                case Checkpoint(id=job, deliveries=deliveries, n=n):
                    self._tell(CheckpointKept(job, deliveries, n, is_kept=True))
                case _:
                    pass  # other messages are not recorded

        raise TookTooLong

    def _tell(self, message: Down) -> None:
        with contextlib.suppress(OSError):  # it is gone, and `_hear` will notice
            self._channel.send(message)

    def _hear(
        self, seconds: float, after_call: float = AFTER_CALL_SECONDS
    ) -> Iterator[Up]:
        """Yield the runner's messages until a time limit, and refuse all its calls.

        After a refused call the limit is AFTER_CALL_SECONDS.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            calls = self.calls
            if self._process.wait(left, writes=self._channel.is_blocked):
                yield from self._receive()
            if self.calls > calls:
                until = min(until, time.monotonic() + after_call)

        if self._process.has_ended:
            raise Died

        raise TookTooLong

    def _receive(self) -> Iterator[Up]:
        with contextlib.suppress(OSError):
            self._channel.flush()

        frames = self._channel.receive()
        if frames is None:
            raise Died

        yield from map(decode_up, frames)

    def status(self) -> int:
        """End the runner and return its exit status; negative for a signal."""
        return self._process.status()


def _confined(shared_fd: int, handlers: str) -> ConfinedProcess:
    """Start a runner in confinement."""

    def program(fd: int) -> Sequence[str]:
        numbers = (str(fd), str(shared_fd), "1", str(os.getpid()))
        # No file of targets, no facts about the place, no samples, no lines of source.
        return (sys.executable, "-c", RUNNER, *numbers, handlers, *("", "{}", "", "0"))

    try:
        # It hides the keys from handlers itself, once it has read them.
        keys = {KEYS: os.environ[KEYS]} if KEYS in os.environ else None
        return ConfinedProcess(program, fds=[shared_fd], environment=keys)
    except CannotConfine as error:
        msg = f"--try: {error}"
        raise CannotConfine(msg) from None
