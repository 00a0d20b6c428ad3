"""A Postgres for all tests, and for each one a transaction that is rolled back."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection, Engine, create_engine

from redrive.testing import postgres
from shop.api import api
from shop.tables import Table, sessions


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where the Postgres is; Redrive's schema is in it."""
    with postgres() as url:
        yield url


@pytest.fixture(scope="session")
def engine(url: str) -> Iterator[Engine]:
    """The same, with the shop's own tables."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    Table.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def conn(engine: Engine) -> Iterator[Connection]:
    """What requests and jobs work on. What they commit is a savepoint here, and is undone."""
    with engine.connect() as conn:
        transaction = conn.begin()
        sessions.configure(bind=conn, join_transaction_mode="create_savepoint")
        yield conn
        sessions.configure(bind=None, join_transaction_mode="conditional_savepoint")
        transaction.rollback()


@pytest.fixture
def client(conn: Connection) -> TestClient:
    """A client of the API."""
    return TestClient(api)
