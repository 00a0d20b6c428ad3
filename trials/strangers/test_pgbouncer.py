"""prisma/orm #10841.

A program reaches its database through PgBouncer in transaction mode.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest

from tests.flow.test_pgbouncer import pool
from tests.postgres import Database
from trials.strangers.calls import call_all
from trials.strangers.test_codecs_of_asyncpg import address


@pytest.fixture
def pooled(database: Database, tmp_path: Path) -> Iterator[str]:
    with pool(database, tmp_path / "log") as url:
        yield url


def test_each_call_works_through_a_pool_of_transactions(
    database: Database, pooled: str
) -> None:
    with psycopg.connect(pooled, prepare_threshold=None) as conn:
        asyncio.run(call_all(conn, database.url))


def test_each_call_of_asyncpg_works_through_a_pool_of_transactions(
    database: Database, pooled: str
) -> None:
    async def calls() -> None:
        conn = await asyncpg.connect(address(pooled), statement_cache_size=0)
        await call_all(
            conn,
            database.url,
            lambda: conn.execute("begin"),
            lambda: conn.execute("commit"),
        )
        await conn.close()

    asyncio.run(calls())
