"""One login's flood, and how long others wait for their jobs meanwhile."""

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import enqueue
from tests.flow.harness import Workers, wait_for, workers_on
from tests.postgres import Database
from trials.attack.flood import WAYS

PROBES, EVERY = 60, 0.02
TRIES, NOISE = 6, 3.0
"""The machine has other things to do, the flood among them: what stalls is there at each try."""


@pytest.fixture
def workers(database: Database, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(database.url, tmp_path) as started:
        yield started


@contextlib.contextmanager
def flood(database: Database, way: str) -> Iterator[None]:
    """Somebody floods, in a process of his own."""
    command = [sys.executable, "-m", "trials.attack.flood", database.url, way]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"flooding\n"
        yield
        process.communicate()


def pick_up(database: Database, workers: Workers) -> float:
    """The 99th percentile of the seconds from enqueue to start, in a queue of others."""
    sent = dict[int, float]()
    for _ in range(PROBES):
        now = time.monotonic()
        sent[enqueue(database.conn, "work.sync", queue="mail")] = now
        time.sleep(EVERY)
    started = dict[int, float]()

    def all_started() -> bool:
        started.update({e.job: e.at for e in workers.ledger() if e.phase == "start"})
        return sent.keys() <= started.keys()

    wait_for(all_started)
    return sorted(started[job] - at for job, at in sent.items())[-2]


@pytest.mark.parametrize("way", WAYS)
def test_a_flood_of_one_login_leaves_the_others_their_pace(
    database: Database, workers: Workers, way: str
) -> None:
    """100,000 queues of one producer stalled the jobs of all others for 18 to 27 s."""
    workers().wait_ready()
    quiet = pick_up(database, workers)

    with flood(database, way):
        tries = (pick_up(database, workers) for _ in range(TRIES))
        stalled = list(itertools.takewhile(lambda p99: p99 > 2 * quiet + NOISE, tries))

    assert len(stalled) < TRIES, f"p99 of {quiet:.3f} s became {stalled}"
