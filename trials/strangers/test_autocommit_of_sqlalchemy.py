"""sqlalchemy/sqlalchemy #7141, #9658.

An engine commits by itself. A handler that completes its job there has committed.
"""

import asyncio
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from redrive import enqueue
from redrive.database.drivers import in_transaction
from tests.postgres import Database
from trials.strangers.test_sessions_of_sqlalchemy import url_of

MANUAL, AUTO = "READ COMMITTED", "AUTOCOMMIT"


@pytest.mark.parametrize(("level", "is_open"), [(MANUAL, True), (AUTO, False)])
@pytest.mark.parametrize("of", [lambda engine: engine.connect(), Session])
def test_a_transaction_is_open_if_the_server_has_one(
    database: Database, level: Any, is_open: bool, of: Any
) -> None:
    engine = create_engine(url_of(database, "psycopg"), isolation_level=level)
    with of(engine) as conn:
        enqueue(conn, "a.b")
        assert in_transaction(conn) is is_open
    engine.dispose()


@pytest.mark.parametrize(("level", "is_open"), [(MANUAL, True), (AUTO, False)])
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("of", [lambda engine: engine.connect(), AsyncSession])
def test_a_transaction_is_open_on_an_async_connection(
    database: Database, level: Any, is_open: bool, of: Any, driver: str
) -> None:
    async def look() -> None:
        engine = create_async_engine(url_of(database, driver), isolation_level=level)
        async with of(engine) as conn:
            await enqueue(conn, "a.b")
            assert in_transaction(conn) is is_open
        await engine.dispose()

    asyncio.run(look())
