"""Series: what is counted already, by minute and hour; each count in one minute."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, LiteralString

import pytest

from redrive.observability.series import (
    Point,
    filled,
    gaps,
    now_of,
    read_queues,
    read_series,
)
from redrive.rules.times import HOUR, MINUTE, Period, period
from redrive.worker import store
from redrive.worker.store import Measured
from tests.factories import bury, claim_one, complete, make_job, make_worker
from tests.postgres import Connection, Database

PASS: tuple[LiteralString, ...] = (
    "update redrive.series set at = at - %(time)s where span = 1",
    "update redrive.queue_series set at = at - %(time)s where span = 1",
    "update redrive.chores set place = place - %(n)s where name = 'series'",
)


def record(conn: Connection) -> bool:
    """Record the minute that has just ended."""
    store.fold(conn)
    return store.fold_series(conn)


def let_pass(conn: Connection, minutes: int = 1) -> None:
    """Let this many minutes pass since the last record."""
    for statement in PASS:
        conn.execute(statement, {"n": minutes, "time": minutes * MINUTE})


def last(conn: Connection, hours: float = 2, step: timedelta = MINUTE) -> Period:
    now = now_of(conn)
    return period(now - timedelta(hours=hours), now, now, 10_000, step)


def counts(points: list[Point]) -> list[tuple[Any, ...]]:
    return [point[3:9] for point in points]


def test_a_minute_holds_what_was_counted_since_the_one_before(
    database: Database,
) -> None:
    worker = make_worker(database.conn)
    for _ in range(3):
        make_job(database.conn, queue="mail")
    assert record(database.conn)
    let_pass(database.conn)
    complete(database.conn, worker, claim_one(database.conn, worker))
    assert record(database.conn)

    points = read_series(database.conn, last(database.conn), by_queue=True, by_kind=True)
    assert counts(points) == [(3, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0)]
    assert {(p.queue, p.kind) for p in points} == {("mail", "invoice.charge")}
