"""enqueue_v1, enqueue and enqueue_many_v1; and COPY, which must obey the same rules."""

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from redrive.database.schema.migrate import functions
from redrive.enqueue import COPIED, enqueue_many, enqueue_reporting
from redrive.enqueue import ENQUEUE as FROM_PYTHON
from redrive.errors import InvalidJob
from redrive.rules.payloads.job_fields import PARAMETERS, FieldType
from tests.factories import (
    claim_one,
    complete,
    complete_next,
    let_die,
    make_dead_letter,
    make_job,
    make_worker,
    totals,
)
from tests.postgres import Database

NAME_RULE = "must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$"
KEY_RULE = "must have 1 to 255 characters"
YEARS_RULE = "must lie between the years 2000 and 9999"
PRIORITY_RULE = "must lie between -1000 and 1000"
ATTEMPTS_RULE = "must lie between 1 and 100000"

DEEP = "[" * 64 + "]" * 64  # 65 levels with the object around it
BIG = json.dumps({"text": "x" * 262_144})

REFUSED: list[tuple[str, Any, str]] = [
    *(
        (field, name, f"{field}: {NAME_RULE}")
        for field in ("kind", "queue")
        for name in ("", "1st", "a b", "a\nb", "a;drop", "é", "a" * 64, "a\n", None)
    ),
    ("payload", None, "payload: must be an object, not null"),
    ("payload", "null", "payload: must be an object, not null"),
    ("payload", "[]", "payload: must be an object, not array"),
    ("payload", '"text"', "payload: must be an object, not string"),
    ("payload", "1", "payload: must be an object, not number"),
    ("payload", "true", "payload: must be an object, not boolean"),
    ("payload", BIG, f"payload: {len(BIG)} bytes, at most 262144"),
    ("payload", f'{{"a": {DEEP}}}', "payload: nested deeper than 64 levels"),
    (
        "payload",
        '{"a": [1, {"b": 1e400}]}',
        "payload.a[1].b: number outside the range of a double",
    ),
    ("payload", '{"a": -1e400}', "payload.a: number outside the range of a double"),
    ("run_at", "infinity", f"run_at: {YEARS_RULE}"),
    ("run_at", "-infinity", f"run_at: {YEARS_RULE}"),
    ("run_at", "1999-12-31 23:59:59+00", f"run_at: {YEARS_RULE}"),
    ("run_at", "20000-01-01 00:00:00+00", f"run_at: {YEARS_RULE}"),
    ("priority", 1001, f"priority: {PRIORITY_RULE}"),
    ("priority", -1001, f"priority: {PRIORITY_RULE}"),
    ("priority", 2**31 - 1, f"priority: {PRIORITY_RULE}"),
    ("priority", None, f"priority: {PRIORITY_RULE}"),
    ("max_attempts", 0, f"max_attempts: {ATTEMPTS_RULE}"),
    ("max_attempts", 100_001, f"max_attempts: {ATTEMPTS_RULE}"),
    *(
        (field, key, f"{field}: {KEY_RULE}")
        for field in ("idempotency_key", "ordering_key", "tenant")
        for key in ("", "k" * 256, "k" * 100_000)
    ),
    ("expires_in", "0", "expires_in: must lie between 1 ms and 100 years"),
    ("expires_in", "-1 second", "expires_in: must lie between 1 ms and 100 years"),
    ("expires_in", "101 years", "expires_in: must lie between 1 ms and 100 years"),
    ("idempotency_key", "$unique:0", "idempotency_key: must not begin with $unique:"),
    ("delay", "-1 s", "delay: must lie between 0 and 100 years"),
    ("delay", "170000000 years", "delay: must lie between 0 and 100 years"),
    ("unique_for", "0", "unique_for: must lie between 1 ms and 100 years"),
    ("unique_by", ["a"], "unique_by: needs unique_for, how long the job is unique"),
    (
        "on_conflict",
        "skip",
        "on_conflict: needs unique_for, how long the job is unique",
    ),
    ("batch", 2**60, "batch: no batch with this id accepts jobs any more"),
    ("headers", None, "headers: must be an object"),
    ("headers", "[]", "headers: must be an object"),
    ("headers", f'{{"a": {DEEP}}}', "headers: nested deeper than 64 levels"),
    (
        "headers",
        '{"a": [1, {"b": 1e8000}]}',
        "headers.a[1].b: number outside the range of a double",
    ),
    (
        "headers",
        json.dumps({str(n): "x" * 50 + str(n * n) for n in range(500)}),
        "headers: at most 8192 bytes",
    ),
]

