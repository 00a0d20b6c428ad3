"""keep_checkpoints_v1, keep_progress_v1, complete_with_results_v1: fenced, waiting for nobody."""

import json
from typing import Any

import pytest

from redrive.worker import store
from redrive.worker.protocol import Returned
from redrive.worker.round_trip import Settlements, exchange
from redrive.worker.store import Noted
from tests.factories import (
    Claimed,
    claim,
    claim_one,
    complete,
    failure,
    let_die,
    make_job,
    make_jobs,
    make_worker,
    outcome,
    redrive,
    settle,
    silence,
)
from tests.postgres import Connection, Database


def noted(worker: int, job: Claimed, data: Any = None, share: float = 0.5) -> Noted:
    text = json.dumps({"data": {"page": 1} if data is None else data})
    return Noted(worker, job.claim, job.id, job.deliveries, text, share)


def keep(conn: Connection, worker: int, job: Claimed, data: Any = None) -> bool | None:
    """Keep a checkpoint. Returns whether it was; None: it was refused."""
    found = store.keep_checkpoints(conn, [noted(worker, job, data)])
    return found.get((job.id, job.deliveries))


def last(job: Claimed) -> Any:
    """The checkpoint that a claim brings."""
    found = job.more.get("checkpoint")
    return found and found["data"]["data"]


def left(database: Database) -> int:
    """Checkpoints and progresses."""
    return database.value(
        "select (select count(*) from redrive.checkpoints)"
        " + (select count(*) from redrive.progress)"
    )


def test_the_newest_checkpoint_comes_with_the_next_claim(database: Database) -> None:
    """Through a retry, a rescue, a death and a redrive; and is gone when the job succeeded."""
    conn = database.conn
    make_job(conn)
    worker = make_worker(conn)
    job = claim_one(conn, worker)
    assert job.extras is None
    assert keep(conn, worker, job) is True
    assert keep(conn, worker, job, {"page": 2}) is True
    settle(conn, worker, job, "retry", failure=failure())
    retried = claim_one(conn, worker)
    silence(conn, worker)
    store.rescue(conn, 60)
    worker = make_worker(conn)
    rescued = claim_one(conn, worker)
    let_die(conn, worker, rescued)
    redrive(conn, [job.id])
    redriven = claim_one(conn, worker)
    assert [last(one) for one in (retried, rescued, redriven)] == [{"page": 2}] * 3
    store.keep_progress(conn, [noted(worker, redriven)])
    assert left(database) == 2
    complete(conn, worker, redriven)

    assert left(database) == 0


@pytest.mark.parametrize("how", ["completed", "cancelled", "waits", "purged"])
def test_nothing_of_it_outlives_its_job(database: Database, how: str) -> None:
    conn = database.conn
    make_job(conn)
    worker = make_worker(conn)
    job = claim_one(conn, worker)
    keep(conn, worker, job)
    store.keep_progress(conn, [noted(worker, job)])
    if how == "completed":
        complete(conn, worker, job)
    elif how == "cancelled":
        settle(conn, worker, job, "cancel")
    elif how == "waits":
        settle(conn, worker, job, "release", delay=60.0)
        conn.execute(
            "select redrive.cancel_v1(array[%s::bigint], 'ada', 'why')", (job.id,)
        )
    else:
        let_die(conn, worker, job)
        assert left(database) == 2, "kept with the dead letter"
        conn.execute(
            "select redrive.purge_v1(null, array[%s::bigint], '{0}', '{open}')",
            (job.id,),
        )

    assert left(database) == 0


def test_whoever_lost_the_claim_is_refused(database: Database) -> None:
    """Another delivery, another worker, another claim, a job that is gone: no row is changed."""
    conn = database.conn
    make_jobs(conn, 2)
    worker, other = make_worker(conn), make_worker(conn)
    job, ended = claim(conn, worker, 2)
    complete(conn, worker, ended)
    stale = [
        noted(worker, job._replace(deliveries=job.deliveries + 1)),
        noted(other, job),
        noted(worker, job._replace(claim=job.claim + 1)),
        noted(worker, ended),
    ]
    for one in stale:
        assert store.keep_checkpoints(conn, [one]) == {}
        store.keep_progress(conn, [one])

    assert left(database) == 0


