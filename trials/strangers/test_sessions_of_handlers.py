"""sqlalchemy/sqlalchemy: its manual shows `async_scoped_session` with `current_task`.

Handlers share a session by task, and do not close it. What a failed job has written is
gone, and its broken transaction is no concern of the next job.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import (
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)

from redrive import Handlers, Job, Policy, enqueue
from tests.flow import look
from tests.flow.harness import workers_on
from tests.postgres import Database
from trials.strangers.test_codecs_of_asyncpg import address

HANDLERS = "trials.strangers.test_sessions_of_handlers:jobs"
jobs = Handlers()
ONCE = Policy(max_attempts=1, timeout=60)
WRITE = "insert into written values (:n)"


def _session() -> Any:
    there = address(os.environ["REDRIVE_TEST_URL"])
    driver = os.environ["REDRIVE_TEST_DRIVER"]
    engine = create_async_engine(there.replace("postgresql", driver, 1))
    return async_scoped_session(async_sessionmaker(engine), asyncio.current_task)


session = _session() if "REDRIVE_TEST_DRIVER" in os.environ else None


async def _write(n: int) -> None:
    assert session is not None
    await session.execute(sqlalchemy.text(WRITE), {"n": n})


@jobs.handle("fail", policy=ONCE)
async def fail(payload: dict[str, Any], job: Job) -> None:
    await _write(job.id)
    raise LookupError


@jobs.handle("break", policy=ONCE)
async def break_it(payload: dict[str, Any], job: Job) -> None:
    await _write(job.id)
    await session.execute(sqlalchemy.text("select 1 / 0"))  # type: ignore[union-attr]


@jobs.handle("write", policy=ONCE)
async def write(payload: dict[str, Any], job: Job) -> None:
    await _write(job.id)
    await session.commit()  # type: ignore[union-attr]


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "postgresql+asyncpg"])
def test_nothing_of_a_failed_job_is_committed_by_the_next(
    database: Database, tmp_path: Path, driver: str
) -> None:
    database.rows("create table written (n bigint)")
    kinds = ["fail", "write", "break", "write", "write"]
    ids = [enqueue(database.conn, kind) for kind in kinds]
    with workers_on(database.url, tmp_path) as workers:
        worker = workers.run(
            "--slots", "1", handlers=HANDLERS, redrive_test_driver=driver
        )

    assert set(look.letters(database)) == {ids[0], ids[2]}, worker.log.read_text()
    assert sorted(database.column("select n from written")) == [ids[1], *ids[3:]]