SQL_TYPES: dict[FieldType, str] = {
    "text": "text",
    "integer": "integer",
    "number": "bigint",
    "names": "text[]",
    "instant": "timestamp with time zone",
    "duration": "interval",
    "object": "jsonb",
}
ARGUMENTS = [
    f"{name} => %({name})s::{SQL_TYPES[field.type]}"
    for name, field in PARAMETERS.items()
]
ENQUEUE: Any = f"select redrive.enqueue({', '.join(ARGUMENTS)})"
DEFAULTS: dict[str, Any] = {
    name: field.default for name, field in PARAMETERS.items()
} | {"kind": "invoice.charge"}


# The one list of a job's fields, rules/payloads/job_fields.py, and what SQL knows


def function_of(statement: str) -> str:
    """The versioned function that one of our statements calls."""
    found = re.search(r"redrive\.(\w+_v\d+)\(", statement)
    assert found
    return found[1]


@pytest.mark.parametrize("function", ["enqueue", function_of(FROM_PYTHON)])
def test_the_parameters_of_sql_are_the_fields_of_a_job(
    database: Database, function: str
) -> None:
    """In their order: Python calls by position."""
    parameters = database.rows(
        "select p.name, p.type::regtype::text"
        " from pg_proc f, unnest(f.proargnames[:f.pronargs], f.proargtypes::oid[]) p(name, type)"
        " where f.pronamespace = 'redrive'::regnamespace and f.proname = %s",
        function,
    )

    assert parameters == [
        (name, SQL_TYPES[field.type]) for name, field in PARAMETERS.items()
    ]


def test_enqueue_many_reads_the_fields_of_a_job_in_both_shapes() -> None:
    records = re.findall(
        r" as c?\(\s+(kind text.*?)\)", functions()["given_jobs"], re.DOTALL
    )

    for record in records:
        assert [column.split()[0] for column in record.split(",")] == list(PARAMETERS)
    assert len(records) == 2


def test_copy_may_bring_the_fields_that_say_so(database: Database) -> None:
    columns = database.column(
        "select attname from pg_attribute where attrelid = 'redrive.jobs'::regclass and attnum > 0"
        " and has_column_privilege('redrive_producer', attrelid, attnum, 'insert')"
    )

    # run_at is for those who write COPY themselves; ours leaves it to the database's clock
    assert set(columns) == {*COPIED, "run_at"}


def nothing_was_written(database: Database) -> bool:
    return not database.value(
        "select exists (select from redrive.jobs) or exists (select from redrive.deltas)"
    )


def test_a_job_gets_its_defaults(database: Database) -> None:
    job_id = database.value("select redrive.enqueue('invoice.charge')")

    expected = {
        "id": job_id,
        "deliveries": 0,
        "attempt": 0,
        "losses": 0,
        "refunds": None,
        "streak": 0,
        "max_attempts": None,
        "redrives": 0,
        "priority": 0,
        "lane": 0,
        "expires_at": None,
        "failed_at": None,
        "queue": "default",
        "kind": "invoice.charge",
        "fingerprint": None,
        "tenant": None,
        "ordering_key": None,
        "idempotency_key": None,
        "headers": {},
        "payload": {},
        "noted": False,
        "batch": None,
        "limits": None,
    }
    stored = database.value(
        "select to_jsonb(j) - '{run_at,created_at}'::text[] from redrive.jobs j"
    )
    assert stored == expected
    assert database.value(
        "select run_at <= clock_timestamp() and created_at <= clock_timestamp() from redrive.jobs"
    )
    assert database.rows(
        "select queue, kind, event, reason, n from redrive.deltas"
    ) == [("default", "invoice.charge", "enqueued", "", 1)]


