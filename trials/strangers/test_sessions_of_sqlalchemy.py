"""sqlalchemy/sqlalchemy #6583.

A web framework hands out a scoped session. It behaves as a session everywhere.
"""

import asyncio
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.postgres import Database
from trials.strangers.calls import call_all
from trials.strangers.test_codecs_of_asyncpg import address


def url_of(database: Database, driver: str) -> str:
    return address(database.url).replace("postgresql", f"postgresql+{driver}")


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine(database: Database, request: pytest.FixtureRequest) -> Any:
    pytest.importorskip(request.param)
    return create_engine(url_of(database, request.param), poolclass=NullPool)


@pytest.mark.parametrize(
    "opened",
    [
        lambda engine: engine.connect(),
        Session,
        lambda engine: scoped_session(sessionmaker(engine)),
    ],
    ids=["connection", "session", "scoped session"],
)
def test_each_call_works_on_a_session(
    database: Database, engine: Any, opened: Any
) -> None:
    conn = opened(engine)
    asyncio.run(call_all(conn, database.url))
    conn.close()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("kind", ["connection", "session", "scoped session"])
def test_each_call_works_on_an_async_session(
    database: Database, driver: str, kind: str
) -> None:
    async def calls() -> None:
        engine = create_async_engine(url_of(database, driver), poolclass=NullPool)
        make = async_sessionmaker(engine)
        conn: Any = {
            "connection": engine.connect,
            "session": lambda: AsyncSession(engine),
            "scoped session": lambda: async_scoped_session(make, asyncio.current_task),
        }[kind]()
        if kind == "connection":
            await conn.start()
        await call_all(conn, database.url)
        await conn.close()
        await engine.dispose()

    asyncio.run(calls())
