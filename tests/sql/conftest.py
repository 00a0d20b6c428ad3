"""Databases that several files of tests use."""

from collections.abc import Iterator

import pytest
from psycopg import sql

from tests.postgres import Database, Server


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """An empty database."""
    with server.empty() as url:
        yield url


@pytest.fixture(scope="module")
def refusing(server: Server) -> Iterator[Database]:
    """One database for all that is refused: each test proves that it left nothing."""
    with server.database() as database:
        yield database


@pytest.fixture
def preparing(database: Database) -> Iterator[Database]:
    """A database whose server prepares transactions; none outlives the test."""
    if database.value("show max_prepared_transactions") == "0":
        pytest.skip("the server prepares no transactions")
    yield database
    for name in database.column(
        "select gid from pg_prepared_xacts where database = current_database()"
    ):
        database.conn.execute(sql.SQL("rollback prepared {}").format(name))