def test_every_parameter_is_stored(database: Database) -> None:
    job_id = database.value(
        "select redrive.enqueue('a.b', '{\"n\": 1}', 'mails', '2999-01-01 00:00:00+00', -5, 7,"
        " 'ik', 'ok', 'acme', '1 hour', '{\"traceparent\": \"00-1\"}')"
    )

    assert database.rows(
        "select id, kind, payload, queue, run_at = '2999-01-01 00:00:00+00', priority,"
        " max_attempts, idempotency_key, ordering_key, tenant,"
        " expires_at - created_at between '00:59:59' and '01:00:01', headers from redrive.jobs"
    ) == [
        (
            job_id,
            "a.b",
            {"n": 1},
            "mails",
            True,
            -5,
            7,
            "ik",
            "ok",
            "acme",
            True,
            {"traceparent": "00-1"},
        )
    ]


def test_a_run_at_in_the_past_is_now(database: Database) -> None:
    (before,) = database.row("select clock_timestamp()")

    database.rows("select redrive.enqueue('a', run_at => '2001-01-01')")

    assert database.value("select run_at >= %s from redrive.jobs", before), (
        "in front of every floor"
    )


def test_an_enqueue_that_rolls_back_leaves_nothing(database: Database) -> None:
    session = database.transaction()
    make_job(session.conn, idempotency_key="k")
    session.rows("rollback")

    assert nothing_was_written(database)


def test_a_tenant_always_gets_the_same_lane_of_the_queue(database: Database) -> None:
    database.rows("insert into redrive.queues (queue, lanes) values ('default', 8)")
    for n in range(100):
        make_job(database.conn, tenant=f"tenant-{n % 50}")
    make_job(database.conn)

    lanes = database.rows(
        "select tenant, count(distinct lane), min(lane), max(lane)"
        " from redrive.jobs group by tenant"
    )
    assert {count for _, count, _, _ in lanes} == {1}
    assert {lane for tenant, _, lane, _ in lanes if tenant is None} == {0}
    # the first one is left to what waited before, and to those without a tenant
    assert {lane for tenant, _, lane, _ in lanes if tenant is not None} == set(
        range(1, 9)
    )


# Idempotency


def test_a_key_that_is_live_gives_the_job_that_has_it(database: Database) -> None:
    first = make_job(database.conn, idempotency_key="k", payload={"n": 1})
    again = enqueue_reporting(
        database.conn, "invoice.charge", {"n": 2}, idempotency_key="k"
    )

    assert (again.id, again.created, again.outcome) == (first, False, "live")
    assert database.rows("select payload from redrive.jobs") == [({"n": 1},)]
    assert totals(database.conn) == {"enqueued": 1}


def test_a_key_belongs_to_its_kind(database: Database) -> None:
    first = make_job(database.conn, "a", idempotency_key="k")
    second = enqueue_reporting(database.conn, "b", idempotency_key="k")

    assert second.created
    assert second.id != first


def test_a_key_that_has_succeeded_creates_nothing(database: Database) -> None:
    first = make_job(database.conn, idempotency_key="k")
    worker = make_worker(database.conn)
    complete_next(database.conn, worker)

    again = enqueue_reporting(database.conn, "invoice.charge", idempotency_key="k")

    assert (again.id, again.created, again.outcome) == (first, False, "succeeded")
    assert database.value("select count(*) from redrive.jobs") == 0
    assert totals(database.conn)["enqueued"] == 1


def test_a_key_whose_job_is_dead_may_be_enqueued_again(database: Database) -> None:
    dead = make_dead_letter(database.conn, idempotency_key="k")
    again = enqueue_reporting(database.conn, "invoice.charge", idempotency_key="k")

    assert again.created
    assert again.id != dead


