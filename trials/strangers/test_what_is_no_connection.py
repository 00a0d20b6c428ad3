"""sqlalchemy/sqlalchemy #6746.

A program passes a pool, an engine, a cursor or an old driver by mistake. It reads what
to pass, before anything is sent, and its transaction goes on.
"""

import asyncio
import sqlite3
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
from psycopg.conninfo import make_conninfo
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import sessionmaker

from redrive import Job, enqueue, enqueue_many, open_batch, wait
from tests.postgres import Database
from trials.strangers.calls import PLAIN
from trials.strangers.test_codecs_of_asyncpg import address


def refused(conn: Any, *texts: str) -> None:
    calls = [
        lambda: enqueue(conn, "a.b"),
        lambda: enqueue_many(conn, PLAIN),
        lambda: open_batch(conn),
        lambda: wait(conn, 1, timeout=0),
        lambda: Job(id=1, kind="a.b", deadline=None).complete(conn),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        assert all(text in str(caught.value) for text in texts), caught.value


def test_a_cursor_is_refused_and_the_transaction_goes_on(database: Database) -> None:
    with psycopg.connect(database.url) as conn:
        conn.execute("create table mine (n int)")
        for cursor in (conn.cursor(), conn.cursor("named")):
            with cursor:
                refused(cursor, type(cursor).__name__, "pass its connection")
        conn.execute("insert into mine values (1)")
    assert database.value("select count(*) from mine") == 1


def test_an_older_psycopg_is_refused_and_the_transaction_goes_on(
    database: Database,
) -> None:
    with psycopg2.connect(make_conninfo(database.url)) as conn:
        cursor = conn.cursor()
        cursor.execute("create table mine (n int)")
        refused(conn, "psycopg2", "psycopg 3")
        cursor.execute("insert into mine values (1)")
    conn.close()
    assert database.value("select count(*) from mine") == 1


def test_what_opens_connections_is_refused(database: Database) -> None:
    async def pool() -> None:
        async with asyncpg.create_pool(address(database.url), min_size=1) as pool:
            refused(pool, "asyncpg.pool.Pool", "pass one of them")

    asyncio.run(pool())
    engine = create_engine("postgresql+psycopg://nowhere/x")
    refused(engine, "sqlalchemy.engine.base.Engine", "pass one of them")
    refused(
        create_async_engine("postgresql+asyncpg://nowhere/x"), "AsyncEngine", "them"
    )
    refused(sessionmaker(engine), "sessionmaker", "pass one of them")


@pytest.mark.parametrize("nothing", [None, "postgresql://x", psycopg.Connection, 3])
def test_anything_else_is_refused(nothing: Any) -> None:
    refused(nothing, type(nothing).__name__, "psycopg 3, SQLAlchemy, Django or asyncpg")


def test_a_connection_to_another_database_is_refused() -> None:
    with create_engine("sqlite://").connect() as conn:
        refused(conn, "SQLAlchemy", "sqlite", "PostgreSQL")
    with sqlite3.connect(":memory:") as plain:
        refused(plain, "sqlite3.Connection", "psycopg 3")
    plain.close()
