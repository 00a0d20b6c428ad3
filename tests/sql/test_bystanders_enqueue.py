"""What is enqueued is judged by itself and changes no neighbour: see bystanders."""

import json
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from tests.factories import (
    claim,
    claim_one,
    complete,
    let_die,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    redrive,
)
from tests.postgres import Database, Session
from tests.sql.bystanders import touched

MANY = "select id, created from redrive.enqueue_many_v1(%s) order by n"
SALT = "2.{}.salt"
ONE_KEY: dict[str, Any] = {"kind": "a", "idempotency_key": "k"}
UNIQUE: dict[str, Any] = {"kind": "a", "unique_for": 3600}


def enqueue(session: Session, how: str, **job: Any) -> tuple[int, bool]:
    """Enqueue a job by itself or as one of two. Returns its id and whether it was created."""
    jobs = [job] if how == "enqueue" else [job, {"kind": "beside"}]
    call = "enqueue_each_v1(%s, null)" if how == "enqueue" else "enqueue_many_v1(%s)"
    query: Any = f"select n, id, created from redrive.{call} order by n"
    rows = session.rows(query, json.dumps(jobs))
    assert [n for n, *_ in rows] == list(range(len(jobs)))
    return rows[0][1], rows[0][2]


HOW = ["enqueue", "enqueue_many"]
ways = pytest.mark.parametrize("how", HOW)


# Of an insert


def test_each_job_of_a_statement_is_judged_by_what_it_has(database: Database) -> None:
    """A name, an encrypted payload and a batch: what is redriven had its own before, and what has
    none needs none.
    """
    batch = database.value("select redrive.open_batch_v1(null, null)")
    sealed = json.dumps(
        {
            "$redrive": SALT.format(
                database.value("select extract(epoch from now())::int")
            )
        }
    )
    insert = (
        "insert into redrive.jobs (kind, redrives, headers, batch) values"
        " ('new', 0, %(sealed)s, %(batch)s), ('old', 1, %(sealed)s, null), ('new', 0, '{}', null),"
        " ('new', 0, '{}', null)"
    )
    database.rows("delete from redrive.batch_deltas")
    database.conn.execute(insert, {"sealed": sealed, "batch": batch})

    assert database.column("select kind from redrive.names") == ["new"]
    assert database.rows("select batch, total from redrive.batch_deltas") == [
        (batch, 1)
    ]
    assert database.rows(
        "select kind, n from redrive.deltas where event = 'enqueued'"
    ) == [("new", 3)]


def test_what_no_function_has_judged_is_judged_when_it_is_there(
    database: Database,
) -> None:
    """Each beside one that is as it must be."""
    for column, value in (
        ("expires_at", "1999-01-01"),
        ("expires_at", "infinity"),
        ("idempotency_key", ""),
        ("ordering_key", ""),
        ("tenant", ""),
        ("headers", json.dumps({"a": "x" * 8192})),
    ):
        insert = f"insert into redrive.jobs (kind, {column}) values ('a', default), ('a', %s)"
        field = column.replace("expires_at", "expires_in")
        with pytest.raises(psycopg.Error, match=f"^{field}: "):
            database.rows(insert, value)  # type: ignore[arg-type]


def test_a_key_that_no_index_takes_is_refused_by_its_name(database: Database) -> None:
    key = database.value(
        "select string_agg(md5(n::text), '') from generate_series(1, 300) n"
    )
    for field, how in product(("idempotency_key", "ordering_key"), HOW):
        with pytest.raises(
            psycopg.Error, match=f"^{field}: must have 1 to 255 characters"
        ):
            enqueue(database, how, kind="a", **{field: key})


def test_what_does_not_go_together_is_refused_by_name(database: Database) -> None:
    """Also of producers who write SQL, whom no client has told."""
    given: list[tuple[str, dict[str, Any]]] = [
        ("delay", {"delay": 1, "run_at": "2100-01-01"}),
        ("delay", {"delay": -1}),
        ("unique_for", {"unique_for": 0}),
        ("unique_for", {"idempotency_key": "k", **UNIQUE}),
        ("unique_for", {"payload": {"$redrive": {}}, **UNIQUE}),
        ("unique_by", {"unique_by": ["c"]}),
        ("unique_by", {"unique_by": [], **UNIQUE}),
        ("unique_by", {"unique_by": [None], **UNIQUE}),
        ("on_conflict", {"on_conflict": "skip"}),
        ("on_conflict", {"on_conflict": "no", **UNIQUE}),
        ("on_conflict", {"on_conflict": "replace", "batch": 1, **UNIQUE}),
    ]
    for (field, job), how in product(given, HOW):
        with pytest.raises(psycopg.Error, match=f"^{field}: "):
            enqueue(database, how, **{"kind": "a"} | job)


