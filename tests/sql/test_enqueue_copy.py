"""Jobs that are added by COPY obey the rules of enqueue."""

import asyncio
import contextlib
import json
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive.enqueue import enqueue_many
from tests.factories import make_job
from tests.postgres import Database
from tests.sql.test_enqueue import (
    ATTEMPTS_RULE,
    BIG,
    DEEP,
    NAME_RULE,
    PRIORITY_RULE,
    YEARS_RULE,
    nothing_was_written,
)

COPY_RULES: list[tuple[dict[str, Any], str]] = [
    ({"kind": "1st"}, f"kind: {NAME_RULE}"),
    ({"queue": "a b"}, f"queue: {NAME_RULE}"),
    ({"payload": "[]"}, "payload: must be an object, not array"),
    ({"payload": BIG}, f"payload: {len(BIG)} bytes, at most 262144"),
    ({"payload": f'{{"a": {DEEP}}}'}, "payload: nested deeper than 64 levels"),
    ({"payload": '{"a": 1e400}'}, "payload.a: number outside the range of a double"),
    ({"run_at": "infinity"}, f"run_at: {YEARS_RULE}"),
    ({"run_at": "-infinity"}, f"run_at: {YEARS_RULE}"),
    ({"run_at": "1999-12-31 23:59:59+00"}, f"run_at: {YEARS_RULE}"),
    ({"priority": 1001}, f"priority: {PRIORITY_RULE}"),
    ({"max_attempts": 0}, f"max_attempts: {ATTEMPTS_RULE}"),
    ({"headers": "1"}, "headers: must be an object"),
    ({"headers": f'{{"a": {DEEP}}}'}, "headers: nested deeper than 64 levels"),
    ({"headers": '{"a": 1e400}'}, "headers.a: number outside the range of a double"),
]


def copy_in(
    database: Database, rows: list[dict[str, Any]], role: str = "redrive_producer"
) -> None:
    conn = database.connect(role)
    columns = ", ".join(rows[0])
    with (
        conn.cursor() as cursor,
        cursor.copy(f"copy redrive.jobs ({columns}) from stdin") as copy,
    ):  # type: ignore[arg-type]
        for row in rows:
            copy.write_row(tuple(row.values()))


@pytest.mark.parametrize(("fields", "message"), COPY_RULES)
def test_copy_obeys_the_same_rules(
    refusing: Database, fields: dict[str, Any], message: str
) -> None:
    good = {"kind": "a"} | {
        "queue": "q",
        "payload": "{}",
        "run_at": "2030-01-01",
        "priority": 0,
        "max_attempts": 1,
    }
    good |= {"headers": "{}"}
    with pytest.raises(psycopg.Error) as caught:
        copy_in(refusing, [good, good | fields])

    assert (caught.value.sqlstate, caught.value.diag.message_primary) == (
        "RD001",
        message,
    )
    assert nothing_was_written(refusing)


def test_no_size_is_hidden_by_compression(database: Database) -> None:
    """Values that come from a table are compressed, and were judged as they are stored."""
    conn = database.connect("redrive_producer")
    conn.execute("create temp table mine (headers jsonb, payload jsonb)")
    conn.execute(
        "insert into mine select jsonb_build_object('x', repeat('x', 100000)),"
        " jsonb_build_object('x', repeat('x', 2000000))"
    )
    for column, message in (
        ("headers", "headers: at most 8192 bytes"),
        ("payload", "payload: 2000009 bytes, at most 262144"),
    ):
        with pytest.raises(psycopg.Error, match=message):
            conn.execute(  # type: ignore[call-overload]
                f"insert into redrive.jobs (kind, {column}) select 'a', {column} from mine"
            )
    assert nothing_was_written(database)


@pytest.mark.parametrize("megabytes", [1, 8])
def test_what_is_too_large_is_refused_before_it_is_written(
    database: Database, megabytes: int
) -> None:
    """64 MiB were compressed, stored and logged first, and refused then."""
    big = json.dumps({"x": "".join(map(str, range(megabytes * 180_000)))})
    size = "select pg_total_relation_size('redrive.jobs')"
    make_job(database.conn)
    before = database.value(size)
    headers = {"kind": "a", "payload": "{}", "headers": big}

    for fields in ({"kind": "a", "payload": big}, headers):
        with pytest.raises(
            psycopg.Error, match=r"payload: .*at most 262144|headers: at most 8192"
        ):
            copy_in(database, [fields])
    with pytest.raises(psycopg.Error, match=r"payload: .*at most 262144"):
        database.rows("select redrive.enqueue('a', %s)", big)
    assert database.value(size) == before


