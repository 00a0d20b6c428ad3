"""laravel/framework #60482, rails/rails #52641.

A unique job is added within a savepoint, and what encloses it is rolled back. Nothing of
it is there, and the next one is added. A savepoint alone takes back only its own jobs.
"""

from typing import Any

import psycopg
import pytest
import sqlalchemy

from redrive import enqueue, enqueue_many
from tests.postgres import Database
from trials.strangers.test_codecs_of_asyncpg import address

UNIQUE: dict[str, Any] = {"kind": "a.b", "payload": {"n": 1}, "unique_for": 3600}


class Unwanted(Exception):
    pass


def in_psycopg(url: str, inner: bool) -> None:
    with psycopg.connect(url) as conn:
        enqueue(conn, "a.outer")
        try:
            with conn.transaction():
                enqueue(conn, **UNIQUE)
                enqueue_many(conn, [{"kind": "a.many"}])
                if inner:
                    raise Unwanted
        except Unwanted:
            pass
        if not inner:
            raise Unwanted


def in_sqlalchemy(url: str, inner: bool) -> None:
    there = address(url).replace("postgresql", "postgresql+psycopg", 1)
    engine = sqlalchemy.create_engine(there, poolclass=sqlalchemy.NullPool)
    with engine.begin() as conn:
        enqueue(conn, "a.outer")
        try:
            with conn.begin_nested():
                enqueue(conn, **UNIQUE)
                enqueue_many(conn, [{"kind": "a.many"}])
                if inner:
                    raise Unwanted
        except Unwanted:
            pass
        if not inner:
            raise Unwanted


@pytest.mark.parametrize("way", [in_psycopg, in_sqlalchemy])
@pytest.mark.parametrize("inner", [True, False])
def test_jobs_of_a_savepoint_go_with_it(
    database: Database, way: Any, inner: bool
) -> None:
    if inner:
        way(database.url, inner)
    else:
        with pytest.raises(Unwanted):
            way(database.url, inner)

    kinds = database.column("select kind from redrive.jobs order by id")
    assert kinds == (["a.outer"] if inner else [])
    assert enqueue_many(database.conn, [UNIQUE]) == 1
