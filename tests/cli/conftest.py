"""The command line as a user has it: its output and its exit code.

A command that only asks or tells the database runs in the process of the tests. Its own
process has one that stays, that imports an application, or that gets other variables.
"""

import contextlib
import io
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from redrive.cli import main
from tests.cli.forks import Forks, forks
from tests.postgres import Database


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON line it printed."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON lines it printed."""
        return [json.loads(line) for line in self.out.splitlines()]


Redrive = Callable[..., Ran]
OF_ITS_OWN = {"worker", "exporter", "console", "gateway", "mcp", "demo", "dev"}
OF_ITS_OWN |= {
    "import",
    "replay",
    "--handlers",
}  # click leaves the file of an import open
"""Words of commands that have a process of their own."""


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(tmp_path_factory.mktemp("cli")) as found:
        yield found


@pytest.fixture
def redrive(started: Forks, database: Database) -> Redrive:
    """Run `redrive` with these arguments against the test's database."""

    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("REDRIVE_")
    } | {
        "REDRIVE_DATABASE_URL": database.url,
        "REDRIVE_ACTOR": "tester",
        "COLUMNS": "80",  # whatever the terminal of the tests has
    }

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> Ran:
        if environment or OF_ITS_OWN & {*arguments}:
            return Ran(*started.run(arguments, inherited | environment, stdin))
        return _run_here(arguments, inherited, stdin)

    return run


def _run_here(
    arguments: Sequence[str], environment: Mapping[str, str], stdin: str | None
) -> Ran:
    """Run `redrive` in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    at_sigterm = signal.getsignal(signal.SIGTERM)
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO((stdin or "").encode()))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main(arguments)
        except Exception:  # noqa: BLE001 # the interpreter would say it
            traceback.print_exc()
            code = 1
        finally:
            signal.signal(signal.SIGTERM, at_sigterm)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return Ran(code, *texts)
