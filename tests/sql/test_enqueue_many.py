"""enqueue_many_v1 adds all jobs in one statement, and does what enqueue does one by one."""

import json
import random
import sys
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import IsolationLevel

from redrive.batches import open_batch
from redrive.enqueue import enqueue_many, enqueue_reporting
from redrive.errors import InvalidJob
from redrive.rules.payloads.job_fields import JobFields
from tests.factories import (
    claim,
    claim_one,
    complete,
    complete_next,
    let_die,
    let_next_die,
    make_dead_letter,
    make_job,
    make_worker,
)
from tests.postgres import Connection, Database

KIND = "invoice.charge"
MODULE = enqueue_many.__module__  # its name is also that of a function


def before(database: Database) -> int:
    """Keys that live, are dead and have succeeded, fair tenants. Returns a batch."""
    conn = database.conn
    worker = make_worker(conn)
    for key in ("succeeded-0", "succeeded-1"):
        make_job(conn, idempotency_key=key)
    make_job(conn, payload={"n": 0}, unique_for=3600)
    complete(conn, worker, *claim(conn, worker))
    database.rows(
        "update redrive.completions set enqueued_at = now() - interval '30 min'"
    )
    make_dead_letter(conn, idempotency_key="dead-0")
    for key in ("live-0", "live-1"):
        make_job(conn, idempotency_key=key)
    make_job(conn, payload={"n": 1}, unique_for=3600)
    make_job(conn, ordering_key="o1")
    database.rows("insert into redrive.queues (queue, lanes) values ('fair', 4)")
    return open_batch(conn)


def drawn(dice: random.Random, batch: int) -> dict[str, Any]:
    """One of the jobs of a call."""
    key = dice.choice([None, "new", "succeeded", "dead", "live", "unique", "unique"])
    job: dict[str, Any] = {"kind": KIND, "payload": {"n": dice.randrange(3)}}
    if key == "unique":
        job["unique_for"] = dice.choice([60, 7200])
        if dice.random() < 0.3:
            job["unique_by"] = ["n"]
        if dice.random() < 0.1:
            job["on_conflict"] = "replace"
    elif key:
        job["idempotency_key"] = f"{key}-{dice.randrange(2)}"
    options = {
        "queue": "fair",
        "tenant": f"t{dice.randrange(9)}",
        "ordering_key": f"o{dice.randrange(3)}",
        "priority": -3,
        "max_attempts": 3,
        "expires_in": 60,
        "delay": 60,
        "headers": {"a": 1},
        "batch": None if job.get("on_conflict") else batch,
    }
    return job | {name: value for name, value in options.items() if dice.random() < 0.3}


LEFT: LiteralString = """
    select jsonb_build_array(
        (select jsonb_agg(
             to_jsonb(j) - '{id,run_at,created_at,expires_at}'::text[] || jsonb_build_object(
                 'parked', j.run_at = 'infinity', 'delayed', j.run_at > now() + interval '30 s',
                 'expires', j.expires_at is not null)
             order by j.id) from redrive.jobs j),
        (select jsonb_agg(to_jsonb(t) order by t.queue, t.kind, t.event) from redrive.totals t),
        (select jsonb_agg(c.key order by c.key) from redrive.completions c),
        (select jsonb_agg(r.wanted #- '{run_at}' order by r.id) from redrive.replacements r),
        (select coalesce(sum(d.total), 0) from redrive.batch_deltas d))"""


MANY: LiteralString = "select * from redrive.enqueue_many_v1(%s) order by n"
EACH: LiteralString = "select * from redrive.enqueue_each_v1(%s, null) order by n"


