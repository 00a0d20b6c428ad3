"""job.complete(conn): the handler's writes and the job's end commit together, or not at all."""

from datetime import UTC, datetime

import pytest

from redrive import Job, StaleClaim, enqueue
from tests.factories import claim_one, make_worker
from tests.flow import look
from tests.flow.harness import Worker, Workers, wait_for
from tests.postgres import Database


@pytest.fixture(autouse=True)
def effects(database: Database) -> None:
    database.conn.execute("create table effects (job bigint, delivery int)")


def effects_of(database: Database, job: int) -> list[int]:
    return database.column("select delivery from effects where job = %s", job)


def test_what_a_handler_commits_with_its_completion_happens_exactly_once(
    database: Database, workers: Workers
):
    expected = {
        ("effect.sync", "commit"): [1],
        ("effect.async", "commit"): [1],
        ("effect.sync", "autocommit"): [1],
        ("effect.async", "autocommit"): [1],
        ("effect.sync", "rollback"): [2],
        ("effect.async", "rollback"): [2],
        ("effect.sync", "forget"): [2],
        ("effect.sync", "raise"): [1],
    }
    ids = {
        (kind, how): enqueue(database.conn, kind, {"how": how})
        for kind, how in expected
    }

    worker = workers()
    wait_for(
        lambda: look.live(database) == 0, what="left: " + repr(look.live(database))
    )
    wait_for(lambda: worker.metric("redrive_jobs_inflight") == 0)

    assert {case: effects_of(database, job) for case, job in ids.items()} == expected
    assert look.reasons(database) == {}
    assert look.counted(database)["completed"] == len(ids)
    assert worker.metric("redrive_stale_settlements_total") == 0


def test_a_process_killed_right_after_its_commit_has_done_its_work_once(
    database: Database, workers: Workers
):
    ids = [enqueue(database.conn, "effect.sync", {"how": "kill"}) for _ in range(4)]
    worker = workers("--slots", "1")
    wait_for(lambda: look.live(database) == 0)
    wait_for(lambda: worker.metric("redrive_runner_deaths_total") == 4)

    assert [effects_of(database, job) for job in ids] == [[1]] * 4
    assert [len(workers.starts(job)) for job in ids] == [1] * 4
    assert look.counted(database)["completed"] == 4
    assert look.reasons(database) == {}


SHORT = {"redrive_drain_timeout": 3, "redrive_heartbeat_ttl": 5}
SLEEPING = "select count(*) from pg_stat_activity where query like 'select pg_sleep%'"


def make_sleepers(
    database: Database, workers: Workers
) -> tuple[list[int], tuple[Worker, Worker]]:
    """Jobs whose runners are killed while their transactions sleep on the server."""
    pair = workers(**SHORT), workers(**SHORT)
    jobs = [enqueue(database.conn, "effect.asleep", {"seconds": 600}) for _ in range(8)]
    wait_for(lambda: len(workers.starts(jobs[-1])))
    wait_for(
        lambda: all(worker.metric("redrive_runner_deaths_total") for worker in pair)
    )
    return jobs, pair


def test_what_a_killed_runner_left_open_is_ended(database: Database, workers: Workers):
    """Its own job need not wait for it either."""
    jobs, _ = make_sleepers(database, workers)
    wait_for(lambda: look.live(database) == 0)

    assert database.value(SLEEPING) == 0
    assert look.reasons(database) == {}
    assert [[e.delivery for e in workers.starts(job)] for job in jobs] == [
        [1, 2]
    ] * len(jobs)


def test_what_is_not_ours_to_end_holds_up_its_own_job_alone(
    database: Database, workers: Workers
):
    """Every worker waited for the rows that the backends of a few killed runners had locked."""
    # as where handlers have a login of their own
    database.conn.execute(
        "create or replace function redrive.end_left_open_v1(ids bigint[], deliveries int[])"
        " returns setof bigint language sql as 'select 0::bigint where false'"
    )
    jobs, pair = make_sleepers(database, workers)
    quick = [enqueue(database.conn, "work.sync") for _ in range(100)]
    wait_for(lambda: look.counted(database).get("completed") == len(quick))
    assert database.value(SLEEPING) == len(jobs), "the rows are locked as before"
    status, _ = pair[0].stop()
    assert status == 1, "some of its jobs are left to be rescued"

    database.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_sleep%'"
    )
    wait_for(lambda: look.live(database) == 0)
    assert look.reasons(database) == {}
    assert [len(workers.starts(job)) for job in quick] == [1] * len(quick)
    assert [[e.delivery for e in workers.starts(job)] for job in jobs] == [
        [1, 2]
    ] * len(jobs)


@pytest.mark.parametrize("kind", ["effect.sync", "effect.async"])
def test_a_transaction_left_open_is_rolled_back_and_holds_up_nobody(
    database: Database, workers: Workers, kind: str
):
    job = enqueue(database.conn, kind, {"how": "open"})
    raising = enqueue(database.conn, "effect.sync", {"how": "open-and-raise"})
    worker = workers()
    wait_for(
        lambda: len(look.reasons(database)) == 2,
        what="the open transactions hold the worker up",
    )
    after = enqueue(database.conn, "work.sync")
    wait_for(lambda: workers.starts(after))

    assert look.dead(database, job)[:3] == (
        "attempts_exhausted",
        "other",
        "NotCommitted",
    )
    assert "still open" in look.dead(database, job).message
    assert look.dead(database, raising)[:3] == (
        "attempts_exhausted",
        "transient",
        "ConnectionError",
    )
    assert (effects_of(database, job), effects_of(database, raising)) == ([], [])
    assert (
        worker.metric("redrive_job_attempts_total", kind=kind, outcome="succeeded") == 0
    )


def test_a_handler_that_lost_its_claim_is_told_and_its_writes_are_not_committed(
    database: Database, workers: Workers
):
    job = enqueue(database.conn, "work.sync")
    worker = make_worker(database.conn, "first")
    first = claim_one(database.conn, worker)
    database.conn.execute("update redrive.jobs set deliveries = deliveries + 1")
    conn = database.connect()
    held = Job(
        id=job,
        kind="work.sync",
        deliveries=first.deliveries,
        worker=worker,
        deadline=datetime.now(UTC),
    )
    with pytest.raises(StaleClaim), conn.transaction():  # noqa: PT012 # the write before it is what must not stay
        conn.execute("insert into effects values (%s, 1)", (job,))
        held.complete(conn)

    assert effects_of(database, job) == []
    assert look.live(database) == 1
