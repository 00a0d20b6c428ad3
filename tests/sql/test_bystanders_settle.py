"""Verbs of settle: what one of them does to a job, it does to no neighbour, and once."""

import pytest

from redrive.worker import store
from redrive.worker.protocol import SideEffect
from tests.factories import (
    Claimed,
    claim,
    claim_one,
    complete,
    failure,
    let_die,
    let_next_die,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle,
    settle_next,
)
from tests.postgres import Database
from tests.sql.bystanders import LETTERS, NOTES, make_past, touched

SETTLE = (
    "select redrive.settle_v1(%s::int[], %s, %s, %s, array[%s], '{null}', '{0}', '{f}', '{0}',"
    " array[null::jsonb], '{null}', %s)"
)


@pytest.mark.parametrize("how", ["completes", "dead-letters"])
def test_the_next_of_a_key_has_a_time_of_its_own(database: Database, how: str) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    for _ in range(2):
        make_job(conn, ordering_key="k")
    job = claim_one(conn, worker)
    database.rows(
        "update redrive.jobs set run_at = now() + '1 h' where id > %s", job.id
    )
    if how == "completes":
        complete(conn, worker, job)
    else:
        let_die(conn, worker, job)

    assert database.column("select run_at > now() from redrive.jobs") == [True]


def test_the_next_of_a_key_waits_for_the_dead_letter_that_comes_now(
    database: Database,
) -> None:
    """A claim would look at it in vain."""
    conn = database.conn
    worker = store.register(
        conn, store.Registration("w", "1", 60.0, ["*"], None, holds=["*"])
    )
    for _ in range(2):
        make_job(conn, ordering_key="k")
    let_next_die(conn, worker)

    assert database.column("select isfinite(run_at) from redrive.jobs") == [False]


def test_a_redriven_job_is_settled_once(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    redrive(conn, [make_dead_letter(conn)])
    job = claim_one(conn, worker)

    assert database.column(
        "select redrive.settle_v1(array[%s], array[%s], array[%s], array[%s], '{dead}', '{null}',"
        " '{0}', '{f}', '{0}', array[%s::jsonb], '{x}', '{}')",
        *(worker, job.claim, job.id, job.deliveries, failure()),
    ) == [job.id]


def test_of_side_effects_only_those_of_the_delivery_are_kept(
    database: Database,
) -> None:
    """Beside others of the same job in one batch, of a delivery before and of another worker."""
    conn, worker = database.conn, make_worker(database.conn)
    make_job(conn)
    settle_next(conn, worker, "retry", failure=failure())
    job = claim_one(conn, worker)
    told = [
        (by, SideEffect(job.id, job.deliveries + more, what, "{}"))
        for by, more, what in (
            (0, 0, "a"),
            (worker, -1, "b"),
            (worker, 0, "c"),
            (worker, 1, "d"),
        )
    ]

    assert store.side_effects(conn, told) == set()
    assert database.rows("select what, deliveries from redrive.side_effects") == [
        ("c", job.deliveries)
    ]
    database.rows("update redrive.jobs set noted = false")
    assert store.side_effects(conn, told[:2] + told[3:]) == set()
    assert database.column("select noted from redrive.jobs") == [False]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("complete", {*LETTERS, *NOTES}),
        ("retry", set[tuple[str, int | None]]()),
        ("release", set[tuple[str, int | None]]()),
        ("dead", {("dead_letters", 1)}),
        ("cancel", {*LETTERS, *NOTES}),
    ],
)
def test_a_running_job_is_settled_alone(
    database: Database, outcome: str, expected: set[tuple[str, int | None]]
) -> None:
    """Its worker runs another one, and another worker one of the same key in another queue."""
    conn = database.conn
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    ids = [make_past(database, queue) for queue in ("one", "two", "three")]
    redrive(conn, ids)
    database.rows("update redrive.jobs set noted = true, failed_at = now()")
    parked = make_job(conn, "pay", queue="two", ordering_key="k")
    one, _ = claim(conn, workers[0], 2)
    claim_one(conn, workers[1])
    end = {"complete": lambda: complete(conn, workers[0], one)}.get(
        outcome,
        lambda: settle(conn, workers[0], one, outcome, reason="x", failure=failure()),
    )

    rows = touched(database, end)
    claims = {(table, *rest) for table, *rest in rows if table == "claims"}
    assert claims <= {("claims", one.claim, None)}
    always = {("jobs", one.id, 2), ("running_keys", one.id, None)}
    assert rows - claims == always | {(table, one.id, n) for table, n in expected}
    assert parked


