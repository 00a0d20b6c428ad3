"""The parent's side of a confined process: start it, hear it, refuse its calls."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence

from redrive.errors import RedriveError
from redrive.extras.replay import confine
from redrive.extras.replay.calls import Address, Calls
from redrive.rules.payloads.redact import HIDDEN, is_secret, scrub
from redrive.worker.run.process import WITHHELD as HIDDEN_VALUE

START_SECONDS = 60.0
"""Limit for importing the application."""
AFTER_CALL_SECONDS = 1.0
"""Time for a handler to end after its first refused call; some retry endlessly."""
MAX_OUTPUT = 4_000
WITHHELD = ("OTEL_", "PG", "REDRIVE_DATABASE")
URLS = ("_URL_FILE", "_URL")
"""Beginnings of variables, and ends of REDRIVE_ variables, that a process does not get."""


class CannotConfine(RedriveError):
    """No confined process can be started, or it cannot import the application."""


class ConfinedProcess:
    """A process without connections, except to the allowed addresses."""

    def __init__(
        self,
        program: Callable[[int], Sequence[str]],
        *,
        fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        on_terminal: bool = False,
        allowed: Mapping[str, Iterable[Address]] | None = None,
    ) -> None:
        """Start the process, and wait until it is confined.

        Args:
            program: command of the process; it takes the number of its channel's end.
            fds: further descriptors that the process inherits.
            environment: variables that replace ours.
            on_terminal: the process reads our input and writes to our output. Else
                what it writes is kept as `words`.
            allowed: addresses that the process may connect to, by target.

        Raises:
            CannotConfine: the message says why.
        """
        self._allowed = allowed or {}
        self._output = b""
        self._poll = select.poll()

        # If a step fails, the stack undoes the steps before it.
        with contextlib.ExitStack() as stack:
            directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            home = stack.enter_context(directory)
            self.channel, theirs = socket.socketpair()
            stack.enter_context(self.channel)

            with theirs:
                fd = theirs.fileno()
                command = (str(fd), home, *program(fd))
                inherited = _environment(home, are_hidden=not allowed)
                inherited |= environment or {}
                try:
                    self._process = _started(
                        command,
                        fds=(fd, *fds),
                        environment=inherited,
                        on_terminal=on_terminal,
                    )
                except PermissionError:
                    # This process is confined itself.
                    why = "the kernel refuses a new session"
                    msg = f"handlers cannot be confined here: {why}"
                    raise CannotConfine(msg) from None

            stack.callback(self._kill)
            self._listen(stack)
            self.close = stack.pop_all().close
            """End it, and remove the files it made."""

    def _listen(self, stack: contextlib.ExitStack) -> None:
        """Watch the process: its output, its messages, and its refused calls."""
        self._errors = -1
        stderr = self._process.stderr
        if stderr:
            stack.enter_context(stderr)
            self._errors = stderr.fileno()
            os.set_blocking(self._errors, False)

        self._listener = self._received_listener()
        stack.callback(os.close, self._listener)
        self._calls = Calls(self._listener, self._allowed)
        stack.callback(self._calls.close)

        for fd in (self._listener, self._errors, self.channel.fileno()):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)

    def _received_listener(self) -> int:
        """Receive the listener that reports each call of the process."""
        self.channel.settimeout(START_SECONDS)
        _, found, _, _ = socket.recv_fds(self.channel, 1, 1)
        self.channel.setblocking(False)  # noqa: FBT003 # takes no keyword

        if found:
            return found[0]

        # A process that cannot confine itself ends without sending its listener.
        msg = f"handlers cannot be confined here: {self.last_words()}"
        raise CannotConfine(msg)

    def wait(self, seconds: float) -> bool:
        """Wait for a while, and refuse calls; return True if the channel is ready."""
        milliseconds = max(0.0, seconds) * 1000
        is_ready = False

        for fd, event in self._poll.poll(milliseconds):
            if fd == self.channel.fileno():
                is_ready = True
            elif not event & select.POLLIN:
                self._poll.unregister(fd)  # no process can use it any more
            elif fd == self._errors:
                self._drain()
            else:
                self._calls.answer()

        return is_ready

    @property
    def calls(self) -> int:
        """Return the number of refused calls."""
        return len(self._calls.refused)

    @property
    def targets(self) -> list[str]:
        """Return the targets of the refused calls."""
        return self._calls.refused

    def _drain(self) -> None:
        if self._errors < 0:
            return

        with contextlib.suppress(BlockingIOError):
            # It reads on when enough is kept: a full pipe would block the process.
            while more := os.read(self._errors, MAX_OUTPUT):
                self._output = (self._output + more)[:MAX_OUTPUT]

    @property
    def words(self) -> str:
        """Return what the process has written so far."""
        self._drain()
        return self._output.decode(errors="replace").strip()

    def last_words(self) -> str:
        """End the process, and return what it has written."""
        self._kill()
        return self.words

    def status(self) -> int:
        """End the process and return its exit status; negative for a signal."""
        self._kill()
        return self._process.returncode

    def _kill(self) -> None:
        """End the process and all processes that its handlers started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _started(
    command: Sequence[str],
    fds: Sequence[int],
    environment: Mapping[str, str],
    on_terminal: bool,  # noqa: FBT001 # of the caller
) -> subprocess.Popen[bytes]:
    """Start a process with the arguments of `confine.main`."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", confine.__file__, *command],
        stdin=None if on_terminal else subprocess.DEVNULL,
        stdout=None if on_terminal else subprocess.DEVNULL,
        stderr=None if on_terminal else subprocess.PIPE,
        pass_fds=fds,
        env=environment,
        # A group of its own, so that `_kill` reaches its children.
        start_new_session=True,
    )


def _environment(home: str, *, are_hidden: bool) -> dict[str, str]:
    """Return our environment without databases, and without the export of spans.

    Args:
        are_hidden: withhold the secrets of the application, too. The variables stay
            set, because most applications cannot be imported without them.
    """
    inherited = {
        name: _without_secrets(name, value) if are_hidden else value
        for name, value in os.environ.items()
        if not (
            name.startswith(WITHHELD)
            or (name.startswith("REDRIVE_") and name.endswith(URLS))
        )
    }
    return inherited | {"OTEL_SDK_DISABLED": "true", "TMPDIR": home}


def _without_secrets(name: str, value: str) -> str:
    if is_secret(name) and value:
        return HIDDEN_VALUE
    # Brackets would make an URL invalid.
    return scrub(value).replace(HIDDEN, HIDDEN_VALUE)
