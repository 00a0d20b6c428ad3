"""Databases that several files of tests use."""

from collections.abc import Iterator

import pytest
from psycopg import sql

from tests.postgres import Database, Server, embedded


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


@pytest.fixture(scope="session")
def server_that_prepares(server: Server) -> Iterator[Server]:
    """A server that prepares transactions: enqueue tells workers more often there."""
    with embedded(server.version, max_prepared_transactions="2") as own:
        yield own


@pytest.fixture
def preparing(server_that_prepares: Server) -> Iterator[Database]:
    """A database for prepared transactions; none outlives the test."""
    with server_that_prepares.database() as database:
        yield database
        for name in database.column(
            "select gid from pg_prepared_xacts where database = current_database()"
        ):
            database.conn.execute(sql.SQL("rollback prepared {}").format(name))
