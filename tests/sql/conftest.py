"""Databases that several files of tests use."""

from collections.abc import Iterator

import pytest

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
