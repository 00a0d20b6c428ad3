"""Our own connections: each transaction has our settings, and no session that others share."""

import os
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

from redrive.database.arrays import (
    Array,
    Bigints,
    Booleans,
    Floats,
    Instants,
    Ints,
    Smallints,
    Texts,
)
from redrive.database.connections.connect import connect
from redrive.database.connections.link import Link
from redrive.worker.round_trip import EPOCH
from tests.postgres import Database

pytestmark = pytest.mark.every_version

TIMEOUT = "select current_setting('statement_timeout')"


def test_each_transaction_of_a_pipeline_has_our_settings(database: Database) -> None:
    """A claim that came after settlements had no timeout: who gave it up left it holding a lane."""
    with closing(connect(database.url)) as conn:
        with conn.pipeline() as pipeline:
            first = conn.execute(TIMEOUT)
            pipeline.sync()
            conn.begin()
            second = conn.execute(TIMEOUT)

        assert [first.fetchone(), second.fetchone()] == [("12s",), ("12s",)]
        assert conn.pgconn.exec_(TIMEOUT.encode()).get_value(0, 0) == b"0"


def test_a_session_of_our_own_has_our_settings_and_none_of_who_borrows_it(
    database: Database,
) -> None:
    link = Link(database.url, "worker", statement_timeout="9s")
    with link.use() as conn, closing(conn):
        assert conn.has_settings
        conn.settings = "select set_config('statement_timeout', '4s', true)"
        assert not conn.has_settings
        assert conn.execute(TIMEOUT).fetchone() == ("4s",)
        assert conn.pgconn.exec_(TIMEOUT.encode()).get_value(0, 0) == b"9s"


def test_what_asks_for_it_is_prepared_in_a_session_of_our_own_alone(
    database: Database,
) -> None:
    prepared = "select statement from pg_prepared_statements"
    link = Link(database.url, "worker")
    with link.use() as own, closing(own), closing(connect(database.url)) as shared:
        for conn in (own, shared):
            for _ in range(8):
                conn.execute("select 1")
            conn.execute("select 2", prepare=True)

        assert own.execute(prepared).fetchall() == [("select 2",)]
        assert shared.execute(prepared).fetchall() == []


@pytest.mark.parametrize(
    ("type_name", "array", "values"),
    [
        ("smallint", Smallints, [-1, 2**15 - 1]),
        ("int", Ints, [-1, 2**31 - 1]),
        ("bigint", Bigints, [-1, 2**63 - 1]),
        ("float8", Floats, [-0.1, 1e300]),
        ("boolean", Booleans, [True, False]),
        ("text", Texts, ["é", None, ""]),
        (
            "timestamptz",
            Instants,
            [
                EPOCH,
                datetime(2026, 11, 23, 12, 0, 0, 1, UTC),
                datetime.max.replace(tzinfo=UTC),
            ],
        ),
    ],
)
def test_the_server_reads_an_array_as_it_was_packed(
    database: Database, type_name: str, array: type[Array[Any]], values: list[Any]
) -> None:
    cast = sql.SQL("select %s::{}[]").format(sql.SQL(type_name))  # type: ignore[arg-type]
    for given in (values, [], values * 1000):
        assert database.conn.execute(cast, (array(given),)).fetchall() == [(given,)]


@pytest.mark.parametrize(
    ("chosen", "ours"), [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")]
)
def test_only_a_promise_that_is_too_weak_is_made_stronger(
    database: Database, chosen: str, ours: str
) -> None:
    """We made `on` of an operator's `remote_apply`."""
    database.conn.execute(
        sql.SQL("alter database {} set synchronous_commit = {}").format(
            sql.Identifier(database.conn.info.dbname), sql.Literal(chosen)
        )
    )
    with closing(connect(database.url)) as conn:
        assert conn.execute("show synchronous_commit").fetchall() == [(ours,)]
    with closing(connect(database.url, synchronous_commit="off")) as conn:
        assert conn.execute("show synchronous_commit").fetchall() == [("off",)]


def test_a_connection_whose_socket_fails_under_a_statement_is_closed(
    database: Database,
) -> None:
    """It stayed open, and said of each statement that another was in progress."""

    def lose() -> None:
        reader, writer = os.pipe()
        os.close(reader)  # nothing to read from the other one: only an error
        os.dup2(writer, conn.fileno())
        os.close(writer)

    with closing(connect(database.url)) as conn:
        conn.meanwhile = lose
        with pytest.raises(psycopg.OperationalError, match="socket"):
            psycopg.Cursor(conn).execute("select pg_sleep(0.2)")
        assert conn.closed


def test_a_wait_that_is_over_and_a_pipeline_that_fails_leave_the_connection_open(
    database: Database,
) -> None:
    with closing(connect(database.url)) as conn:
        assert list(conn.notifies(timeout=0)) == []
        with pytest.raises(psycopg.errors.DivisionByZero), conn.pipeline():
            [conn.execute("select 1 / 0"), conn.execute("select")]
        assert conn.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
def test_an_instant_is_read_in_utc_whatever_the_zone_of_the_session(
    database: Database, zone: str
) -> None:
    """The zones had offsets with seconds in 1850, and two of them have half hours today."""
    expected = [
        datetime(2026, 3, 4, 5, 6, 7, part, UTC)
        for part in (0, 500_000, 120_000, 1, 999_999)
    ]
    expected += [datetime(1850, 6, 1, 12, tzinfo=UTC), datetime(1, 1, 2, tzinfo=UTC)]
    with closing(connect(database.url)) as conn, conn.transaction():
        conn.execute("select set_config('timezone', %s, true)", (zone,))
        found = conn.execute("select unnest(%s::timestamptz[])", (expected,)).fetchall()

    assert [at for (at,) in found] == expected
    assert {at.tzinfo for (at,) in found} == {UTC}
