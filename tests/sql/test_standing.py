"""Which queues stand still, and which jobs are due for a worker."""

from typing import Any

import psycopg
import pytest
from psycopg import sql

from redrive.worker import store
from tests.factories import claim, make_job, make_jobs, make_worker, silence
from tests.postgres import Database

pytestmark = pytest.mark.every_version


def due(
    database: Database, queues: list[str] | None, kinds: list[str] | None
) -> list[Any]:
    return database.column(
        "select queue from redrive.due_v1(%s, %s) order by 1", queues, kinds
    )


def test_a_job_is_due_for_workers_of_its_queue_and_kind(database: Database) -> None:
    make_job(database.conn, "mail.send", queue="mail")
    make_job(database.conn, "charge", queue="pay")
    make_job(database.conn, "charge", queue="later", delay=60)

    assert due(database, None, None) == ["mail", "pay"]
    assert due(database, ["pay", "later"], None) == ["pay"]
    assert due(database, None, ["mail.*"]) == ["mail"]
    assert due(database, ["pay"], ["mail.*"]) == []
    assert store.is_any_due(database.conn, None, ["charge"])
    assert not store.is_any_due(database.conn, ["mail"], ["charge"])


def test_a_job_that_somebody_holds_or_whose_queue_is_paused_is_not_due(
    database: Database,
) -> None:
    make_jobs(database.conn, 3, queue="mail")
    assert len(claim(database.conn, make_worker(database.conn))) == 3
    make_job(database.conn, queue="pay")
    database.rows("select redrive.pause_v1('pay', 'ada', 'why')")

    assert due(database, None, None) == []


def test_the_pause_of_another_queue_or_an_earlier_one_hides_no_due_job(
    database: Database,
) -> None:
    make_job(database.conn, queue="mail")
    database.rows("select redrive.pause_v1('pay', 'ada', 'why')")
    database.rows("select redrive.pause_v1('mail', 'ada', 'why')")
    database.rows("select redrive.resume_v1('mail', 'ada', 'why')")

    assert due(database, None, None) == ["mail"]


def test_a_due_job_behind_a_thousand_of_another_kind_is_found(
    database: Database,
) -> None:
    make_jobs(database.conn, 1000, "other")
    make_job(database.conn, "mine")

    assert due(database, None, ["mine"]) == ["default"]


@pytest.mark.parametrize("table", ["claims", "jobs", "queues"])
def test_nobody_waits_for_a_locked_table_to_learn_what_is_due(
    database: Database, table: str
) -> None:
    """The heartbeat asks, and must not stand still as well."""
    make_job(database.conn)
    other = database.session()
    with other.conn.transaction():
        name = sql.Identifier("redrive", table)
        other.conn.execute(
            sql.SQL("lock table {} in access exclusive mode").format(name)
        )
        with pytest.raises(psycopg.errors.LockNotAvailable):
            store.is_any_due(database.conn, None, ["*"])


def standing(database: Database) -> list[Any]:
    return database.rows("select queue, workers from redrive.standing_v1('60 seconds')")


@pytest.fixture
def worker(database: Database) -> int:
    """A worker with a free slot, beside a job that has been due for an hour."""
    worker = make_worker(database.conn, ttl=30)
    database.rows(
        "update redrive.workers set started_at = started_at - interval '1 hour',"
        """ inflight = 3, progress = '{"slots": 4}'"""
    )
    make_job(database.conn)
    database.rows("update redrive.jobs set run_at = run_at - interval '1 hour'")
    return worker


def test_a_queue_stands_still_whose_worker_has_a_free_slot(
    database: Database, worker: int
) -> None:
    assert worker
    assert standing(database) == [("default", 1)]


@pytest.mark.parametrize(
    "change",
    [
        "inflight = 4",
        "started_at = now()",
        "is_closed = true",
        "lost_at = now()",
        "kinds = '{other}'",
        "queues = '{other}'",
        """progress = '{"slots": 4, "draining": true}'""",
        "progress = null",
    ],
)
def test_a_queue_whose_workers_could_not_have_claimed_does_not_stand_still(
    database: Database, worker: int, change: Any
) -> None:
    database.rows(f"update redrive.workers set {change} where id = %s", worker)  # type: ignore[arg-type]

    assert standing(database) == []


@pytest.mark.parametrize("event", ["claimed", "completed", "retried", "dead"])
@pytest.mark.parametrize("table", ["deltas", "tallies"])
def test_a_queue_of_which_something_was_claimed_or_ended_does_not_stand_still(
    database: Database, worker: int, event: str, table: Any
) -> None:
    assert worker
    counted = f"insert into redrive.{table} (queue, kind, event, reason, n)"
    database.rows(f"{counted} values ('other', 'k', %s, '', 1)", event)  # type: ignore[arg-type]
    assert standing(database) == [("default", 1)]
    database.rows(f"{counted} values ('default', 'k', %s, '', 1)", event)  # type: ignore[arg-type]

    assert standing(database) == []


def test_only_workers_that_do_not_live_and_hold_a_job_are_lost(
    database: Database,
) -> None:
    holds, idle, alive = (
        make_worker(database.conn, name, ttl=30) for name in ("a", "b", "c")
    )
    make_jobs(database.conn, 2)
    assert (
        len(claim(database.conn, holds, 1)) == len(claim(database.conn, alive, 1)) == 1
    )
    for worker in (holds, idle):
        silence(database.conn, worker)

    assert database.value("select redrive.lost_workers_v1()") == 1


def test_due_jobs_are_seen_behind_many_of_a_kind_without_a_handler(
    database: Database,
) -> None:
    """Behind 25,000 of them, a locked lane was no standstill."""
    with database.conn.transaction():
        database.rows("set local session_replication_role = replica")
        database.rows(
            "insert into redrive.jobs (kind, run_at)"
            " select 'other', now() - interval '1 hour' + n * interval '1 ms'"
            " from generate_series(1, 25000) n"
        )
        database.rows(
            "insert into redrive.jobs (kind, run_at)"
            " select 'a', now() - interval '10 minutes' + n * interval '1 s'"
            " from generate_series(1, 9) n"
        )
    found = database.rows(
        "select queue, now() - since from redrive.due_v1(null, '{a}')"
    )

    assert [queue for queue, _ in found] == ["default"]
