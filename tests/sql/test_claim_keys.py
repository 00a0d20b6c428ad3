"""claim_v1: jobs of one ordering key run one after the other."""

import pytest

from tests.factories import (
    claim,
    claim_one,
    complete,
    failure,
    let_next_die,
    make_job,
    make_worker,
    redrive,
    settle,
    settle_next,
)
from tests.postgres import Database


def test_jobs_of_one_key_run_one_after_the_other(database: Database) -> None:
    ids = [make_job(database.conn, ordering_key="customer-1") for _ in range(3)]
    worker = make_worker(database.conn)

    assert database.column("select isfinite(run_at) from redrive.jobs order by id") == [
        True,
        False,
        False,
    ]
    for job_id in ids:
        job = claim_one(database.conn, worker)
        assert job.id == job_id
        assert claim(database.conn, worker) == []
        complete(database.conn, worker, job)


def test_different_keys_and_queues_do_not_wait_for_each_other(
    database: Database,
) -> None:
    ids = [
        make_job(database.conn, ordering_key=key, queue=queue)
        for key in ("a", "b")
        for queue in ("x", "y")
    ]

    worker = make_worker(database.conn)
    # one at a time: those that run keep nobody else waiting
    found = [job.id for _ in ids for job in claim(database.conn, worker, 1)]

    assert sorted(found) == ids


def test_jobs_with_a_key_and_without_are_claimed_together(database: Database) -> None:
    ids = [make_job(database.conn, ordering_key=key) for key in ("k", None)]

    assert [job.id for job in claim(database.conn, make_worker(database.conn))] == ids


def test_a_retry_keeps_its_place_in_the_key(database: Database) -> None:
    first, second = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    settle_next(database.conn, worker, "retry", failure=failure())

    job = claim_one(database.conn, worker)
    assert job.id == first
    complete(database.conn, worker, job)
    assert claim_one(database.conn, worker).id == second


@pytest.mark.parametrize("outcome", ["dead", "cancel"])
def test_the_next_of_the_key_runs_when_the_first_ends(
    database: Database, outcome: str
) -> None:
    _, second = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    settle(database.conn, worker, job, outcome, reason="gave_up")

    assert claim_one(database.conn, worker).id == second


def test_an_earlier_job_that_commits_late_is_still_seen_by_the_claim(
    database: Database,
) -> None:
    """The later one could not see it when it was inserted, and was not parked."""
    slow = database.transaction()
    first = make_job(slow.conn, ordering_key="k")
    second = make_job(database.conn, ordering_key="k")
    assert database.value("select isfinite(run_at) from redrive.jobs")
    slow.rows("commit")
    worker = make_worker(database.conn)

    job = claim_one(database.conn, worker)
    assert job.id == first
    complete(database.conn, worker, job)
    assert claim_one(database.conn, worker).id == second


def test_an_earlier_job_that_commits_late_waits_for_the_younger_that_runs(
    database: Database,
) -> None:
    slow = database.transaction()
    older = make_job(slow.conn, ordering_key="k")
    younger = make_job(database.conn, ordering_key="k")
    worker = make_worker(database.conn)
    running = claim_one(database.conn, worker)
    slow.rows("commit")

    assert running.id == younger
    assert claim(database.conn, worker) == []
    complete(database.conn, worker, running)
    assert claim_one(database.conn, worker).id == older


def test_a_redriven_head_of_the_key_waits_for_the_one_that_runs(
    database: Database,
) -> None:
    first, second, third = (make_job(database.conn, ordering_key="k") for _ in range(3))
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    running = claim_one(database.conn, worker)
    assert running.id == second
    assert redrive(database.conn, [first]) == {first: None}

    assert claim(database.conn, worker) == []
    complete(database.conn, worker, running)
    again = claim_one(database.conn, worker)
    assert again.id == first, "it is the oldest again"
    complete(database.conn, worker, again)
    assert claim_one(database.conn, worker).id == third


def test_a_redriven_head_runs_before_a_retry_of_a_younger_job(
    database: Database,
) -> None:
    first, second = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    running = claim_one(database.conn, worker)
    redrive(database.conn, [first])
    settle(database.conn, worker, running, "retry", failure=failure())

    again = claim_one(database.conn, worker)
    assert again.id == first
    complete(database.conn, worker, again)
    assert claim_one(database.conn, worker).id == second
