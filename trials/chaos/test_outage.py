"""A dependency that is down, at scale: what it costs its own jobs, and what it costs everybody
else's.
"""

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from redrive import enqueue, enqueue_many
from tests.flow import look
from tests.flow.harness import Workers, wait_for, workers_on
from tests.postgres import Database

WORKERS, SLOTS = 4, 16
JOBS = 10_000
SECONDS = 20.0
ROUNDS = 2
TICK = 0.02
SOON = 2.0
"""Seconds after which the first failures, those in hand among them, have opened the breaker."""


class Waits(NamedTuple):
    """Milliseconds from a job's enqueueing to its start."""

    median: float
    p95: float

    def __str__(self) -> str:
        return f"{self.median:.1f} ms (p95 {self.p95:.1f})"


@pytest.fixture
def workers(database: Database, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(database.url, tmp_path) as started:
        for _ in range(WORKERS):
            started(handlers="trials.chaos.outage:jobs", redrive_slots=SLOTS)
        for worker in started.started:
            worker.wait_ready()
        yield started


def _work(database: Database) -> dict[int, float]:
    """JOBS that mail, and twenty times fewer that do not, arrive evenly. Returns when each of the
    others came.
    """
    began, mails, came = time.monotonic(), 0, dict[int, float]()
    while mails < JOBS:
        share = min(1.0, (time.monotonic() - began) / SECONDS)
        due = int(JOBS * share)
        enqueue_many(database.conn, [{"kind": "mail.send"} for _ in range(due - mails)])
        mails = due
        job = enqueue(database.conn, "other.work")
        came[job] = time.monotonic()
        time.sleep(TICK)
    return came


def _waits(workers: Workers, came: dict[int, float]) -> Waits:
    waits = [
        1000 * (e.at - came[e.job])
        for e in workers.ledger()
        if e.phase == "start" and e.job in came
    ]
    assert len(waits) == len(came)
    return Waits(statistics.median(waits), statistics.quantiles(waits, n=20)[-1])


@pytest.mark.chaos
def test_an_outage_burns_no_attempt_and_keeps_nobody_else_waiting(
    database: Database, workers: Workers
):
    down = workers.home / "mail-is-down"
    up_waits: list[Waits] = []
    down_waits: list[Waits] = []
    for _ in range(ROUNDS):
        came = _work(database)
        wait_for(lambda: look.live(database) == 0, 120, what="not all completed")
        up_waits.append(_waits(workers, came))

        down.touch()
        fell_at = time.monotonic()
        came = _work(database)
        wait_for(
            lambda: look.live(database) == JOBS,
            30,
            what="somebody else's job still waits",
        )
        down_waits.append(_waits(workers, came))
        opened = database.value(
            "select opened from redrive.breakers where name = 'mail'"
        )
        calls = [
            e.at - fell_at
            for e in workers.ledger()
            if e.phase == "down" and e.at > fell_at
        ]
        down.unlink()
        recovered_at = time.monotonic()
        wait_for(
            lambda: look.live(database) == 0,
            180,
            what="not all completed after the recovery",
        )
        print(
            f"\n{JOBS} jobs, {WORKERS} workers:"
            f" others waited {up_waits[-1]} with it up, {down_waits[-1]} with it down;"
            f" {len(calls)} calls, of which {sum(at > SOON for at in calls)}"
            f" after the first {SOON:g} s ({opened} openings);"
            f" all completed {time.monotonic() - recovered_at:.1f} s after the recovery"
        )

        assert sum(at > SOON for at in calls) <= opened, (
            "a call while open that was no probe"
        )
    up = [entry for entry in workers.ledger() if entry.phase == "up"]

    assert look.reasons(database) == {}
    assert Counter(e.attempt for e in up) == {1: 2 * ROUNDS * JOBS}, (
        "an attempt burned, or a success repeated"
    )
    # The figures are printed; here only a fault shows: jobs that starve behind ten thousand others
    # wait for seconds.
    assert (
        min(d.median / u.median for u, d in zip(up_waits, down_waits, strict=True)) < 3
    )
