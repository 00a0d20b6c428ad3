"""psycopg/psycopg #409.

A program sends statements in a pipeline, and its jobs with them.
"""

import asyncio
from typing import Any

import psycopg
import pytest

from redrive import enqueue_many
from redrive.errors import InvalidJob
from tests.postgres import Database
from trials.strangers.calls import PLAIN, call_all


def test_each_call_works_in_a_pipeline(database: Database) -> None:
    with psycopg.connect(database.url) as conn, conn.pipeline():
        asyncio.run(call_all(conn, database.url))


def test_each_call_works_in_a_pipeline_of_an_async_connection(
    database: Database,
) -> None:
    async def calls() -> None:
        opened = await psycopg.AsyncConnection.connect(database.url)
        async with opened as conn, conn.pipeline():
            await call_all(conn, database.url)

    asyncio.run(calls())


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_list_with_a_job_that_is_refused_leaves_the_pipeline_usable(
    database: Database, autocommit: bool
) -> None:
    jobs: list[Any] = [*PLAIN, {"kind": "Not A Kind"}]
    with psycopg.connect(database.url, autocommit=autocommit) as conn, conn.pipeline():
        conn.execute("create table mine (n int)")
        with pytest.raises(InvalidJob):
            enqueue_many(conn, jobs)
        conn.execute("insert into mine values (1)")
    assert database.value("select count(*) from mine") == 1
    assert database.value("select count(*) from redrive.jobs") == 0
