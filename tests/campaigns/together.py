"""One campaign over several cells, while whoever drives it is killed again and again."""

import json
import multiprocessing
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from redrive.cli.main import main
from tests.campaigns.trials import Figures
from tests.factories import bury, claim, complete, make_dead_letters, make_worker
from tests.postgres import Database, connect

START = ("campaign", "together", "--all", "--why", "a trial", "--yes")
LIFE_SECONDS = 3.0
"""A driver lives for up to so long: two rounds, on a busy machine."""


class Cells:
    """Databases with dead letters, their workers, and drivers that are killed."""

    def __init__(self, of: Mapping[str, Database], home: Path, letters: int) -> None:
        self.of = of
        self.file = home / "cells.json"
        lines = [{"name": name, "url": database.url} for name, database in of.items()]
        self.file.write_text(json.dumps(lines))
        self.ids = {n: make_dead_letters(d.conn, letters) for n, d in of.items()}
        # Jobs run in a thread, beside whatever looks at the campaigns.
        self.conns = {name: connect(d.url) for name, d in of.items()}
        self.workers = {name: make_worker(c) for name, c in self.conns.items()}
        self.runs = {name: Counter[int]() for name in of}
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.campaigns.together"])

    def close(self) -> None:
        """Close the connections of the workers."""
        for conn in self.conns.values():
            conn.close()

    def drive(self, *arguments: str, life: float | None = None) -> int | None:
        """Run a command; kill it after so long. Returns its exit code, None = killed."""
        process = self.context.Process(
            target=_run, args=(arguments, str(self.file)), daemon=True
        )
        process.start()
        process.join(life)
        if process.is_alive():
            process.kill()
            process.join()
            return None
        return process.exitcode

    @contextmanager
    def working(self, *, dies: bool = False) -> Iterator[None]:
        """Run what is due in all cells until the block ends."""
        done = threading.Event()

        def work() -> None:
            while not done.wait(0.05):
                self.work(1000, dies=dies)

        runner = threading.Thread(target=work)
        runner.start()
        try:
            yield
        finally:
            done.set()
            runner.join()

    def work(self, most: int, *, dies: bool = False) -> None:
        """Run what is due, at most so many in each cell."""
        for name, conn in self.conns.items():
            worker = self.workers[name]
            jobs = claim(conn, worker, most)
            self.runs[name].update(job.id for job in jobs)
            if dies:
                for job in jobs:
                    bury(conn, worker, job)
            elif jobs:
                complete(conn, worker, *jobs)

    def campaigns(self) -> dict[str, list[tuple[Any, ...]]]:
        query = "select state, redriven, dead_again, rate from redrive.campaigns"
        return {name: database.rows(query) for name, database in self.of.items()}


def _run(arguments: Sequence[str], file: str) -> None:
    for name in [name for name in os.environ if name.startswith("REDRIVE_")]:
        del os.environ[name]
    os.environ |= {"REDRIVE_DATABASES": file, "REDRIVE_ACTOR": "trial"}
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    raise SystemExit(main([*arguments]))


def cause_that_is_not_fixed(
    of: Mapping[str, Database], home: Path, *, letters: int, kills: int, seed: int
) -> Figures:
    """Every job dies again: three run again in all cells together."""
    with closing(Cells(of, home, letters)) as cells:
        return _not_fixed(cells, letters, kills, random.Random(seed))


def _not_fixed(
    cells: Cells, letters: int, kills: int, chance: random.Random
) -> Figures:
    killed = tries = 0
    while killed < kills and tries < 2 * kills:
        code = cells.drive(*START, life=chance.uniform(0, LIFE_SECONDS))
        killed, tries = killed + (code is None), tries + 1
        if killed % max(kills // 5, 1) == 0:
            cells.work(1, dies=True)
    with cells.working(dies=True):
        assert cells.drive(*START, life=600) == 4
    found = cells.campaigns()
    ran = sum(runs.total() for runs in cells.runs.values())
    assert ran == 3, found
    leader, *others = sorted(found.values(), key=len, reverse=True)
    assert [row[:3] for row in leader] == [("aborted", 3, 3)], found
    assert others == [[]] * (len(cells.of) - 1), found
    left = "select count(*) from redrive.dead_letters where state = 'open'"
    assert all(database.value(left) == letters for database in cells.of.values())
    return {
        "cells": len(cells.of),
        "letters": letters,
        "kills": killed,
        "ran_again": ran,
    }


def cause_that_is_fixed(
    of: Mapping[str, Database],
    home: Path,
    *,
    letters: int,
    kills: int,
    rate: float,
    seed: int,
) -> Figures:
    """Each job runs once more, though drivers, pauses and resumes are killed."""
    with closing(Cells(of, home, letters)) as cells:
        return _fixed(cells, letters, kills, rate, random.Random(seed))


def _fixed(
    cells: Cells, letters: int, kills: int, rate: float, chance: random.Random
) -> Figures:
    start = (*START, "--rate", f"{rate:g}")
    change = ("--why", "a trial", "--yes", f"{min(cells.of)}:1")
    killed = changes = 0
    with cells.working():
        while killed < kills and not _are_done(cells):
            command = start
            if killed % 4 == 3:
                command = ("campaign", chance.choice(("pause", "resume")), *change)
            code = cells.drive(*command, life=chance.uniform(0, LIFE_SECONDS))
            killed += code is None
            changes += command is not start
        deadline = time.monotonic() + 600
        while not _are_done(cells):
            cells.drive("campaign", "resume", *change)
            cells.drive(*start, life=60)
            assert time.monotonic() < deadline, cells.campaigns()
    rates = sum(rows[0][3] for rows in cells.campaigns().values())
    assert abs(rates / rate - 1) < 1e-6, rates
    for name, ids in cells.ids.items():
        assert set(cells.runs[name]) == set(ids), "rows in are not rows out"
        assert set(cells.runs[name].values()) == {1}, "some had two lives"
    return {
        "cells": len(cells.of),
        "letters": letters,
        "kills": killed,
        "pauses_and_resumes": changes,
        "rates_of_all_cells": rates,
    }


def _are_done(cells: Cells) -> bool:
    states = [[row[0] for row in rows] for rows in cells.campaigns().values()]
    return all(state == ["done"] for state in states)
