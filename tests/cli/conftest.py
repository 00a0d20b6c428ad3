"""The command line as a user has it: a process, its output, its exit code."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

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


@pytest.fixture
def redrive(database: Database) -> Redrive:
    """Run `redrive` with these arguments against the test's database."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> Ran:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")
        }
        done = subprocess.run(
            [sys.executable, "-m", "redrive", *arguments],
            env=inherited
            | {"REDRIVE_DATABASE_URL": database.url, "REDRIVE_ACTOR": "tester"}
            | environment,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
