"""Jobs that come back begin before a backlog, with real workers."""

from collections.abc import Callable, Sequence

import pytest

from redrive.enqueue import enqueue_many
from tests.flow.harness import Worker, Workers, kill, wait_for
from tests.postgres import Database
from tests.sql.test_limits import set_limit


def add(database: Database, kind: str, count: int, **payload: object) -> list[int]:
    """Enqueue jobs of a kind. Returns their ids."""
    enqueue_many(database.conn, [{"kind": kind, "payload": payload}] * count)
    return database.column("select id from redrive.jobs where kind = %s", kind)


def stop(_: Database, worker: Worker) -> None:
    """A deploy replaces the worker."""
    assert worker.stop()[0] == 0


@pytest.mark.parametrize("end", [stop, kill])
def test_the_jobs_of_a_worker_that_ended_begin_before_a_backlog(
    database: Database, workers: Workers, end: Callable[[Database, Worker], None]
) -> None:
    """They were first in line, and were behind all others."""
    first = add(database, "work.until-file", 4, file="go")
    backlog = add(database, "work.sync", 3000, seconds=0.02)
    before = workers(redrive_drain_timeout=0)
    wait_for(lambda: len(starts(workers, first)) == 4)
    end(database, before)
    (workers.home / "go").touch()
    workers()
    wait_for(lambda: len(starts(workers, first)) == 8)

    assert len(starts(workers, backlog)) < len(backlog)


def test_a_limited_kind_runs_at_its_limit_beside_a_backlog(
    database: Database, workers: Workers
) -> None:
    """Each job waited for the whole backlog again."""
    handlers = "tests.flow.limited:jobs"
    workers.run(handlers=handlers)  # it declares the limits
    set_limit(database.conn, "flow", 1)
    limited = add(database, "limited.work", 10)
    backlog = add(database, "free.work", 3000, seconds=0.02)
    workers(handlers=handlers)
    wait_for(lambda: len(starts(workers, limited)) == 10)

    assert len(starts(workers, backlog)) < len(backlog)


def starts(workers: Workers, jobs: Sequence[int]) -> list[int]:
    """List the starts of these jobs."""
    among = set(jobs)
    return [e.job for e in workers.ledger() if e.phase == "start" and e.job in among]