def test_what_is_overdue_came_now_and_nothing_else_did(database: Database) -> None:
    """Not what is due later, nor what was there before."""
    make_jobs(database.conn, 1)
    database.rows("update redrive.jobs set run_at = '2000-01-02'")
    producer = database.login("redrive_producer")
    producer.rows(
        "insert into redrive.jobs (kind, run_at)"
        " values ('late', '2000-01-02'), ('later', '2100-01-01')"
    )

    assert database.rows(
        "select kind, extract(year from run_at at time zone 'UTC')::int in (2000, 2100)"
        " from redrive.jobs order by id"
    ) == [("invoice.charge", True), ("late", False), ("later", True)]


def test_who_is_told_of_a_job_was_not_told_long_ago(database: Database) -> None:
    listening = database.session()
    listening.rows("listen redrive")
    database.rows("select setval('redrive.notified', 65535)")
    make_job(database.conn)

    assert list(listening.conn.notifies(timeout=60, stop_after=1))


def test_a_name_is_known_by_its_queue_its_kind_and_its_priority(
    database: Database,
) -> None:
    """Each job is brought once. Known jobs are taken where no new job would be."""
    insert = (
        "insert into redrive.jobs (queue, kind, priority) select q, k, p from (values "
    )
    more = "('q', 'k', 0), ('r', 'k', 0), ('q', 'l', 0), ('q', 'k', 1)) v(q, k, p)"
    database.rows(insert + "('q', 'k', 0)) v(q, k, p)")
    database.rows(insert + more)

    assert database.value("select count(*) from redrive.names") == 4
    database.rows("select redrive.limit_names_v1('kinds', 1, 'ada', 'x')")
    database.rows(insert + more)
    with pytest.raises(psycopg.Error, match=r"kind: all \d+ allowed"):
        database.rows(insert + "('q', 'l', 1)) v(q, k, p)")


def test_few_new_names_are_those_of_the_transaction(database: Database) -> None:
    """However many there are already, while another one brings some."""
    database.rows(
        "insert into redrive.names select 'q', 'k' || n, 0 from generate_series(1, 21) n"
    )
    other = database.transaction()
    make_job(other.conn, "a")

    assert make_job(database.conn, "b")


# Of a key


def test_a_tenant_has_a_lane_where_its_own_queue_has_some(database: Database) -> None:
    for queue, lanes in (("one", 1), ("other", 8)):
        database.rows("select redrive.set_lanes_v1(%s, %s, 'ada', 'x')", queue, lanes)
    for queue, how in product(("none", "one"), HOW):
        enqueue(database, how, kind="a", queue=queue, tenant="acme")

    assert database.column("select distinct lane from redrive.jobs") == [0]


def succeeded(database: Database) -> list[tuple[str, str]]:
    return database.rows("select kind, key from redrive.completions order by job")  # type: ignore[return-value]


@ways
def test_a_key_that_has_succeeded_is_that_of_its_kind(
    database: Database, how: str
) -> None:
    """The jobs of others stay, and others have succeeded with it, or without it, before."""
    other = make_job(database.conn, "b")
    database.rows(
        "insert into redrive.completions (kind, key, job)"
        " values ('b', 'k', 1001), ('a', 'l', 1002), ('a', 'k', 1003), ('c', 'm', 1004)"
    )

    assert enqueue(database, how, **ONE_KEY) == (1003, False)
    assert enqueue(database, how, kind="c", idempotency_key="k")[1]
    assert enqueue(database, how, kind="c", idempotency_key="l")[1]
    assert other in database.column("select id from redrive.jobs")


def test_a_key_that_is_taken_is_that_of_its_kind(database: Database) -> None:
    ids = [
        make_job(database.conn, kind, idempotency_key=key)
        for kind, key in (("a", "k"), ("b", "j"), ("b", "k"), ("b", "l"), ("c", "k"))
    ]

    for how in HOW:
        assert enqueue(database, how, kind="b", idempotency_key="k") == (ids[2], False)


@ways
def test_what_a_unique_job_is_later_than_is_forgotten_alone(
    database: Database, how: str
) -> None:
    """Not what succeeded with its key in another kind, nor with another in its own; nor while
    another one has the key.
    """
    worker = make_worker(database.conn)
    enqueue(database, how, **UNIQUE)
    complete(database.conn, worker, *claim(database.conn, worker))
    database.rows("update redrive.completions set enqueued_at = now() - interval '2 h'")
    database.rows(
        "insert into redrive.completions (kind, key, job, enqueued_at)"
        " select v.kind, coalesce(v.key, c.key), 1, enqueued_at"
        " from redrive.completions c, (values ('b', null), ('a', 'l')) v(kind, key)"
    )
    before = set(succeeded(database))

    assert enqueue(database, how, **UNIQUE)[1]
    (gone,) = before - set(succeeded(database))
    assert gone[0] == "a"
    assert gone[1] != "l"
    database.rows(
        "insert into redrive.completions (kind, key, job, enqueued_at)"
        " values (%s, %s, 1, now() - interval '2 h')",
        *gone,
    )
    assert not enqueue(database, how, **UNIQUE)[1]
    assert set(succeeded(database)) == before


