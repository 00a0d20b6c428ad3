"""MagicStack/asyncpg #783, #978.

A program teaches its connections of asyncpg to read and write JSON, as the documentation
shows, by codecs in text or in binary.
"""

import asyncio
import json
from typing import Any

import asyncpg
import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive import enqueue_many
from tests.postgres import Database
from trials.strangers.calls import PLAIN, call_all


def address(url: str) -> str:
    """Return the URL for asyncpg, which reads no other form."""
    parts = conninfo_to_dict(url)
    return f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


async def nothing(_: Any) -> None:
    """Set no codec."""


async def in_text(conn: Any) -> None:
    for name in ("json", "jsonb"):
        await conn.set_type_codec(
            name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads
        )


async def in_binary(conn: Any) -> None:
    await conn.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: b"\1" + json.dumps(value).encode(),
        decoder=lambda data: json.loads(data[1:]),
        format="binary",
    )


CODECS = pytest.mark.parametrize(
    "codecs", [nothing, in_text, in_binary], ids=lambda codecs: codecs.__name__
)


@CODECS
def test_each_call_works_with_codecs_of_the_caller(
    database: Database, codecs: Any
) -> None:
    async def calls() -> None:
        conn = await asyncpg.connect(address(database.url))
        await codecs(conn)
        await call_all(
            conn,
            database.url,
            lambda: conn.execute("begin"),
            lambda: conn.execute("commit"),
        )
        await conn.close()

    asyncio.run(calls())


@CODECS
def test_each_call_works_on_connections_of_a_pool(
    database: Database, codecs: Any
) -> None:
    async def calls() -> None:
        async with (
            asyncpg.create_pool(
                address(database.url), min_size=1, max_size=2, init=codecs
            ) as pool,
            pool.acquire() as conn,
        ):
            await call_all(
                conn,
                database.url,
                lambda: conn.execute("begin"),
                lambda: conn.execute("commit"),
            )

    asyncio.run(calls())


def test_a_list_of_jobs_joins_a_transaction_of_asyncpg(database: Database) -> None:
    async def calls() -> None:
        conn = await asyncpg.connect(address(database.url))
        undone = conn.transaction()
        await undone.start()
        assert await enqueue_many(conn, PLAIN) == len(PLAIN)
        await undone.rollback()
        async with conn.transaction():
            assert await enqueue_many(conn, PLAIN) == len(PLAIN)
        assert await enqueue_many(conn, PLAIN) == len(PLAIN), "and needs none"
        await conn.close()

    asyncio.run(calls())
    assert database.value("select count(*) from redrive.jobs") == 2 * len(PLAIN)
