"""complete_v1: the ending of almost every attempt."""

from concurrent.futures import wait

import pytest

from tests.factories import (
    claim,
    claim_one,
    complete,
    failure,
    let_die,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle,
    totals,
)
from tests.postgres import Connection, Database

COMPLETE = "select redrive.complete_v1(%s, %s, %s, %s, '{}')"


def test_a_completed_job_is_gone_and_counted(database: Database) -> None:
    make_jobs(database.conn, 3)
    worker = make_worker(database.conn)
    jobs = claim(database.conn, worker, 2)

    assert complete(database.conn, worker, *jobs) == {job.id for job in jobs}

    assert database.value("select count(*) from redrive.jobs") == 1
    assert totals(database.conn) == {"enqueued": 3, "claimed": 2, "completed": 2}


def test_all_settled_is_said_by_null(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)

    assert database.value(COMPLETE, [worker], [job.claim], [job.id], [1]) is None


@pytest.mark.parametrize("wrong", ["id", "token", "worker"])
def test_a_settlement_that_does_not_match_the_claim_changes_nothing(
    database: Database, wrong: str
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    before = database.rows("select * from redrive.jobs")
    claimed = {"worker": worker, "id": job.id, "token": job.deliveries}
    claimed[wrong] += 1

    settled = database.value(
        COMPLETE, [claimed["worker"]], [job.claim], [claimed["id"]], [claimed["token"]]
    )

    assert settled == []
    assert database.rows("select * from redrive.jobs") == before
    assert totals(database.conn) == {"enqueued": 1, "claimed": 1}


def test_only_the_fenced_jobs_of_a_batch_are_left(database: Database) -> None:
    make_jobs(database.conn, 3)
    worker = make_worker(database.conn)
    first, second, third = claim(database.conn, worker)
    stale = second._replace(deliveries=7)

    assert complete(database.conn, worker, first, stale, third) == {first.id, third.id}
    assert database.column("select id from redrive.jobs") == [second.id]


def test_completing_twice_settles_once(database: Database) -> None:
    make_job(database.conn, idempotency_key="k")
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)

    assert complete(database.conn, worker, job) == {job.id}
    assert complete(database.conn, worker, job) == set()
    assert totals(database.conn)["completed"] == 1


def test_a_worker_that_lost_its_job_cannot_complete_it(database: Database) -> None:
    make_job(database.conn)
    old, new = make_worker(database.conn, "old"), make_worker(database.conn, "new")
    before = claim_one(database.conn, old)
    assert settle(database.conn, old, before, "release")
    after = claim_one(database.conn, new)

    assert complete(database.conn, old, before) == set()
    assert complete(database.conn, old, after) == set()
    assert complete(database.conn, new, after) == {after.id}


def test_a_key_that_succeeded_is_remembered_with_its_job(database: Database) -> None:
    job_id = make_job(database.conn, idempotency_key="order-7")
    make_job(database.conn)
    worker = make_worker(database.conn)

    complete(database.conn, worker, *claim(database.conn, worker))

    assert database.rows("select kind, key, job from redrive.completions") == [
        ("invoice.charge", "order-7", job_id)
    ]


def test_the_failures_of_a_job_that_succeeds_are_forgotten(database: Database) -> None:
    make_jobs(database.conn, 2)
    worker = make_worker(database.conn)
    for job in claim(database.conn, worker):
        assert settle(database.conn, worker, job, "retry", failure=failure())
    first, second = claim(database.conn, worker)

    complete(database.conn, worker, first)

    assert database.column("select job from redrive.failures") == [second.id]


def test_a_redriven_job_that_succeeds_resolves_all_its_dead_letters(
    database: Database,
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    for _ in range(2):
        job = claim_one(database.conn, worker)
        let_die(database.conn, worker, job)
        assert redrive(database.conn, [job.id]) == {job.id: None}
    job = claim_one(database.conn, worker)

    complete(database.conn, worker, job)

    assert database.rows(
        "select redrives, state, outcome from redrive.dead_letters order by redrives"
    ) == [(0, "resolved", "dead_again"), (1, "resolved", "succeeded")]
    assert totals(database.conn)["resolved"] == 2
    assert database.value("select count(*) from redrive.failures") == 2, (
        "kept as long as the dead letters are"
    )


def test_the_next_job_of_the_ordering_key_comes_in_front_of_every_floor(
    database: Database,
) -> None:
    first, second, third = (
        make_job(database.conn, ordering_key="customer-1") for _ in range(3)
    )
    other = make_job(database.conn, ordering_key="customer-2", queue="other")
    worker = make_worker(database.conn)
    jobs = claim(database.conn, worker)
    assert [job.id for job in jobs] == [first, other]
    (instant,) = database.row("select clock_timestamp()")

    complete(database.conn, worker, jobs[0])

    assert database.rows(
        "select id, run_at >= %s, isfinite(run_at) from redrive.jobs"
        " where queue = 'default' order by id",
        instant,
    ) == [(second, True, True), (third, True, False)]


def test_a_job_of_the_key_that_waits_for_its_own_time_is_not_promoted(
    database: Database,
) -> None:
    make_job(database.conn, ordering_key="customer-1")
    make_job(database.conn, ordering_key="customer-1")
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    database.rows("update redrive.jobs set run_at = now() + interval '1 hour'")

    complete(database.conn, worker, job)

    assert database.value(
        "select run_at > now() + interval '59 minutes' from redrive.jobs"
    )


def test_two_sessions_that_complete_the_same_job_settle_it_once(
    database: Database,
) -> None:
    make_jobs(database.conn, 200)
    worker = make_worker(database.conn)
    jobs = claim(database.conn, worker, 200)
    sessions = [database.session() for _ in range(4)]

    def act(conn: Connection) -> set[int]:
        return complete(conn, worker, *jobs)

    done = [session.start(lambda s=session: act(s.conn)) for session in sessions]
    wait(done)

    assert sum(len(d.result()) for d in done) == 200
    assert totals(database.conn)["completed"] == 200


def test_a_handler_completes_in_its_own_transaction_or_not_at_all(
    database: Database,
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    handler = database.session()
    statement = "select redrive.complete_in_transaction_v1(%s, %s, %s)"

    handler.rows("begin")
    assert handler.value(statement, worker, job.id, job.deliveries) is True
    handler.rows("rollback")
    assert database.value("select count(*) from redrive.jobs") == 1

    assert handler.value(statement, worker, job.id, job.deliveries) is True
    assert handler.value(statement, worker, job.id, job.deliveries) is False
    assert database.value("select count(*) from redrive.jobs") == 0


def test_the_claim_of_a_job_is_its_workers_that_lists_it(database: Database) -> None:
    """For whoever knows the worker alone: it stands in the fence of what they settle."""
    make_jobs(database.conn, 3)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    a, b, c = (claim_one(database.conn, worker) for worker in (one, two, one))

    assert database.value(
        "select redrive.claims_of_v1(%s::int[], %s)",
        [one, one, two, one],
        [c.id, a.id, b.id, b.id],
    ) == [c.claim, a.claim, b.claim, None]


def test_only_the_transaction_that_has_the_mark_is_ended(database: Database) -> None:
    """A transaction that waits for it has completed nothing yet."""
    mark = "select pg_advisory_lock(redrive.delivery_mark_v1(1, 1))"
    left, waiting = database.session(), database.session()
    left.value(mark)
    asked = waiting.start(lambda: waiting.value(mark))
    database.wait_until_blocked(waiting)

    ended = database.column("select redrive.end_left_open_v1(array[1], array[1])")

    assert ended == [1]
    asked.result(60)
    assert waiting.value("select 1") == 1