def test_of_many_each_is_as_it_ended(database: Database) -> None:
    """One whose key lives though it has succeeded before, too."""
    live = make_job(database.conn, "a", idempotency_key="k")
    database.rows(
        "insert into redrive.completions (kind, key, job) values ('a', 'k', 1001)"
    )
    jobs = [{"kind": "a", "idempotency_key": key} for key in "kl"]

    (first, new) = database.rows(MANY, json.dumps(jobs))
    assert first == (live, False)
    assert new[1]


@ways
def test_who_cannot_see_what_was_done_leaves_what_it_sees(
    database: Database, how: str
) -> None:
    """Under REPEATABLE READ: a key that has succeeded stays so, and whoever completes the job that
    has one waits for nobody.
    """
    worker = make_worker(database.conn)
    make_job(database.conn, **ONE_KEY)
    job = claim_one(database.conn, worker)
    database.rows(
        "insert into redrive.completions (kind, key, job) values ('a', 'done', 1001)"
    )
    producer, hasty = database.session(), database.session(lock_timeout="1ms")
    producer.conn.isolation_level = IsolationLevel.REPEATABLE_READ
    producer.conn.autocommit = False
    assert enqueue(producer, how, kind="a", idempotency_key="done") == (1001, False)
    assert enqueue(producer, how, **ONE_KEY) == (job.id, False)
    assert enqueue(producer, how, kind="a", idempotency_key="new")[1]
    assert enqueue(producer, how, kind="a")[1], "without any"
    assert complete(hasty.conn, worker, job) == {job.id}
    producer.conn.commit()

    assert succeeded(database) == [("a", "k"), ("a", "done")]


@ways
@pytest.mark.parametrize("ending", [complete, let_die])
def test_what_ends_between_two_looks_is_looked_at_again(
    database: Database, how: str, ending: Any
) -> None:
    """The key was taken when the job was inserted, and is free right after that."""
    worker = make_worker(database.conn)
    make_job(database.conn, **ONE_KEY)
    job = claim_one(database.conn, worker)
    database.rows(
        "create function public.wait() returns trigger language plpgsql as"
        " $$ begin perform pg_advisory_xact_lock(1); return null; end $$"
    )
    database.rows(
        "create trigger wait after insert on redrive.jobs for each statement"
        " execute function public.wait()"
    )
    other, producer = database.session(), database.session()
    other.rows("select pg_advisory_lock(1)")
    waiting = database.start_blocked(
        producer, lambda: enqueue(producer, how, **ONE_KEY), by=other
    )
    assert ending(database.conn, worker, job)
    other.rows("select pg_advisory_unlock(1)")

    id_, created = waiting.result(60)
    assert created is (ending is let_die)
    assert (id_ == job.id) is (ending is complete)


# Of an ordering key


def test_a_job_waits_behind_its_own_key_alone(database: Database) -> None:
    """Not behind one of another key or queue, or a younger one; nor a death that holds no key."""
    conn = database.conn
    make_job(conn, queue="b", ordering_key="k")
    make_job(conn, queue="a", ordering_key="l")
    for queue, key, changed in (
        ("b", "k", "state = 'open'"),
        ("a", "l", "state = 'open'"),
        ("a", "k", "holds_key = false"),
        ("a", "k", "state = 'dismissed'"),
        ("a", "k", "id = 10000"),
    ):
        dead = make_dead_letter(conn, queue=queue, ordering_key=key + "!")
        database.rows(
            "update redrive.dead_letters set ordering_key = %s, holds_key = true where id = %s",
            key,
            dead,
        )
        database.rows(f"update redrive.dead_letters set {changed} where id = %s", dead)  # type: ignore[arg-type]
    database.rows(
        "insert into redrive.running_keys values ('b', 'k', 1), ('a', 'l', 2)"
    )
    held = "select redrive.is_key_held_v1(%s, %s, 9000)"
    held_keys = [("b", "k"), ("a", "l"), ("a", "k"), ("b", "l")]
    assert [database.value(held, *key) for key in held_keys] == [
        True,
        True,
        False,
        False,
    ]
    insert = (
        "insert into redrive.jobs (id, kind, queue, ordering_key, redrives)"
        " values (%s, 'a', 'a', 'k', 1) returning run_at = 'infinity'"
    )

    assert [database.value(insert, id_) for id_ in (9000, 8000, 8500)] == [
        False,
        False,
        True,
    ]
    database.rows("insert into redrive.running_keys values ('a', 'k', 9000)")
    assert database.value(insert, 7000), "a younger one runs"


