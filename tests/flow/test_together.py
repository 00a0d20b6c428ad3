"""One campaign over three cells, with real workers, and a driver that is killed at each step."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factories import make_dead_letters
from tests.flow.harness import workers_on
from tests.postgres import Database, Server

SIZES = {"eu": 1_000, "us": 900, "ap": 800}


class Cells:
    """Three databases, and the command line that drives them."""

    def __init__(self, home: Path, databases: dict[str, Database]) -> None:
        self.home = home
        self.of = databases

    def file(self, **other: str) -> str:
        urls = {name: database.url for name, database in self.of.items()} | other
        path = self.home / f"cells-{len(other)}.json"
        path.write_text(json.dumps([{"name": n, "url": u} for n, u in urls.items()]))
        return str(path)

    def start(self, *arguments: str, **other: str) -> "subprocess.Popen[str]":
        kept = {n: v for n, v in os.environ.items() if not n.startswith("REDRIVE_")}
        own = {"REDRIVE_DATABASES": self.file(**other), "REDRIVE_ACTOR": "ada"}
        return subprocess.Popen(
            [sys.executable, "-m", "redrive", *arguments],
            env=kept | own | {"COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **other: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **other)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def rows(self) -> dict[str, tuple[Any, ...]]:
        """The campaign of each cell that has one."""
        query = "select state, redriven, dead_again, rate, conditions from redrive.campaigns"
        found = {name: database.rows(query) for name, database in self.of.items()}
        assert all(len(rows) <= 1 for rows in found.values()), found
        return {name: rows[0] for name, rows in found.items() if rows}

    def states(self) -> dict[str, str]:
        return {name: row[0] for name, row in self.rows().items()}

    def left(self) -> list[int]:
        query = "select count(*) from redrive.dead_letters where state = 'open'"
        return [database.value(query) for database in self.of.values()]


@pytest.fixture
def cells(server: Server, tmp_path: Path) -> Iterator[Cells]:
    with contextlib.ExitStack() as stack:
        databases = {name: stack.enter_context(server.database()) for name in SIZES}
        yield Cells(tmp_path, databases)


@pytest.fixture
def workers(cells: Cells) -> Iterator[Callable[[], None]]:
    """Start a worker in each cell."""
    with contextlib.ExitStack() as stack:

        def start() -> None:
            for name, database in cells.of.items():
                (home := cells.home / name).mkdir()
                started = stack.enter_context(workers_on(database.url, home))
                started().wait_ready()

        yield start


START = ("campaign", "together", "--all", "--why", "fixed", "--yes")


@pytest.mark.long
def test_a_cause_that_is_not_fixed_costs_three_jobs_in_all_cells(
    cells: Cells, workers: Callable[[], None]
) -> None:
    """The driver is killed again and again, from before the start to after the end."""
    for name, size in SIZES.items():
        make_dead_letters(cells.of[name].conn, size, kind="fail.bug")
    workers()
    kills, pauses = 0, iter((0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0))
    for pause in pauses:
        driver = cells.start(*START)
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(pause)
        kills += driver.poll() is None
        driver.kill()
        driver.communicate()
    code, out, err = cells.run(*START)

    assert kills > 0
    assert code == 4, (out, err)
    assert {c: row[:3] for c, row in cells.rows().items()} == {"eu": ("aborted", 3, 3)}
    assert cells.left() == [*SIZES.values()]
    ran = "select count(*) from redrive.dead_letters where deliveries > 1"
    assert [database.value(ran) for database in cells.of.values()] == [3, 0, 0]
