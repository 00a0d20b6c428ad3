"""porsager/postgres #1054, psycopg/psycopg #23.

A program reads rows from a server-side cursor and enqueues a job for each, on the same
connection. It does not hang.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from redrive import enqueue, enqueue_many
from tests.postgres import Database


def from_a_cursor(conn: Any) -> Iterator[Any]:
    with conn.cursor("named") as cursor:
        cursor.itersize = 500
        cursor.execute("select generate_series(1, 6000)")
        yield from ({"kind": "a.b", "payload": {"n": n}} for (n,) in cursor)


def from_queries(conn: Any) -> Iterator[Any]:
    for n in range(6000):
        if n % 1000 == 0:
            conn.execute("select 1")
        yield {"kind": "a.b", "payload": {"n": n}}


def that_enqueues(conn: Any) -> Iterator[Any]:
    for n in range(5990):
        made = enqueue(conn, "a.c") if n % 599 == 0 else None
        yield {"kind": "a.b", "payload": {"made": made}}


@pytest.mark.parametrize("jobs", [from_a_cursor, from_queries, that_enqueues])
@pytest.mark.parametrize("autocommit", [False, True])
def test_a_generator_may_use_the_connection(
    database: Database, jobs: Callable[[Any], Iterator[Any]], autocommit: bool
) -> None:
    conn = psycopg.connect(database.url, autocommit=autocommit)
    done: list[int] = []
    run = threading.Thread(
        target=lambda: done.append(enqueue_many(conn, jobs(conn))), daemon=True
    )
    run.start()
    run.join(60)
    assert done, "it hangs"
    conn.commit()
    conn.close()
    assert database.value("select count(*) from redrive.jobs") == 6000