def columns(jobs: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The same jobs in the other shape."""
    return {
        name: [_value(job, name) for job in jobs]
        for name in {n for job in jobs for n in job}
    }


def _value(job: dict[str, Any], name: str) -> Any:
    return (
        json.dumps(job[name]) if name == "unique_by" and name in job else job.get(name)
    )


def through(conn: Connection, function: LiteralString, jobs: Any) -> tuple[Any, Any]:
    """What one of the functions returns, its new ids by their places, and what it leaves."""
    with conn.transaction(force_rollback=True):
        found: Any = conn.execute(function, (json.dumps(jobs),)).fetchall()
        left = conn.execute(LEFT).fetchone()
    places = {job: f"new {n}" for n, job, created in found if created}
    return [(n, places.get(job, job), created) for n, job, created in found], left


def test_all_at_once_is_as_one_after_the_other(database: Database) -> None:
    """Keys that are taken, twice in a call, windows, replacements, ordering keys, batches."""
    batch = before(database)
    dice = random.Random(2)  # the same draws each time
    taken = 0
    for _ in range(60):
        jobs = [drawn(dice, batch) for _ in range(dice.choice([1, 3, 12]))]
        found = through(database.conn, EACH, jobs)
        assert found == through(database.conn, MANY, jobs), jobs
        assert found == through(database.conn, MANY, columns(jobs)), jobs
        taken += sum(not created for _, _, created in found[0])
    assert taken > 60


KEYED: Any = [{"kind": KIND, "idempotency_key": key} for key in "abc"]


def test_an_object_that_is_given_and_empty_is_one(database: Database) -> None:
    job = {"kind": "a", "payload": {}, "headers": {}, "idempotency_key": "k"}

    assert enqueue_many(database.conn, [job]) == 1
    assert database.row("select payload, headers from redrive.jobs") == ({}, {})


@pytest.mark.parametrize(
    ("ending", "created"), [("live", 2), ("succeeded", 2), ("dead", 3), ("rollback", 3)]
)
def test_it_waits_for_whoever_has_a_key(
    database: Database, ending: str, created: int
) -> None:
    worker = make_worker(database.conn)
    other, many = database.session(), database.session()
    if ending in {"succeeded", "dead"}:
        held = make_job(database.conn, idempotency_key="b")
        job = claim_one(database.conn, worker)
    other.rows("begin")
    match ending:
        case "succeeded":
            complete(other.conn, worker, job)
        case "dead":
            let_die(other.conn, worker, job)
        case _:
            held = make_job(other.conn, idempotency_key="b")

    waiting = database.start_blocked(
        many,
        lambda: many.rows(
            "select id, created from redrive.enqueue_many_v1(%s) order by n",
            json.dumps(KEYED),
        ),
        by=other,
    )
    other.rows("rollback" if ending == "rollback" else "commit")
    found = waiting.result(60)

    assert [new for _, new in found] == [True, created == 3, True]
    assert (found[1][0] == held) == (created == 2)
    assert database.value("select count(*) from redrive.jobs") == (
        2 if ending == "succeeded" else 3
    )


def test_a_key_whose_job_dies_after_the_look_at_it_is_enqueued(
    database: Database,
) -> None:
    """The key of the first one is taken; while the second one waits, its holder dies."""
    worker = make_worker(database.conn)
    make_job(database.conn, idempotency_key="a")
    other, many = database.transaction(), database.session()
    make_job(other.conn, idempotency_key="b")
    waiting = many.start(lambda: enqueue_many(many.conn, KEYED))
    database.wait_until_blocked(many)
    let_next_die(database.conn, worker)
    other.rows("commit")

    assert waiting.result(60) == 2
    assert sorted(database.column("select idempotency_key from redrive.jobs")) == [
        "a",
        "b",
        "c",
    ]


def test_a_key_that_succeeded_after_the_snapshot_is_a_serialization_failure(
    database: Database,
) -> None:
    conn = database.connect()
    conn.autocommit, conn.isolation_level = False, IsolationLevel.REPEATABLE_READ
    conn.execute("select 1")
    worker = make_worker(database.conn)
    make_job(database.conn, idempotency_key="b")
    complete_next(database.conn, worker)

    with pytest.raises(psycopg.errors.SerializationFailure):
        enqueue_many(conn, KEYED)
    conn.rollback()
    assert enqueue_many(conn, KEYED) == 2


def test_a_key_is_looked_up_and_not_searched_for(database: Database) -> None:
    """By the plan of an empty table: what is read for a job does not grow with what is there."""
    conn = database.conn
    touched: LiteralString = (
        "select sum(idx_tup_fetch + seq_tup_read) from pg_stat_xact_all_tables"
        " where relname in ('jobs', 'completions')"
    )
    enqueue_many(conn, KEYED)
    reads: list[int] = []
    for n in range(2):
        many: Any = [{"kind": KIND, "idempotency_key": f"{n}-{i}"} for i in range(1000)]
        with conn.transaction():
            start = database.value(touched) or 0
            enqueue_many(conn, many)
            assert enqueue_many(conn, many) == 0
            reads.append(database.value(touched) - start)

    assert reads == [2001, 2001], (
        "once where it conflicts, once for its id, and the first again"
    )
    assert enqueue_reporting(conn, KIND, idempotency_key="0-7").outcome == "live"


def test_jobs_of_a_call_wait_behind_the_first_of_their_key_that_came(
    database: Database,
) -> None:
    make_job(database.conn, idempotency_key="taken")
    jobs = [
        {"ordering_key": "a", "idempotency_key": "taken"},
        *({"ordering_key": key} for key in ("a", "a", "b", "b", "a")),
        {"ordering_key": "b", "queue": "another"},
    ]
    enqueue_many(database.conn, [{"kind": KIND, **job} for job in jobs])

    assert database.column(
        "select run_at = 'infinity' from redrive.jobs where ordering_key is not null order by id"
    ) == [False, True, False, True, True, False]


def test_the_first_of_a_key_in_a_call_waits_behind_what_was_there(
    database: Database,
) -> None:
    """A job that lives, a dead letter that holds the key; what is dead and holds none is passed."""
    for key in ("held", "other", "dismissed", "free"):
        make_dead_letter(database.conn, ordering_key=key)
    hold: LiteralString = (
        "update redrive.dead_letters set holds_key = true, queue = %s, state = %s"
        " where ordering_key = %s"
    )
    database.rows(hold, "default", "open", "held")
    database.rows(hold, "another", "open", "other")
    database.rows(hold, "default", "dismissed", "dismissed")
    make_job(database.conn, ordering_key="lives")
    make_job(database.conn, ordering_key="beside", queue="another")
    keys = ("held", "other", "dismissed", "free", "lives", "beside")
    with database.conn.transaction():
        enqueue_many(
            database.conn,
            [{"kind": KIND, "ordering_key": key} for key in (*keys, "new")],
        )
        make_job(
            database.conn, ordering_key="new"
        )  # who enqueues it looks by himself again

    assert database.rows(
        "select ordering_key, run_at = 'infinity' from redrive.jobs where queue = 'default'"
        " order by id offset 1"
    ) == [
        *((key, key in {"held", "lives"}) for key in keys),
        ("new", False),
        ("new", True),
    ]


def test_what_a_generator_changes_after_it_gave_it_is_not_changed(
    database: Database,
) -> None:
    def jobs() -> Iterator[JobFields]:
        job: JobFields = {"kind": KIND}
        for key in "ab":
            job["idempotency_key"] = key
            yield job

    assert enqueue_many(database.conn, jobs()) == 2


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_job_that_is_refused_takes_back_those_sent_before(
    database: Database, autocommit: bool
) -> None:
    """It is looked at while the database adds the others."""
    many: list[JobFields] = [
        {"kind": KIND, "idempotency_key": str(n)}
        for n in range(sys.modules[MODULE].CHUNK)
    ]
    conn = database.connect()
    conn.autocommit = autocommit

    with pytest.raises(InvalidJob) as caught:
        enqueue_many(conn, [*many, {"kind": KIND, "idempotency_key": ""}])

    assert caught.value.path == f"jobs[{len(many)}].idempotency_key"
    assert database.value("select count(*) from redrive.jobs") == 0
    assert enqueue_many(conn, [*many, many[0]]) == len(many)
