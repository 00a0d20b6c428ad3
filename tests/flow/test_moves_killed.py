"""A mover is killed again and again while producers and workers go on: every job runs once."""

import functools
import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from redrive import enqueue
from tests.flow.harness import ROOT, Workers, wait_for
from tests.postgres import Database, Server

KEY = "customer-17"
KILLS = 4
JOBS = 600
HANDLERS = "tests.flow.moved:jobs"


@pytest.fixture
def cells(server: Server) -> Iterator[dict[str, Database]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(server.database()) for name in ("eu", "us")}


def mover(cells: dict[str, Database], home: Path) -> subprocess.Popen[bytes]:
    """Start the real command."""
    file = home / "cells.json"
    file.write_text(
        json.dumps([{"name": name, "url": at.url} for name, at in cells.items()])
    )
    command = ("cell", "move", "--key", KEY, "--from", "eu", "--to", "us")
    with (home / "mover.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "redrive", *command, "--yes", "--why", "x"],
            env={"REDRIVE_DATABASES": str(file), "REDRIVE_ACTOR": "ada"},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def ran(home: Path) -> Counter[int]:
    """How often each job ran."""
    texts = [path.read_text() for path in home.glob("ran-*")]
    return Counter(int(line) for text in texts for line in text.splitlines())


def came(there: Database) -> int:
    """Count the jobs that have come, while the mover may hold more."""
    return there.value("select count(*) from redrive.imports")


def reached(there: Database, kill_at: int, moving: subprocess.Popen[bytes]) -> bool:
    """Return True if the mover has put in more than so many jobs, or has ended."""
    return moving.poll() is not None or came(there) > kill_at


@pytest.mark.long
def test_every_job_runs_once_although_the_mover_is_killed_under_load(
    cells: dict[str, Database], tmp_path: Path
) -> None:
    chance = random.Random(17)
    stop = threading.Event()
    made: list[int] = []
    producer = cells["eu"].session()

    def produce() -> None:
        while not stop.wait(0.005):
            n = len(made)
            order = f"o{n % 40}" if n % 2 else None
            key = f"k{n}" if n % 3 else None
            fields = {"ordering_key": order, "idempotency_key": key, "tenant": KEY}
            enqueue(producer.conn, "moved.note", {"n": n}, **fields)  # type: ignore[arg-type]
            made.append(n)

    produced = threading.Thread(target=produce)
    produced.start()
    homes = {name: tmp_path / name for name in cells}
    with ExitStack() as stack:
        for name, home in homes.items():
            home.mkdir()
            workers = Workers(cells[name].url, home)
            stack.callback(workers.end)
            slots = 1 if name == "eu" else 8  # so that jobs wait in eu
            workers(handlers=HANDLERS, redrive_slots=slots).wait_ready()
        stack.callback(produced.join)
        stack.callback(stop.set)
        for kill in range(KILLS):
            wait_for(lambda at=(kill + 1) * JOBS // KILLS: len(made) > at, 300)
            moving = mover(cells, tmp_path)
            kill_at = came(cells["us"]) + chance.randrange(60)
            wait_for(functools.partial(reached, cells["us"], kill_at, moving))
            moving.send_signal(signal.SIGKILL)
            moving.wait()
        stop.set()
        produced.join()
        assert mover(cells, tmp_path).wait(300) == 0, (
            tmp_path / "mover.log"
        ).read_text()
        left = "select count(*) from redrive.jobs"
        for at in cells.values():
            wait_for(lambda at=at: at.value(left) == 0, 300)

    here, there = ran(homes["eu"]), ran(homes["us"])
    assert here + there == Counter(made)
    assert sum(there.values()) > 0
    assert (
        cells["eu"].value(
            "select count(*) from redrive.moved_jobs where data is not null"
        )
        == 0
    )
    died = "select count(*) from redrive.totals where event = 'dead'"
    assert [at.value(died) for at in cells.values()] == [0, 0]
