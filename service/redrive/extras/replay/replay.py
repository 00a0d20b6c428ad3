"""Replay of an attempt: confined, or in this process at the user's own risk."""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from redrive.encryption import KEYS
from redrive.extras.replay.process import (
    AFTER_CALL_SECONDS,
    START_SECONDS,
    CannotConfine,
    ConfinedProcess,
)
from redrive.extras.replay.scene import SCENE, Request, Result, perform
from redrive.handlers import load
from redrive.worker.crash import Crash
from redrive.worker.run.process import WITHHELD

SLACK_SECONDS = 15.0
"""Time for a run of the test that is written, and for a slow machine."""
DAY = 86_400.0
"""Limit in the debugger."""
MAX_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay.

    Attributes:
        result: None if the attempt did not end in its process: see `end`.
        targets: where the refused calls would have gone.
        end: why there is no result.
        words: what the handler has printed.
        is_late: it did not end because its time was up.
    """

    result: Result | None
    targets: list[str] = field(default_factory=list[str])
    end: str | None = None
    words: str = ""
    is_late: bool = False


def replay_here(request: Request) -> Replayed:
    """Run the attempt in this process, with all its effects.

    Raises:
        LookupError: no handler is registered for the kind.
        SettingsError: the handlers cannot be imported.
    """
    handlers = load(request.handlers, "--handlers")
    handlers.known(request.bundle.kind)
    return Replayed(perform(request, handlers))


def replay_confined(request: Request, limit: float | None = None) -> Replayed:
    """Run the attempt in a process that has no way out.

    Args:
        limit: seconds for the attempt; by default its handler's timeout, and some more.

    Raises:
        CannotConfine: no such process can be started, or it cannot import the handlers.
    """
    with contextlib.ExitStack() as stack:
        request_fd = _written(msgspec.json.encode(request))
        stack.callback(os.close, request_fd)

        def program(fd: int) -> Sequence[str]:
            numbers = map(str, (fd, request_fd, os.getpid()))
            return (sys.executable, "-c", SCENE, *numbers)

        process = ConfinedProcess(
            program,
            fds=[request_fd],
            # As in a runner, the variable stays set, but has no key.
            environment={KEYS: WITHHELD} if os.environ.get(KEYS) else None,
            on_terminal=request.debug,
            allowed=request.allowed,
        )
        stack.callback(process.close)

        return _heard(process, DAY if request.debug else limit)


def _written(content: bytes) -> int:
    """Return the descriptor of a file in memory with this content."""
    fd = os.memfd_create("replay")
    with open(fd, "wb", closefd=False) as file:
        file.write(content)

    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _heard(process: ConfinedProcess, limit: float | None) -> Replayed:
    """Wait for the result, within the time limits, and refuse all calls."""
    lines = _Lines(process)
    began = lines.next(START_SECONDS, START_SECONDS)
    if began is None:
        raise CannotConfine(_no_import(process))

    most: float = limit or began["seconds"] + SLACK_SECONDS
    # Calls during the import do not count.
    calls = lines.calls
    found = lines.next(most, DAY if most == DAY else AFTER_CALL_SECONDS)
    refused = process.targets[calls:]

    if found is not None:
        result = msgspec.convert(found, Result)
        return Replayed(result=result, targets=refused, words=process.words)

    is_late = False
    if lines.is_over:
        why = f"its process died: {Crash(process.status())}"
    elif refused:
        why = "it went on after a refused call"
    else:
        is_late, why = True, f"it took longer than {most:.0f} s"

    return Replayed(None, refused, end=why, words=process.words, is_late=is_late)


def _no_import(process: ConfinedProcess) -> str:
    _, _, own_message = process.last_words().partition("redrive: ")
    why = own_message or str(Crash(process.status()))
    how = " without outgoing calls" if process.calls else ""

    return f"the handlers cannot be used{how}: {why}"


class _Lines:
    """JSON lines of a process.

    Attributes:
        calls: number of calls that were refused before the last line arrived.
        is_over: the process has ended.
    """

    def __init__(self, process: ConfinedProcess) -> None:
        self._process = process
        self._received = bytearray()
        self.calls = 0
        self.is_over = False

    def next(self, seconds: float, after_call: float = AFTER_CALL_SECONDS) -> Any:
        """Return the next line; None if the time is up or the process has ended.

        Args:
            after_call: time that is left after a refused call; some retry endlessly.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            line, end, rest = self._received.partition(b"\n")
            if end:
                self._received = rest
                return msgspec.json.decode(line)

            # A call that is refused beside a line was made after it.
            self.calls = self._process.calls
            if self._process.wait(left) and not self._receive():
                self.is_over = True
                return None

            if self._process.calls > self.calls:
                until = min(until, time.monotonic() + after_call)

        return None

    def _receive(self) -> bool:
        """Receive what is there; return False if the process has ended."""
        try:
            more = self._process.channel.recv(MAX_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False

        self._received += more
        return bool(more)
