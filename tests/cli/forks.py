"""A process that has imported the command line, and forks for each command that is run.

Each command is a process with its own output, environment and exit code, as a user's is; what
Python takes to start and import is paid once. That cost has its own tests: tests/cli/test_start.py.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Timer
from typing import NoReturn

from tests.forks import become

SECONDS = 300.0


class Forks:
    """Asks that process. `home` holds what a command reads and writes, one at a time."""

    def __init__(self, server: subprocess.Popen[str], home: Path) -> None:
        self._server = server
        self._home = home

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stdin: str | None,
    ) -> tuple[int, str, str]:
        """The exit code, output and errors of `redrive` with these arguments."""
        (self._home / "stdin").write_text(stdin or "")
        asked = [list(arguments), dict(environment), str(Path.cwd())]
        assert self._server.stdin
        assert self._server.stdout
        with _at_most(SECONDS, self._server):
            print(json.dumps(asked), file=self._server.stdin, flush=True)
            code = int(self._server.stdout.readline())
        return (
            code,
            (self._home / "stdout").read_text(),
            (self._home / "stderr").read_text(),
        )


@contextlib.contextmanager
def forks(home: Path) -> Iterator[Forks]:
    """Start the process; it ends when its input does."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cli.forks", str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
        cwd=Path(__file__).parents[2],
    ) as server:
        yield Forks(server, home)


@contextlib.contextmanager
def _at_most(seconds: float, server: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the process and the command that hangs in it, after so long."""
    timer = Timer(seconds, os.killpg, (server.pid, 9))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _serve(home: Path) -> None:
    from redrive.cli.main import COMMANDS
    from redrive.cli.support.lazy import extras

    for module in COMMANDS.values():
        importlib.import_module(module)
    for point in extras().values():
        point.load()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(home, *json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(
    home: Path, arguments: list[str], environment: dict[str, str], place: str
) -> NoReturn:
    """Be that command, and end."""
    os.chdir(place)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if fd == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(home / name, flags, 0o600), fd)
    become(arguments, environment, place, is_main=False)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
