"""elastic/apm-agent-python #2094.

A program takes each of its connections from a pool.
"""

import asyncio

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from tests.postgres import Database
from trials.strangers.calls import call_all


def test_each_call_works_on_a_connection_of_a_pool(database: Database) -> None:
    with (
        ConnectionPool(database.url, min_size=1, open=True) as pool,
        pool.connection() as conn,
    ):
        asyncio.run(call_all(conn, database.url))


def test_each_call_works_on_a_connection_of_an_async_pool(database: Database) -> None:
    async def calls() -> None:
        async with (
            AsyncConnectionPool(database.url, min_size=1, open=False) as pool,
            pool.connection() as conn,
        ):
            await call_all(conn, database.url)

    asyncio.run(calls())
