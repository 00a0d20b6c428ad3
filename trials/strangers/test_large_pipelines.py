"""psycopg/psycopg #685.

A program sends more in a pipeline than fits into the buffers. It does not hang.
"""

import psycopg

from redrive import enqueue, enqueue_many
from tests.postgres import Database


def test_a_large_pipeline_ends(database: Database) -> None:
    payload = {"text": "x" * 200_000}
    many = [{"kind": "a.b", "payload": {"text": "x" * 2_000}} for _ in range(10_000)]
    with psycopg.connect(database.url) as conn, conn.pipeline():
        for _ in range(20):
            conn.execute("select %s::text", ("x" * 200_000,))
            enqueue(conn, "a.b", payload)
        assert enqueue_many(conn, many) == len(many)
    assert database.value("select count(*) from redrive.jobs") == 10_020
