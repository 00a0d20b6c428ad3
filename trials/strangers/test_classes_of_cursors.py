"""psycopg/psycopg #560.

A program sets the class of its cursors and the shape of its rows once per connection. A
library that is given the connection works with each of them.
"""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.rows import class_row, dict_row, kwargs_row, namedtuple_row, scalar_row

from tests.postgres import Database
from trials.strangers.calls import call_all


class DictCursor(psycopg.Cursor[Any]):
    """Rows are mappings whatever the caller asks for."""

    def __init__(self, connection: Any, **_: Any) -> None:
        super().__init__(connection, row_factory=dict_row)


@pytest.mark.parametrize(
    "factory",
    [psycopg.RawCursor, psycopg.ClientCursor, psycopg.Cursor, DictCursor],
    ids=lambda factory: factory.__name__,
)
def test_each_call_works_whatever_the_cursors_of_a_connection(
    database: Database, factory: Any
) -> None:
    with psycopg.connect(database.url, cursor_factory=factory) as conn:
        asyncio.run(call_all(conn, database.url))


@pytest.mark.parametrize("factory", [psycopg.AsyncRawCursor, psycopg.AsyncClientCursor])
def test_each_call_works_whatever_the_cursors_of_an_async_connection(
    database: Database, factory: Any
) -> None:
    async def calls() -> None:
        opened = psycopg.AsyncConnection.connect(database.url, cursor_factory=factory)
        async with await opened as conn:
            await call_all(conn, database.url)

    asyncio.run(calls())


@pytest.mark.parametrize(
    "rows",
    [dict_row, namedtuple_row, scalar_row, class_row(dict), kwargs_row(dict)],
    ids=["dict", "namedtuple", "scalar", "class", "kwargs"],
)
def test_each_call_works_whatever_the_rows_of_a_connection(
    database: Database, rows: Any
) -> None:
    with psycopg.connect(database.url, row_factory=rows) as conn:
        asyncio.run(call_all(conn, database.url))