@pytest.mark.parametrize(
    ("ending", "outcome"), [("commit", "live"), ("rollback", "enqueued")]
)
def test_the_second_of_two_sessions_with_one_key_waits_for_the_first(
    database: Database, ending: str, outcome: str
) -> None:
    first, second = database.transaction(), database.session()
    held = make_job(first.conn, idempotency_key="k")

    waiting = database.start_blocked(
        second,
        lambda: enqueue_reporting(second.conn, "invoice.charge", idempotency_key="k"),
        by=first,
    )
    first.conn.execute(ending)
    found = waiting.result(60)

    assert found.outcome == outcome
    assert found.created == (outcome == "enqueued")
    assert (found.id == held) == (outcome == "live")
    assert database.column("select id from redrive.jobs") == [found.id]
    assert totals(database.conn) == {"enqueued": 1}


def test_a_key_that_succeeds_while_an_enqueue_waits_for_it_does_not_run_again(
    database: Database,
) -> None:
    """The insert waits for the completion, finds the key free, and must look for what the
    completion wrote.
    """
    job_id = make_job(database.conn, idempotency_key="k")
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    settling, enqueuing = database.transaction(), database.session()
    complete(settling.conn, worker, job)

    waiting = database.start_blocked(
        enqueuing,
        lambda: enqueue_reporting(
            enqueuing.conn, "invoice.charge", idempotency_key="k"
        ),
        by=settling,
    )
    settling.rows("commit")
    found = waiting.result(60)

    assert (found.id, found.created, found.outcome) == (job_id, False, "succeeded")
    assert database.value("select count(*) from redrive.jobs") == 0
    assert totals(database.conn) == {"enqueued": 1, "claimed": 1, "completed": 1}


def test_a_key_whose_job_dies_while_an_enqueue_waits_for_it_is_enqueued(
    database: Database,
) -> None:
    make_job(database.conn, idempotency_key="k")
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    settling, enqueuing = database.transaction(), database.session()
    let_die(settling.conn, worker, job)

    waiting = enqueuing.start(
        lambda: enqueue_reporting(enqueuing.conn, "invoice.charge", idempotency_key="k")
    )
    database.wait_until_blocked(enqueuing)
    settling.rows("commit")

    assert waiting.result(60).outcome == "enqueued"
    assert totals(database.conn) == {"enqueued": 2, "claimed": 1, "dead": 1}


def test_eight_sessions_with_one_key_create_one_job(database: Database) -> None:
    sessions = [database.session() for _ in range(8)]
    done = [
        s.start(lambda s=s: enqueue_reporting(s.conn, "a", idempotency_key="k"))
        for s in sessions
    ]
    found = [d.result(60) for d in done]

    assert sum(f.created for f in found) == 1
    assert {f.id for f in found} == set(database.column("select id from redrive.jobs"))
    assert totals(database.conn) == {"enqueued": 1}


# What a job cannot hold


