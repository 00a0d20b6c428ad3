"""psycopg/psycopg #276.

An old program keeps its sessions in its own encoding. Its jobs hold any text.
"""

import asyncio

import psycopg
import pytest

from tests.postgres import Database
from trials.strangers.calls import call_all


@pytest.mark.parametrize("encoding", ["latin1", "sql_ascii", "win1252", "euc_jp"])
def test_each_call_works_whatever_the_encoding_of_the_session(
    database: Database, encoding: str
) -> None:
    with psycopg.connect(database.url, client_encoding=encoding) as conn:
        asyncio.run(call_all(conn, database.url))


def test_each_call_works_on_an_async_connection_in_latin_1(database: Database) -> None:
    async def calls() -> None:
        opened = psycopg.AsyncConnection.connect(database.url, client_encoding="latin1")
        async with await opened as conn:
            await call_all(conn, database.url)

    asyncio.run(calls())
