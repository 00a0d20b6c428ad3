"""oban-bg/oban #548, #388, #85, #934, #881.

A list of jobs may be empty, may hold unique and scheduled jobs, and is whole or nothing.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from redrive import enqueue, enqueue_many
from redrive.errors import InvalidJob
from tests.postgres import Database

UNIQUE: dict[str, Any] = {"kind": "a.b", "payload": {"n": 1}, "unique_for": 3600}


def test_an_empty_list_adds_nothing(database: Database) -> None:
    with psycopg.connect(database.url) as conn:
        assert enqueue_many(conn, []) == enqueue_many(conn, iter(())) == 0


def test_unique_jobs_of_a_list_are_unique(database: Database) -> None:
    later = UNIQUE | {"delay": 60}
    with psycopg.connect(database.url) as conn:
        assert enqueue_many(conn, [UNIQUE, UNIQUE, later]) == 1
        assert enqueue_many(conn, [UNIQUE]) == 0


def test_a_scheduled_job_is_unique_as_any_other(database: Database) -> None:
    at = datetime.now(UTC) + timedelta(days=1)
    with psycopg.connect(database.url) as conn:
        first = enqueue(conn, "a.b", {"n": 1}, run_at=at, unique_for=3600)
        assert enqueue(conn, "a.b", {"n": 1}, unique_for=3600) == first


def test_a_list_that_fails_adds_nothing_and_keeps_the_callers_work(
    database: Database,
) -> None:
    with psycopg.connect(database.url) as conn:
        enqueue(conn, "a.c")
        with pytest.raises(InvalidJob):
            enqueue_many(conn, [UNIQUE, {"kind": "a.b"}, {"kind": ""}])
    assert database.column("select kind from redrive.jobs") == ["a.c"]


def test_no_transaction_is_left_open_where_there_was_none(database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as conn:
        enqueue(conn, "a.b")
        enqueue_many(conn, [{"kind": "a.b"}])
        assert conn.info.transaction_status == TransactionStatus.IDLE