def test_a_job_that_somebody_has_locked_is_waited_for_by_nobody(
    database: Database,
) -> None:
    """A handler may hold its own in a transaction: the others' are kept, this one comes again."""
    conn = database.conn
    make_jobs(conn, 2)
    worker = make_worker(conn)
    held, free = claim(conn, worker, 2)
    handler = database.session()
    batch = [noted(worker, held), noted(worker, free)]
    with handler.conn.transaction():
        handler.rows("select from redrive.jobs where id = %s for update", held.id)
        first = store.keep_checkpoints(conn, batch)
        store.keep_progress(conn, batch)

    assert first == {(held.id, 1): False, (free.id, 1): True}
    assert left(database) == 2
    assert store.keep_checkpoints(conn, batch) == {
        (held.id, 1): True,
        (free.id, 1): True,
    }


def test_a_rescue_and_a_checkpoint_at_once_settle_it_one_way(
    database: Database,
) -> None:
    """A rescue has taken the job and not committed: the checkpoint is refused when it has."""
    conn = database.conn
    make_job(conn)
    worker = make_worker(conn)
    job = claim_one(conn, worker)
    silence(conn, worker)
    rescuer = database.session()
    with rescuer.conn.transaction():
        assert store.rescue(rescuer.conn, 60).jobs == 1
        assert keep(conn, worker, job) is False
    assert keep(conn, worker, job) is None

    assert left(database) == 0


def test_jobs_without_them_do_not_look_at_these_tables(database: Database) -> None:
    """Neither at the claim nor at the completion: nothing new per job where it is not used."""
    conn = database.conn
    make_jobs(conn, 10)
    worker, session = make_worker(conn), database.session()
    looks = (
        "select sum(pg_stat_get_xact_numscans(i)) from unnest('{redrive.checkpoints,"
        " redrive.checkpoints_pkey, redrive.progress_pkey, redrive.results_pkey}'::regclass[]) i"
    )
    with session.conn.transaction():
        complete(session.conn, worker, *claim(session.conn, worker, 10))
        assert session.value(looks) == 0


# Results


def finish(
    conn: Connection, worker: int, *jobs: Claimed, keep: float = 60.0
) -> set[int] | None:
    """Complete jobs that returned their ids. Returns the ids that were; None: all."""
    rows = [(job.id, job.deliveries, job.claim, worker) for job in jobs]
    returned = [
        Returned(job.id, job.deliveries, json.dumps({"value": job.id}), keep)
        for job in jobs
    ]
    return exchange(conn, Settlements(rows, results=returned), None).completed


def test_of_two_that_complete_a_job_the_holder_says_what_came_of_it(
    database: Database,
) -> None:
    conn = database.conn
    make_job(conn)
    stale, worker = make_worker(conn), make_worker(conn)
    old = claim_one(conn, stale)
    silence(conn, stale)
    store.rescue(conn, 60)
    job = claim_one(conn, worker)

    assert finish(conn, stale, old._replace(id=job.id)) == set()
    assert database.value("select count(*) from redrive.results") == 0
    assert finish(conn, worker, job) is None
    assert finish(conn, stale, old) == set()
    assert database.rows("select job, deliveries, result from redrive.results") == [
        (job.id, 2, {"value": job.id})
    ]


def test_results_are_forgotten_when_their_time_is_over(database: Database) -> None:
    conn = database.conn
    make_jobs(conn, 2)
    worker = make_worker(conn)
    short, long = claim(conn, worker, 2)
    finish(conn, worker, short, keep=-1.0)
    finish(conn, worker, long)
    conn.execute("select redrive.forget_v1(100)")

    assert database.column("select job from redrive.results") == [long.id]
    assert outcome(conn, short.id) == "succeeded"


def test_a_cancelled_job_is_known_as_such_with_nobody_to_ask_for_it(
    database: Database,
) -> None:
    """A handler's own Cancel; a stale one's says nothing."""
    conn = database.conn
    make_jobs(conn, 2)
    worker = make_worker(conn)
    job, other = claim(conn, worker, 2)
    assert settle(conn, worker, job, "cancel")
    assert not settle(conn, worker, other._replace(deliveries=7), "cancel")
    complete(conn, worker, other)

    assert (outcome(conn, job.id), outcome(conn, other.id)) == (
        "cancelled",
        "succeeded",
    )


def test_a_producer_may_wait_and_sees_nothing_else(database: Database) -> None:
    producer = database.session("redrive_producer")
    job = make_job(producer.conn)

    assert outcome(producer.conn, job) == "live"
    with pytest.raises(Exception, match="permission denied"):
        producer.rows("select * from redrive.results")