def test_copied_jobs_are_counted_and_have_the_defaults(database: Database) -> None:
    copy_in(
        database,
        [{"kind": "a", "payload": "{}"}] * 3 + [{"kind": "b", "payload": "{}"}],
    )

    assert database.rows(
        "select kind, n from redrive.deltas where event = 'enqueued' order by kind"
    ) == [("a", 3), ("b", 1)]
    make_job(database.conn, "a")
    stored = database.column(
        "select to_jsonb(j) - '{id,run_at,created_at}'::text[] from redrive.jobs j where kind = 'a'"
    )
    assert all(job == stored[0] for job in stored)


@pytest.mark.parametrize(
    ("column", "value"),
    {
        "id": 1,
        "deliveries": 5,
        "attempt": 5,
        "losses": 1,
        "refunds": 1,
        "streak": 1,
        "redrives": 1,
        "lane": 3,
        "created_at": "2020-01-01",
        "expires_at": "2020-01-01",
        "failed_at": "2020-01-01",
        "fingerprint": "f",
        "tenant": "t",
        "ordering_key": "o",
        "idempotency_key": "k",
    }.items(),
)
def test_a_producer_can_copy_no_other_column(
    refusing: Database, column: str, value: Any
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        copy_in(refusing, [{"kind": "a", column: value}])

    assert nothing_was_written(refusing)


def test_the_python_copy_path_gives_the_same_rows_as_one_by_one(
    database: Database,
) -> None:
    job = {
        "kind": "a",
        "payload": {"n": [1, "é\n\t\\"]},
        "queue": "q",
        "priority": 3,
        "max_attempts": 4,
        "headers": {"a": "b"},
    }
    producer = database.connect("redrive_producer")

    assert enqueue_many(producer, [job]) == 1
    make_job(producer, **job)

    first, second = database.column(
        "select to_jsonb(j) - '{id,run_at,created_at}'::text[] from redrive.jobs j"
    )
    assert first == second
    assert first["payload"] == job["payload"]


@pytest.mark.parametrize("more", [{}, {"tenant": "t"}])
def test_many_large_payloads_go_by_no_file(
    database: Database, more: dict[str, str]
) -> None:
    """6.4 MB: the rows of one statement that do not fit `work_mem` are written to a file."""
    jobs: list[Any] = [{"kind": "a", "payload": {"s": "x" * 64_000}, **more}] * 100
    assert enqueue_many(database.conn, jobs) == 100
    database.rows("select pg_stat_force_next_flush()")

    assert database.row(
        "select temp_files, (select count(*) from redrive.jobs) from pg_stat_database"
        " where datname = current_database()"
    ) == (0, 100)


def of_asyncpg(url: str) -> dict[str, Any]:
    """The arguments of its `connect`."""
    parts = conninfo_to_dict(url)
    return {name: parts[name] for name in ("host", "port", "user")} | {
        "database": parts["dbname"]
    }


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_async_jobs_come_all_or_none(
    database: Database, driver: str, in_transaction: bool
) -> None:
    """On an autocommit connection the part that came by COPY used to stay."""
    database.rows("drop function redrive.enqueue_many_v1")

    async def act() -> None:
        conn: Any
        if driver == "psycopg":
            conn = await psycopg.AsyncConnection.connect(database.url, autocommit=True)
            refused: type[Exception] = psycopg.errors.UndefinedFunction
        else:
            asyncpg = pytest.importorskip("asyncpg")
            conn, refused = (
                await asyncpg.connect(**of_asyncpg(database.url)),
                asyncpg.UndefinedFunctionError,
            )
        jobs: list[Any] = [{"kind": "a"}, {"kind": "a", "idempotency_key": "k"}]
        async with conn.transaction() if in_transaction else contextlib.nullcontext():
            await enqueue_many(conn, jobs[:1])
            with pytest.raises(refused):
                await enqueue_many(conn, jobs)
        await conn.close()

    asyncio.run(act())

    assert database.value("select count(*) from redrive.jobs") == 1