@pytest.mark.parametrize("settled_by", ["complete", "settle"])
def test_nobody_ends_the_claim_of_another_worker(
    database: Database, settled_by: str
) -> None:
    conn = database.conn
    make_job(conn)
    make_job(conn)
    workers = [make_worker(conn, name) for name in ("w", "v")]
    jobs = [claim_one(conn, worker) for worker in workers]
    ended = [job.claim for job in jobs]
    mine = [[workers[0]], ended[:1], [jobs[0].id], [1]]
    if settled_by == "complete":
        database.rows(
            "select redrive.complete_v1(%s::int[], %s, %s, %s, %s)", *mine, ended
        )
    else:
        database.rows(SETTLE, *mine, "retry", ended)

    assert database.column("select id from redrive.claims") == ended[1:]


def test_what_is_not_an_outcome_settles_nothing(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    query = SETTLE, [worker], [job.claim], [job.id], [1], "complete", []

    assert touched(database, lambda: database.rows(*query)) == set()


def test_nobody_waits_for_the_claim_of_another_worker(database: Database) -> None:
    conn = database.conn
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    make_jobs(conn, 2)
    (one,), (two,) = (claim(conn, worker, 1) for worker in workers)
    hasty = database.session(lock_timeout="1ms")
    database.transaction(
        "select from redrive.claims where id = %s for update", two.claim
    )

    assert settle(hasty.conn, workers[0], one, "retry", failure=failure())


def test_only_the_claims_of_these_workers_are_over(database: Database) -> None:
    conn = database.conn
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    make_jobs(conn, 2)
    (one,), _ = (claim(conn, worker, 1) for worker in workers)
    database.rows("delete from redrive.jobs")
    end = "select redrive.end_claims_v1(array[%s])"

    assert touched(database, lambda: database.rows(end, workers[0])) == {
        ("claims", one.claim, None)
    }


def test_a_failure_is_kept_of_its_own_job_while_that_lasts(database: Database) -> None:
    """Not of one that is cancelled; and the first failure of another is not this one's."""
    conn, worker = database.conn, make_worker(database.conn)
    make_jobs(conn, 3)
    older, one, cancelled = claim(conn, worker)
    for job in (older, one):
        settle(conn, worker, job, "retry", failure=failure())
    database.rows(
        "update redrive.failures set at = at - interval '1 d' where job = %s", older.id
    )
    (one,) = (job for job in claim(conn, worker) if job.id == one.id)
    let_die(conn, worker, one)
    settle(conn, worker, cancelled, "cancel", failure=failure())

    assert database.value(
        "select first_failed_at > now() - interval '1 h' from redrive.dead_letters"
    )
    assert database.column("select distinct job from redrive.failures order by 1") == [
        older.id,
        one.id,
    ]


def side_effect(
    *jobs: Claimed, worker: int, behind: int = 0
) -> list[tuple[int, SideEffect]]:
    """What one worker reports of each; of the delivery before with `behind`."""
    return [
        (worker, SideEffect(job.id, job.deliveries + behind, "x", "{}")) for job in jobs
    ]


def test_side_effects_lock_and_ask_for_no_other_job(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    make_jobs(conn, 3)
    one, stale, other = claim(conn, worker)
    telling = database.session()
    handler = database.transaction(
        "select from redrive.jobs where id = %s for update",
        stale.id,
        lock_timeout="1ms",
    )
    telling.rows("begin")
    told = side_effect(one, worker=worker) + side_effect(stale, worker=worker, behind=1)

    assert store.side_effects(telling.conn, told) == set(), (
        "and not to come again with the stale"
    )
    handler.rows("select from redrive.jobs where id = %s for update", other.id)


def test_what_a_handler_did_is_kept_with_the_dead_letter(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    make_job(conn)
    job = claim_one(conn, worker)
    store.side_effects(conn, side_effect(job, worker=worker))
    let_die(conn, worker, job)

    assert database.column("select job from redrive.side_effects") == [job.id]
