"""The parent's side of a confined runner: it sends jobs and refuses calls."""

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from redrive.dry_run import confine
from redrive.errors import RedriveError
from redrive.worker.channel import Channel
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
from redrive.worker.supervisor.runners.crash import Crash
from redrive.worker.supervisor.runners.start import RUNNER

START_SECONDS = 60.0
"""Limit for importing the application."""
AFTER_CALL_SECONDS = 1.0
"""Time for a handler to end after its first refused call; some retry endlessly."""
MAX_SAID = 4_000

RECEIVE, SEND = 0xC0502100, 0xC0182101
CALL_BYTES = 80
REFUSAL = struct.Struct("=QqiI")
"""Formats of the kernel's request and our answer: call, value, error, flags."""


class CannotConfine(RedriveError):
    """No confined process can be started, or it cannot import the application."""


class TookTooLong(Exception):
    """The attempt did not end in time."""


class Died(Exception):
    """The process ended before the attempt did."""


class ConfinedRunner:
    """One process for one job at a time. `calls`: refused calls of the current job."""

    def __init__(self, handlers: str) -> None:
        """Start the process, and wait until it has imported the registry.

        Raises:
            CannotConfine: the message says why.
        """
        self.calls = 0
        self._said = b""
        self._poll = select.poll()
        with contextlib.ExitStack() as stack:
            ours = self._spawn(handlers, stack)
            self._listen(ours, stack)
            self._wait_for_import()
            self.close = stack.pop_all().close
            """End it, and remove the files it made."""

    def _spawn(self, handlers: str, stack: contextlib.ExitStack) -> socket.socket:
        """Start the process and return our end of the channel."""
        home = stack.enter_context(
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        )
        shared = stack.enter_context(contextlib.closing(SharedState(1)))
        ours, theirs = socket.socketpair()
        self._channel = stack.enter_context(contextlib.closing(Channel(ours)))
        with theirs:
            self._process = _started(theirs.fileno(), shared.fd, home, handlers)
        stack.callback(self._kill)
        return ours

    def _listen(self, ours: socket.socket, stack: contextlib.ExitStack) -> None:
        """Receive the listener that reports each call of the process."""
        assert self._process.stderr  # noqa: S101 # it is a pipe
        self._errors = stack.enter_context(self._process.stderr).fileno()
        os.set_blocking(self._errors, False)
        ours.settimeout(START_SECONDS)
        _, found, _, _ = socket.recv_fds(ours, 1, 1)
        ours.setblocking(False)  # noqa: FBT003 # takes no keyword
        if not found:
            msg = f"--try: handlers cannot be confined here: {self._last_words()}"
            raise CannotConfine(msg)
        (self._listener,) = found
        stack.callback(os.close, self._listener)
        for fd in (self._listener, self._errors, self._channel.fileno()):
            self._poll.register(fd, select.POLLIN)

    def _wait_for_import(self) -> None:
        with contextlib.suppress(TookTooLong, Died):
            said = self._hear(START_SECONDS, START_SECONDS)
            if any(isinstance(message, Hello) for message in said):
                return
        # A runner's own messages have no secrets; other output may have some.
        why = self._last_words().partition("redrive: ")[2] or Crash(self.status())
        how = "without outgoing calls" if self.calls else "where nothing can leave"
        msg = f"--try: the handlers cannot be imported {how}: {why}"
        raise CannotConfine(msg)

    def _last_words(self) -> str:
        self._kill()
        self._drain()
        return self._said.decode(errors="replace").strip()

    def run(self, work: Work, queue: str, seconds: float) -> Report | None:
        """Run an attempt of a job and return its failure; None = the handler returned.

        Raises:
            TookTooLong, Died: the runner cannot be used any more.
        """
        self.calls = 0
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
        with contextlib.suppress(OSError):  # it is gone, and the loop will notice
            self._channel.send(message)

    def _hear(
        self, seconds: float, after_call: float = AFTER_CALL_SECONDS
    ) -> Iterator[Up]:
        """Yield the runner's messages until a time limit, and refuse all its calls.

        After a refused call the limit is AFTER_CALL_SECONDS.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            writes = select.POLLOUT if self._channel.is_blocked else 0
            self._poll.modify(self._channel.fileno(), select.POLLIN | writes)
            for fd, event in self._poll.poll(left * 1000):
                if fd == self._channel.fileno():
                    yield from self._receive()
                elif not event & select.POLLIN:
                    self._poll.unregister(fd)  # no process can use it any more
                elif fd == self._errors:
                    self._drain()
                else:
                    self._refuse()
                    until = min(until, time.monotonic() + after_call)
        if self._process.poll() is not None:
            raise Died
        raise TookTooLong

    def _receive(self) -> Iterator[Up]:
        with contextlib.suppress(OSError):
            self._channel.flush()
        frames = self._channel.receive()
        if frames is None:
            raise Died
        yield from map(decode_up, frames)

    def _refuse(self) -> None:
        """Answer one call that would make a socket."""
        call = bytearray(CALL_BYTES)
        with contextlib.suppress(FileNotFoundError):  # the caller was killed
            fcntl.ioctl(self._listener, RECEIVE, call)
            self.calls += 1
            which = int.from_bytes(call[:8], sys.byteorder)
            fcntl.ioctl(self._listener, SEND, REFUSAL.pack(which, 0, -errno.EPERM, 0))

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while said := os.read(self._errors, MAX_SAID):
                self._said = (self._said + said)[:MAX_SAID]

    def status(self) -> int:
        """End the runner and return its exit status; negative for a signal."""
        self._kill()
        return self._process.returncode

    def _kill(self) -> None:
        """End the process and all processes that its handlers started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _started(
    fd: int, shared_fd: int, home: str, handlers: str
) -> subprocess.Popen[bytes]:
    """Start the process with the arguments of `confine.main` and of the runner."""
    runner = (str(fd), str(shared_fd), "1", str(os.getpid()), handlers, "", "{}", "")
    # Exports of spans would only be refused.
    inherited = {
        name: v for name, v in os.environ.items() if not name.startswith("OTEL_")
    }
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", confine.__file__, str(fd), home),
            *(sys.executable, "-c", RUNNER, *runner),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(fd, shared_fd),
        env=inherited | {"OTEL_SDK_DISABLED": "true", "TMPDIR": home},
        start_new_session=True,
    )
