"""A process that has imported the worker, and forks for each worker that is started.

Each worker is a process with its own output, environment and session, as a user's is.
Python's start and its imports are half of what a short worker costs, and are paid once.
Their cost has its own tests: tests/cli/test_start.py and tests/flow/test_surface.py.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from tests.forks import become

ROOT = Path(__file__).parents[2]
WARNINGS = "default"
"""The PYTHONWARNINGS of the process: Python reads them at its start."""


class Fork:
    """A process that was forked, with what the tests use of `subprocess.Popen`."""

    def __init__(self, server: "_Server", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._pidfd = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return the exit status.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        status = self._wait(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("redrive worker", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def _wait(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and self._has_ended(timeout):
                self.returncode = self._server.ask({"wait": self.pid})
                os.close(self._pidfd)
            return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        return bool(ended.poll(None if timeout is None else 1000 * timeout))


class _Server:
    """Our side of that process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.flow.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": WARNINGS},
        )

    def ask(self, request: Mapping[str, Any]) -> int:
        """Send a request, and return the number that answers it."""
        with self._lock:
            assert self._process.stdin
            assert self._process.stdout
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it. Workers that still run continue."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:  # something else has our end of its input
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.close)
    return server


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a fork is the same as a start: neither Python nor the loader is told more."""
    told = {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LD_")) and os.environ.get(name) != value
    }
    told.pop("PYTHONPATH", None)  # of the runners, which are not forked
    return told in ({}, {"PYTHONWARNINGS": WARNINGS})


def fork(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Fork:
    """Start `redrive` with these arguments; its output is appended to `log`."""
    server = _server()
    request = {
        "arguments": list(arguments),
        "environment": dict(environment),
        "log": str(log),
    }
    return Fork(server, server.ask(request))


def _serve() -> None:
    import redrive.cli.operations.worker
    import redrive.settings  # noqa: F401 # for those that are forked

    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        child = os.fork()
        if not child:
            _become(**request)
        print(child, flush=True)


def _become(arguments: list[str], environment: dict[str, str], log: str) -> NoReturn:
    """Be that command, and end."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    for fd, own in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(fd, own)
    os.close(nothing)
    os.close(written)
    become(arguments, environment, str(ROOT), is_main=True)


if __name__ == "__main__":
    _serve()