@pytest.mark.parametrize(("field", "value", "message"), REFUSED)
def test_what_a_job_cannot_hold_is_refused_by_field_and_rule(
    refusing: Database, field: str, value: Any, message: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.conn.execute(ENQUEUE, DEFAULTS | {field: value})

    assert (caught.value.sqlstate, caught.value.diag.message_primary) == (
        "RD001",
        message,
    )
    assert nothing_was_written(refusing)


def test_the_refusal_never_repeats_the_value(refusing: Database) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.conn.execute(
            ENQUEUE, DEFAULTS | {"kind": "SECRET!", "payload": '{"password": "SECRET"}'}
        )

    said = caught.value.diag
    assert (
        "SECRET"
        not in f"{said.message_primary}{said.message_detail}{said.message_hint}"
    )


@pytest.mark.parametrize(
    ("payload", "sqlstate"),
    [
        ('{"a": "\\u0000"}', "22P05"),
        ('{"\\u0000": 1}', "22P05"),
        ('{"a": "\\ud800"}', "22P02"),
        ('{"a": NaN}', "22P02"),
    ],
    ids=["NUL", "NUL in a key", "lone surrogate", "NaN"],
)
def test_what_jsonb_cannot_hold_is_refused_by_postgres(
    refusing: Database, payload: str, sqlstate: str
) -> None:
    with pytest.raises(psycopg.DataError) as caught:
        refusing.conn.execute(ENQUEUE, DEFAULTS | {"payload": payload})

    assert caught.value.sqlstate == sqlstate
    assert nothing_was_written(refusing)


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"a": ["x", "\0"]}, "payload.a[1]"),
        ({"a\0": 1}, "payload.(key)"),
        ({"a": "\ud800"}, "payload.a"),
        ({"a": float("nan")}, "payload.a"),
        ({"a": 10**400}, "payload.a"),
    ],
)
def test_python_refuses_the_same_before_anything_is_sent(
    refusing: Database, payload: Any, path: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        make_job(refusing.conn, payload=payload)

    assert caught.value.path == path


@pytest.mark.parametrize(
    "payload",
    [
        f'{{"a": {DEEP[1:-1]}}}',
        json.dumps({"text": "x" * (262_144 - 12)}),
        '{"a": 1.7976931348623157e308}',
        '{"a": "' + "\\u00e9" * 200 + '"}',
        '{"n": ' + "9" * 308 + "}",
    ],
    ids=["64 levels", "262144 bytes", "the largest double", "not ASCII", "308 digits"],
)
def test_what_lies_just_inside_the_limits_is_taken(
    database: Database, payload: str
) -> None:
    database.conn.execute(ENQUEUE, DEFAULTS | {"payload": payload})

    assert database.value("select payload = %s::jsonb from redrive.jobs", payload)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "a" * 63),
        ("kind", "a0_.-"),
        ("priority", -1000),
        ("priority", 1000),
        ("max_attempts", 100_000),
        ("idempotency_key", "é" * 255),
        ("ordering_key", "k" * 255),
        ("tenant", "t" * 255),
        ("run_at", "9999-12-31 00:00:00+00"),
        ("expires_in", "1 ms"),
        ("expires_in", "100 years"),
    ],
)
def test_limits_are_inclusive(database: Database, field: str, value: Any) -> None:
    database.conn.execute(ENQUEUE, DEFAULTS | {field: value})

    assert database.value("select count(*) from redrive.jobs") == 1


# Many at once


def test_many_jobs_are_added_in_order_with_their_ids(database: Database) -> None:
    jobs = [{"kind": "a", "payload": {"n": n}, "expires_in": 60} for n in range(5)]
    rows = database.rows(
        "select n, id, created from redrive.enqueue_many_v1(%s)", json.dumps(jobs)
    )

    assert [n for n, _, _ in rows] == [0, 1, 2, 3, 4]
    assert all(created for _, _, created in rows)
    assert database.rows("select id, payload from redrive.jobs order by id") == [
        (job_id, {"n": n}) for n, job_id, _ in rows
    ]
    assert database.value(
        "select bool_and(expires_at - created_at between '59 s' and '61 s') from redrive.jobs"
    )


def test_many_jobs_have_the_defaults_of_one(database: Database) -> None:
    database.rows(
        "select redrive.enqueue('a'), n from redrive.enqueue_many_v1('[{\"kind\": \"a\"}]')"
    )
    stored = database.column(
        "select to_jsonb(j) - '{id,run_at,created_at}'::text[] from redrive.jobs j"
    )

    assert len(stored) == 2
    assert stored[0] == stored[1]


def test_one_bad_job_of_many_refuses_all(refusing: Database) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.rows(
            'select redrive.enqueue_many_v1(\'[{"kind": "a"}, {"kind": "1"}]\')'
        )

    assert caught.value.diag.message_primary == f"kind: {NAME_RULE}"
    assert nothing_was_written(refusing)


def test_a_key_twice_in_one_call_is_one_job(database: Database) -> None:
    jobs = [
        {"kind": "a", "idempotency_key": "k"},
        {"kind": "a", "idempotency_key": "k"},
    ]

    assert enqueue_many(database.conn, jobs) == 1
    assert database.value("select count(*) from redrive.jobs") == 1


