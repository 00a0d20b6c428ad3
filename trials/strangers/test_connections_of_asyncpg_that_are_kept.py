"""sqlalchemy/sqlalchemy #13381, MagicStack/asyncpg #232.

A program keeps a connection of asyncpg for later jobs. A job leaves a transaction open on
it. The next one begins a transaction of its own, and its rows are there after the commit.
"""

import asyncio
from typing import Any

import asyncpg
import pytest

from redrive.database import drivers
from tests.postgres import Database
from trials.strangers.test_codecs_of_asyncpg import address


async def by_hand(conn: Any) -> None:
    await conn.execute("begin")


async def by_object(conn: Any) -> None:
    await conn.transaction().start()


async def nested(conn: Any) -> None:
    await by_object(conn)
    await by_object(conn)


async def failed(conn: Any) -> None:
    await by_object(conn)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await conn.execute("select 1 / 0")


@pytest.mark.parametrize("leave", [by_hand, by_object, nested, failed])
@pytest.mark.parametrize("pooled", [False, True])
def test_a_transaction_that_is_left_open_spoils_no_later_one(
    database: Database, leave: Any, pooled: bool
) -> None:
    database.rows("create table kept (n int)")

    async def work(conn: Any) -> None:
        await leave(conn)
        await drivers.roll_back(conn)
        assert not drivers.in_transaction(conn)
        async with conn.transaction():
            await conn.execute("insert into kept values (2)")

    async def run() -> None:
        if pooled:
            async with (
                asyncpg.create_pool(address(database.url), min_size=1) as pool,
                pool.acquire() as conn,
            ):
                await work(conn)
        else:
            conn = await asyncpg.connect(address(database.url))
            await work(conn)
            await conn.close()

    asyncio.run(run())
    assert database.column("select n from kept") == [2]
