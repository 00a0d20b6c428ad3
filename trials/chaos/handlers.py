"""What runs while everything around it breaks. Each start and end is written down before anything
else can happen.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from redrive import Handlers, Job, Policy
from trials.chaos.ledger import HOME, note

jobs = Handlers()
SOON = {
    "backoff": 0.05,
    "backoff_cap": 0.5,
    "max_attempts": 1000,
    "same_failure_limit": 1000,
}


@jobs.handle("chaos.sync", policy=Policy(**SOON))
def sync(payload: dict[str, Any], job: Job) -> None:
    note("start", payload["n"], job.deliveries)
    time.sleep(payload["seconds"])
    note("end", payload["n"], job.deliveries)


@jobs.handle("chaos.async", policy=Policy(**SOON))
async def concurrent(payload: dict[str, Any], job: Job) -> None:
    note("start", payload["n"], job.deliveries)
    await asyncio.sleep(payload["seconds"])
    note("end", payload["n"], job.deliveries)


@jobs.handle("chaos.fails", policy=Policy(**SOON))
def fails(payload: dict[str, Any], job: Job) -> None:
    note("start", payload["n"], job.deliveries)
    if job.attempt <= payload["times"]:
        note("fail", payload["n"], job.deliveries)
        raise ConnectionError("not yet")
    note("end", payload["n"], job.deliveries)


@jobs.handle("chaos.effect", policy=Policy(**SOON))
def effect(payload: dict[str, Any], job: Job) -> None:
    """Write and complete in one transaction; what ends it otherwise is a failure."""
    import psycopg

    note("start", payload["n"], job.deliveries)
    try:
        with psycopg.connect(os.environ["REDRIVE_TEST_URL"], connect_timeout=5) as conn:
            conn.execute("insert into effects (n) values (%s)", (payload["n"],))
            note("end", payload["n"], job.deliveries)
            job.complete(conn)
            time.sleep(payload["seconds"])
    except Exception:
        note("fail", payload["n"], job.deliveries)
        raise


@jobs.handle("chaos.limited", policy=Policy(**SOON), limits=["held"])
def limited(payload: dict[str, Any], job: Job) -> None:
    sync(payload, job)


@jobs.handle("chaos.holds", policy=Policy(**SOON))
def holds(payload: dict[str, Any], job: Job) -> None:
    """Complete the job in a transaction that stays open in the first delivery."""
    import psycopg

    note("start", payload["n"], job.deliveries)
    try:
        with psycopg.connect(os.environ["REDRIVE_TEST_URL"], connect_timeout=5) as conn:
            note("end", payload["n"], job.deliveries)
            job.complete(conn)
            if job.deliveries == 1:
                _hold(conn, payload)
    except Exception:
        note("fail", payload["n"], job.deliveries)
        raise


def _hold(conn: Any, payload: dict[str, Any]) -> None:
    written = Path(os.environ[HOME]) / f".holds-{payload['n']}"
    written.write_text(str(os.getpid()))
    written.rename(written.with_name(written.name[1:]))
    if payload["how"] == "busy":
        conn.execute("select pg_sleep(%s)", (payload["seconds"],))
    else:
        time.sleep(payload["seconds"])


@jobs.handle(
    "chaos.poison", policy=Policy(backoff=0.05, backoff_cap=0.5, max_attempts=1000)
)
def poison(payload: dict[str, Any], job: Job) -> None:
    note("start", payload["n"], job.deliveries)
    time.sleep(0.02)
    note("die", payload["n"], job.deliveries)
    os.kill(os.getpid(), signal.SIGKILL)