@pytest.mark.parametrize("state", ["autocommit", "idle", "in transaction"])
@pytest.mark.parametrize(
    "bad", [{"kind": "1"}, {"kind": "a", "payload": {"n": 10**400}}, None]
)
def test_many_are_added_whole_or_not_at_all_and_the_transaction_goes_on(
    database: Database, state: str, bad: dict[str, Any] | None
) -> None:
    def jobs() -> Iterator[dict[str, Any]]:
        yield from ({"kind": "a", "payload": {"n": n}} for n in range(5_000))
        yield {"kind": "a", "idempotency_key": "k"}
        if bad is None:
            raise LookupError("no more to read")
        yield bad

    producer = database.connect()
    producer.autocommit = state == "autocommit"
    if state == "in transaction":
        make_job(producer, "before")

    with pytest.raises((InvalidJob, LookupError)):
        enqueue_many(producer, jobs())
    assert enqueue_many(producer, [{"kind": "after"}]) == 1
    assert database.value("select count(*) from redrive.jobs") == (
        1 if state == "autocommit" else 0
    )
    producer.commit()

    kinds = ["after", "before"] if state == "in transaction" else ["after"]
    assert sorted(database.column("select kind from redrive.jobs")) == kinds


# Waking workers


def test_an_enqueue_wakes_a_listener_when_it_commits(database: Database) -> None:
    listener, producer = database.connect(), database.connect()
    listener.execute("listen redrive")
    with producer.transaction():
        make_job(producer)
        assert list(listener.notifies(timeout=0)) == []

    assert [n.channel for n in listener.notifies(timeout=60, stop_after=1)] == [
        "redrive"
    ]


TICK = "select floor(extract(epoch from clock_timestamp()) * 50)::bigint"


def heard(listener: Any) -> list[int]:
    """The slots of each notification that has come."""
    listener.execute("select 1")
    return [int(n.payload) for n in listener.notifies(timeout=0)]


def test_however_many_sessions_enqueue_a_queue_is_told_of_once_in_20_ms(
    database: Database,
) -> None:
    """What is shared is no setting of a session, which behind a pooler is everybody's."""
    listener, *producers = (database.connect() for _ in range(4))
    listener.execute("listen redrive")
    first = database.value(TICK)
    for producer in producers * 20:
        make_job(producer)
    ticks = database.value(TICK) - first + 1

    assert 1 <= len(heard(listener)) <= ticks


def test_a_bulk_load_in_one_transaction_is_told_of_once_and_silences_nobody(
    database: Database,
) -> None:
    loading = database.session()
    slot, since = database.value("select redrive.wake_slot_v1('default')"), 0
    with loading.conn.transaction():
        make_job(loading.conn)
        since = database.value(TICK)
        while database.value(TICK) == since:
            pass
        before = database.value("select last_value from redrive.notified")
        make_job(loading.conn)
        assert database.value("select last_value from redrive.notified") == before
    assert before & slot


def test_only_the_workers_of_a_queue_are_told_of_it(database: Database) -> None:
    """The payload has a bit for each queue that jobs came to."""
    listener = database.connect()
    listener.execute("listen redrive")
    slots = dict(
        database.rows(
            "select q, redrive.wake_slot_v1(q) from unnest('{a,b,c,d}'::text[]) as q"
        )
    )
    enqueue_many(database.conn, [{"kind": "x", "queue": queue} for queue in slots])
    assert len(set(slots.values())) > 1
    assert heard(listener) == [sum(set(slots.values()))]


def test_a_transaction_to_be_prepared_can_enqueue(preparing: Database) -> None:
    """Postgres refuses PREPARE TRANSACTION after NOTIFY."""
    session = preparing.transaction("set local redrive.notify = off")
    job = make_job(session.conn)
    session.rows("prepare transaction 'both'")
    assert preparing.value("select count(*) from redrive.jobs") == 0
    session.rows("commit prepared 'both'")
    assert preparing.column("select id from redrive.jobs") == [job]


def test_without_the_setting_a_transaction_is_never_prepared(
    preparing: Database,
) -> None:
    """It was, if somebody had notified within the same 20 ms."""
    session = preparing.session()
    for _ in range(20):
        session.rows("begin")
        make_job(session.conn)
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            session.rows("prepare transaction 'both'")
        session.rows("rollback")
