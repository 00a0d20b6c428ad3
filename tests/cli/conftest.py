"""The command line as a user has it: a process, its output, its exit code."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

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


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(tmp_path_factory.mktemp("cli")) as found:
        yield found


@pytest.fixture
def redrive(started: Forks, database: Database) -> Redrive:
    """Run `redrive` with these arguments against the test's database."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> Ran:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("REDRIVE_")
        }
        own = {
            "REDRIVE_DATABASE_URL": database.url,
            "REDRIVE_ACTOR": "tester",
            "COLUMNS": "80",  # whatever the terminal of the tests has
        }
        return Ran(*started.run(arguments, inherited | own | environment, stdin))

    return run