# Of what replaces a job that waits


def wish(session: Session, n: int, **job: Any) -> int:
    """Replace the waiting job. Returns the id of the new job."""
    options = {"unique_by": ["c"], "on_conflict": "replace", "delay": 60}
    return enqueue(
        session, "enqueue", payload={"c": 7, "n": n}, **UNIQUE | options | job
    )[0]


def numbers(database: Database) -> list[tuple[int, int]]:
    """Jobs that another could replace, and the number of each."""
    return database.rows(  # type: ignore[return-value]
        "select id, (payload ->> 'n')::int from redrive.jobs where payload ? 'n' order by id"
    )


def test_a_job_is_replaced_alone(database: Database) -> None:
    """Beside one of its lane that runs, others that wait, and lanes and jobs that somebody has."""
    conn, worker = database.conn, make_worker(database.conn)
    make_job(conn, "b", queue="q", priority=1)
    claim_one(conn, worker)
    one, two, other = (
        wish(database, 1, queue="q", priority=1, tenant=t) for t in "abc"
    )
    make_job(conn, "keyed", idempotency_key="k")
    make_job(conn, queue="r", priority=1)
    database.rows("delete from redrive.lanes")
    database.rows(
        "insert into redrive.lanes values ('r', 1, 0), ('q', 0, 0), ('q', 1, 1)"
    )
    foreign = database.transaction("select from redrive.lanes for update")
    foreign.rows("select from redrive.jobs where id = %s for update", other)
    producer = database.transaction(lock_timeout="1ms")
    assert [
        wish(producer, n, queue="q", priority=1, tenant=t)
        for n, t in ((2, "a"), (3, "b"))
    ]
    rows = touched(database, lambda: producer.rows("commit"))

    assert rows == {("jobs", one, 0), ("jobs", two, 0)}
    assert numbers(database) == [(one, 2), (two, 3), (other, 1)]
    assert database.rows(
        "select queue, priority, lane from redrive.lanes order by 1, 2, 3"
    ) == [("q", 0, 0), ("q", 1, 1), ("r", 1, 0)]


@pytest.mark.parametrize("why", ["gave up its key", "is gone"])
def test_what_waits_no_more_is_followed(database: Database, why: str) -> None:
    """It was replaced while it ran, or is cancelled by a transaction that is about to end."""
    one, kept = wish(database, 1), make_job(database.conn, "keyed", idempotency_key="k")
    producer, other = database.transaction(), database.session()
    wish(producer, 2)
    if why == "is gone":
        other.rows("begin")
        other.rows("delete from redrive.jobs where id = %s", one)
        committing = database.start_blocked(
            producer, lambda: producer.rows("commit"), by=other
        )
        other.rows("commit")
        committing.result(60)
    else:
        database.rows(
            "update redrive.jobs set idempotency_key = null where id = %s", one
        )
        producer.rows("commit")

    assert [n for id_, n in numbers(database) if id_ != one] == [2]
    assert (one, 1) in numbers(database) or why == "is gone"
    assert (
        database.value("select idempotency_key from redrive.jobs where id = %s", kept)
        == "k"
    )


def test_what_another_transaction_wants_is_left_to_it(database: Database) -> None:
    one = wish(database, 1)
    database.rows("set session_replication_role = replica")
    database.rows(
        "insert into redrive.replacements (xact, job, wanted) values ('1', %s, '{}')",
        one,
    )
    database.rows("reset session_replication_role")
    wish(database, 2)

    assert database.column("select xact::text from redrive.replacements") == ["1"]


def test_an_encrypted_payload_that_replaces_comes_in_once(database: Database) -> None:
    """And one that is not encrypted as often as somebody wants it."""
    for n in range(3):
        wish(database, n)
    salt = SALT.format(database.value("select extract(epoch from now())::int"))
    sealed = {"headers": {"$redrive": salt}}
    wish(database, 4, **sealed)
    with pytest.raises(psycopg.Error, match="was enqueued before"):
        wish(database, 5, **sealed)

    assert [n for _, n in numbers(database)] == [4]


def test_headers_that_no_job_has_replace_nothing(database: Database) -> None:
    wish(database, 1)
    for headers in ([], {"a": "\n" * 5000}):
        with pytest.raises(psycopg.Error, match=r"^headers: "):
            wish(database, 2, headers=headers)

    assert [n for _, n in numbers(database)] == [1]


def test_a_redriven_job_counts_as_no_new_one(database: Database) -> None:
    job = make_dead_letter(database.conn)
    redrive(database.conn, [job])

    assert not database.rows("select from redrive.deltas where n = 0")
