"""What becomes of a worker, and of what it held, becomes of no other."""

import json

import pytest

from redrive.worker import store
from tests.factories import (
    claim,
    claim_one,
    failure,
    holders,
    make_job,
    make_jobs,
    make_worker,
    settle,
    silence,
)
from tests.postgres import Database
from tests.sql.bystanders import touched


@pytest.mark.parametrize("how", ["beats", "retires", "is lost"])
def test_a_worker_comes_and_goes_alone(database: Database, how: str) -> None:
    conn = database.conn
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    ids = [
        make_job(conn, "pay", queue=queue, ordering_key="k") for queue in ("one", "two")
    ]
    one, _ = claim(conn, workers[0], 1), claim(conn, workers[1], 1)
    idle = make_worker(conn, "idle")
    if how == "is lost":
        silence(conn, workers[0])
    rows = touched(
        database,
        {
            "beats": lambda: database.rows(
                "select redrive.beat_v1(%s, '{3}', '{null}')", [workers[0]]
            ),
            "retires": lambda: store.retire(conn, workers[0]),
            "is lost": lambda: store.rescue(conn, 60),
        }[how],
    )

    held = {
        ("jobs", ids[0], 0),
        ("claims", one[0].claim, None),
        ("running_keys", ids[0], None),
    }
    assert rows == {("workers", workers[0], None)} | (held if how != "beats" else set())
    left = {*workers, idle} if how == "beats" else {workers[1], idle}
    assert set(database.column("select id from redrive.workers")) == left


def make_lost(database: Database, count: int = 1, kind: str = "a") -> list[int]:
    """Jobs whose worker was lost, each of them a suspect. Returns their ids."""
    conn, worker = database.conn, make_worker(database.conn, "lost")
    ids = [make_job(conn, kind) for _ in range(count)]
    claim(conn, worker)
    silence(conn, worker)
    assert store.rescue(conn, 60) == (1, count, 0)
    return ids


def test_what_a_worker_that_is_back_held_is_forgiven_alone(database: Database) -> None:
    one, two = make_lost(database, 2)
    database.transaction("select from redrive.jobs where id = %s for update", two)
    hasty = database.session(lock_timeout="1ms")
    rows = touched(database, lambda: store.forgive(hasty.conn, [(one, 1)]))

    assert rows == {("jobs", one, 0), ("failures", one, None)}


def test_a_job_that_somebody_holds_is_not_forgiven(database: Database) -> None:
    """Nobody waits for it, and the failures of the job stay as they are."""
    (one,) = make_lost(database)
    hasty = database.session(lock_timeout="1ms")
    holder = database.transaction("select from redrive.jobs for update")

    assert store.forgive(hasty.conn, [(one, 1)]) == []
    holder.rows("commit")
    assert store.forgive(hasty.conn, [(one, 1)]) == [one]


def test_only_losses_of_this_very_job_are_forgiven_and_counted(
    database: Database,
) -> None:
    """Ten of another job, or of another kind of error, are none of its ten."""
    one, two, three = make_lost(database, 3)
    database.rows(
        "update redrive.failures set error_class = 'Mine' where job = %s", three
    )
    database.rows(
        "insert into redrive.failures (job, deliveries, attempt, error_class, message, category,"
        " fingerprint) select j, n, 1, e, '', 'transient', '' from generate_series(2, 11) n,"
        " (values (%s, 'Mine'), (%s, 'WorkerLost')) v(j, e)",
        one,
        two,
    )
    database.rows("update redrive.jobs set losses = 0")

    assert store.forgive(database.conn, [(id_, 1) for id_ in (one, two, three)]) == [
        one
    ]
    assert database.column("select distinct losses from redrive.jobs") == [0], (
        "and never less"
    )


def test_no_worker_waits_for_another_ones_row(database: Database) -> None:
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    hasty = database.session(lock_timeout="1ms")
    other = database.transaction(
        "select from redrive.workers where id = %s for update", workers[1]
    )
    store.run_alone(hasty.conn, workers[0], 1)
    store.retire(hasty.conn, workers[0])
    other.rows("commit")

    assert database.rows("select id, alone from redrive.workers") == [
        (workers[1], None)
    ]


def test_a_lost_worker_that_somebody_rescues_is_left_to_them(
    database: Database,
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    claim_one(database.conn, worker)
    database.rows("update redrive.workers set lost_at = now()")
    hasty = database.session(lock_timeout="1ms")
    other = database.transaction("select from redrive.workers for update")

    assert store.rescue(hasty.conn, 60) == (0, 0, 0)
    other.rows("commit")
    assert store.run_alone(database.conn, worker, 1) is None, (
        "it can prove nothing any more"
    )


def test_what_is_settled_meanwhile_is_not_given_back(database: Database) -> None:
    """Another worker may run it already. Only another settlement can hold the claim."""
    make_job(database.conn)
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    settling, retiring = database.transaction(), database.session()
    settle(settling.conn, worker, job, "retry", failure=failure())
    waiting = database.start_blocked(
        retiring, lambda: store.retire(retiring.conn, worker), by=settling
    )
    settling.rows("commit")

    assert waiting.result(60) == (0, True)
    assert database.rows("select deliveries, attempt from redrive.jobs") == [(1, 1)]


def test_a_job_is_judged_by_its_own_losses(database: Database) -> None:
    """Not by another one's, nor by a failure that was no loss."""
    one, two = make_lost(database, 2)
    worker = make_worker(database.conn)
    said = "update redrive.failures set detail = %s where job = %s"
    database.rows(said, '{"ran_at_most": 70}', one)
    database.rows(said, '{"ran_at_most": 1000}', two)
    database.rows(
        "insert into redrive.failures (job, deliveries, attempt, error_class, message, category,"
        " fingerprint, detail) values (%s, 2, 1, '', '', 'transient', '', %s)",
        one,
        '{"ran_at_most": 1000}',
    )
    progress = json.dumps({"slots": 1, "running": {str(one): 80}, "waiting": []})
    store.beat(database.conn, {worker: 1}, {worker: progress})

    losses = "select losses from redrive.judge_loss_v1(%s, array[%s])"
    assert database.value(losses, worker, one) == 0, (
        "it outlasted them: one more, the others gone"
    )
    assert store.run_alone(database.conn, worker, one) == 70


def test_the_ttl_of_a_lost_worker_holds_up_no_clock(database: Database) -> None:
    for name, ttl in (("lost", 4), ("alive", 40)):
        make_worker(database.conn, name, ttl=ttl)
    database.rows("update redrive.workers set lost_at = now() where name = 'lost'")
    database.rows("update redrive.contact set at = at - interval '1 h'")

    ran = "select extract(epoch from redrive.contact_now_v1() - elapsed)::int from redrive.contact"
    assert database.value(ran) == 10


def test_a_worker_goes_on_with_what_it_knows_beside_another(database: Database) -> None:
    conn = database.conn
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    make_jobs(conn, 3)
    (known, unknown), (other,) = claim(conn, workers[0], 2), claim(conn, workers[1])
    store.retire(conn, workers[0], [known.id])

    assert holders(conn) == {known.id: workers[0], other.id: workers[1]}
    assert claim_one(conn, workers[1]).id == unknown.id
