"""Workers measure how long jobs wait and run; the series have it by the minute."""

from datetime import timedelta

from redrive.enqueue import enqueue
from redrive.observability.series import Point, now_of, read_series
from redrive.rules.times import period
from redrive.worker import store
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database


def recorded(database: Database) -> list[Point]:
    """Record what has been counted, and read it."""
    database.rows("update redrive.chores set place = place - 1 where name = 'series'")
    store.fold(database.conn)
    store.fold_series(database.conn)
    now = now_of(database.conn)
    hour = period(now - timedelta(hours=1), now, now, 60)
    return read_series(database.conn, hour, by_queue=True, by_kind=True)


def test_a_worker_that_stops_sends_what_it_has_measured(
    database: Database, workers: Workers
) -> None:
    """Else a worker that runs for less than a minute would measure nothing."""
    for _ in range(3):
        enqueue(database.conn, "work.sync", {"seconds": 0.2})
    workers.run("--until-empty")
    measured = wait_for(
        lambda: [point for point in recorded(database) if point.duration]
    )

    (point,) = measured
    assert (point.queue, point.kind) == ("default", "work.sync")
    assert sum(point.duration or ()) == sum(point.wait or ()) == 3
    assert 0.1 < (point.duration_at(0.5) or 0) <= 10
