"""Verbs of settle: what one of them does to a job, it does to no neighbour, and once."""

import pytest

from redrive.worker import store
from redrive.worker.protocol import SideEffect
from tests.factories import (
    bury,
    claim_one,
    complete,
    failure,
    make_dead_letter,
    make_job,
    make_worker,
    redrive,
    settle,
)
from tests.postgres import Database


@pytest.mark.parametrize("how", ["completes", "buries"])
def test_the_next_of_a_key_has_a_time_of_its_own(database: Database, how: str) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    for _ in range(2):
        make_job(conn, ordering_key="k")
    job = claim_one(conn, worker)
    database.rows("update redrive.jobs set run_at = now() + '1 h' where id > %s", job.id)
    if how == "completes":
        complete(conn, worker, job)
    else:
        bury(conn, worker, job)

    assert database.column("select run_at > now() from redrive.jobs") == [True]


def test_the_next_of_a_key_waits_for_the_dead_letter_that_comes_now(database: Database) -> None:
    """A claim would look at it in vain."""
    conn = database.conn
    worker = store.register(conn, store.Registration("w", "1", 60.0, ["*"], None, holds=["*"]))
    for _ in range(2):
        make_job(conn, ordering_key="k")
    bury(conn, worker, claim_one(conn, worker))

    assert database.column("select isfinite(run_at) from redrive.jobs") == [False]


def test_a_redriven_job_is_settled_once(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    redrive(conn, [make_dead_letter(conn)])
    job = claim_one(conn, worker)

    assert database.column(
        "select redrive.settle_v2(array[%s], array[%s], array[%s], array[%s], '{dead}', '{null}',"
        " '{0}', '{f}', '{0}', array[%s::jsonb], '{x}', '{}')",
        *(worker, job.claim, job.id, job.deliveries, failure()),
    ) == [job.id]


def test_of_side_effects_only_those_of_the_delivery_are_kept(database: Database) -> None:
    """Beside others of the same job in one batch, of a delivery before and of another worker."""
    conn, worker = database.conn, make_worker(database.conn)
    make_job(conn)
    settle(conn, worker, claim_one(conn, worker), "retry", failure=failure())
    job = claim_one(conn, worker)
    told = [
        (by, SideEffect(job.id, job.deliveries + more, what, "{}"))
        for by, more, what in ((0, 0, "a"), (worker, -1, "b"), (worker, 0, "c"), (worker, 1, "d"))
    ]

    assert store.side_effects(conn, told) == set()
    assert database.rows("select what, deliveries from redrive.side_effects") == [
        ("c", job.deliveries)
    ]
    database.rows("update redrive.jobs set noted = false")
    assert store.side_effects(conn, told[:2] + told[3:]) == set()
    assert database.column("select noted from redrive.jobs") == [False]
