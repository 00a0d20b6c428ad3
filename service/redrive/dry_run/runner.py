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
MAX_OUTPUT = 4_000

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
        self._output = b""
        self._poll = select.poll()
        with contextlib.ExitStack() as stack:
            ours = self._spawn(handlers, stack)
            self._listen(ours, stack)
            self._wait_for_import()
            self.close = stack.pop_all().close
            """End it, and remove the files it made."""

    def _spawn(self, handlers: str, stack: contextlib.ExitStack) -> socket.socket:
        """Start the process and return our end of the channel."""
        directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        home = stack.enter_context(directory)
        shared = stack.enter_context(contextlib.closing(SharedState(1)))
        ours, theirs = socket.socketpair()
        self._channel = stack.enter_context(contextlib.closing(Channel(ours)))
        with theirs:
            self._process = _started(theirs.fileno(), shared.fd, home, handlers)

        stack.callback(self._kill)
        return ours

    def _listen(self, ours: socket.socket, stack: contextlib.ExitStack) -> None:
        """Watch the process: its errors, its messages, and its refused calls."""
        assert self._process.stderr  # noqa: S101 # it is a pipe
        errors = stack.enter_context(self._process.stderr)
        self._errors = errors.fileno()
        os.set_blocking(self._errors, False)

        self._listener = self._received_listener(ours)
        stack.callback(os.close, self._listener)

        channel = self._channel.fileno()
        for fd in (self._listener, self._errors, channel):
            self._poll.register(fd, select.POLLIN)

    def _received_listener(self, ours: socket.socket) -> int:
        """Receive the listener that reports each call of the process."""
        ours.settimeout(START_SECONDS)
        _, found, _, _ = socket.recv_fds(ours, 1, 1)
        ours.setblocking(False)  # noqa: FBT003 # takes no keyword
        if found:
            return found[0]
        why = self._last_words()
        msg = f"--try: handlers cannot be confined here: {why}"
        raise CannotConfine(msg)

    def _wait_for_import(self) -> None:
        with contextlib.suppress(TookTooLong, Died):
            for message in self._hear(START_SECONDS, START_SECONDS):
                if isinstance(message, Hello):
                    return

        # A runner's own messages have no secrets; other output may have some.
        _, _, own_message = self._last_words().partition("redrive: ")
        why = own_message or Crash(self.status())
        how = "without outgoing calls" if self.calls else "where nothing can leave"
        msg = f"--try: the handlers cannot be imported {how}: {why}"
        raise CannotConfine(msg)

    def _last_words(self) -> str:
        self._kill()
        self._drain()
        return self._output.decode(errors="replace").strip()

    def run(self, work: Work, queue: str, seconds: float) -> Report | None:
        """Run an attempt of a job and return its failure; None = the handler returned.

        Raises:
            TookTooLong, Died: the runner can no longer be used.
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
            for fd in self._ready(left):
                if fd == self._channel.fileno():
                    yield from self._receive()
                elif fd == self._errors:
                    self._drain()
                else:
                    self._refuse()
            if self.calls > calls:
                until = min(until, time.monotonic() + after_call)
        if self._process.poll() is not None:
            raise Died
        raise TookTooLong

    def _ready(self, seconds: float) -> Iterator[int]:
        """Wait, and yield the descriptors that can be read."""
        channel = self._channel.fileno()
        writes = select.POLLOUT if self._channel.is_blocked else 0
        self._poll.modify(channel, select.POLLIN | writes)
        for fd, event in self._poll.poll(seconds * 1000):
            if fd == channel or event & select.POLLIN:
                yield fd
            else:
                self._poll.unregister(fd)  # no process can use it any more

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
            number = int.from_bytes(call[:8], sys.byteorder)
            refusal = REFUSAL.pack(number, 0, -errno.EPERM, 0)
            fcntl.ioctl(self._listener, SEND, refusal)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._errors, MAX_OUTPUT):
                kept = self._output + more
                self._output = kept[:MAX_OUTPUT]

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
    confined = (sys.executable, "-I", "-S", confine.__file__, str(fd), home)
    parent = str(os.getpid())
    arguments = (str(fd), str(shared_fd), "1", parent, handlers, "", "{}", "")
    runner = (sys.executable, "-c", RUNNER, *arguments)
    return subprocess.Popen(
        [*confined, *runner],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(fd, shared_fd),
        env=_environment(home),
        start_new_session=True,
    )


def _environment(home: str) -> dict[str, str]:
    """Return our environment without the export of spans, which would be refused."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("OTEL_")
    }
    return inherited | {"OTEL_SDK_DISABLED": "true", "TMPDIR": home}
