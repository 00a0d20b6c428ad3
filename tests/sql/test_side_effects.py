"""side_effects_v1: what handlers report while their jobs run."""

from redrive.worker import store
from redrive.worker.protocol import SideEffect
from tests.factories import claim, make_jobs, make_worker
from tests.postgres import Database


def test_a_job_that_its_handler_holds_is_waited_for_by_nobody(
    database: Database,
) -> None:
    """A worker that waited for it would settle and claim nothing meanwhile."""
    make_jobs(database.conn, 2)
    worker = make_worker(database.conn)
    held, free = claim(database.conn, worker, 2)
    told = [
        (worker, SideEffect(job.id, job.deliveries, "card charged", "{}"))
        for job in (held, free)
    ]
    handler = database.session()

    with handler.conn.transaction():
        handler.rows("select from redrive.jobs where id = %s for update", held.id)
        again = store.side_effects(database.conn, told)
        noted = database.column("select job from redrive.side_effects")
    later = store.side_effects(database.conn, told[:1])

    assert (again, noted) == ({held.id}, [free.id])
    assert later == set()
    assert sorted(database.column("select job from redrive.side_effects")) == sorted(
        [held.id, free.id]
    )


def test_a_side_effect_of_an_earlier_claim_or_of_a_job_that_is_gone_is_not_kept(
    database: Database,
) -> None:
    make_jobs(database.conn, 1)
    worker = make_worker(database.conn)
    (job,) = claim(database.conn, worker, 1)
    told = [
        (worker, SideEffect(job.id, job.deliveries + 1, "x", "{}")),
        (worker, SideEffect(job.id + 1, 1, "x", "{}")),
    ]

    assert store.side_effects(database.conn, told) == set()
    assert database.value("select count(*) from redrive.side_effects") == 0
