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

jobs = Handlers()
SOON = {"backoff": 0.05, "backoff_cap": 0.5, "max_attempts": 1000}
# Whoever is killed with a poisonous neighbour, by us, and with its worker has lost three processes
# without a fault of its own; here that happens every few seconds.
INNOCENT = SOON | {"max_losses": 50}
_ledger: list[int] = []


def note(phase: str, job: Job) -> None:
    """One line in one write: phase, job, delivery, attempt, process, supervisor, time."""
    if not _ledger:
        path = Path(os.environ["REDRIVE_TEST_HOME"]) / f"ledger-{os.getpid()}"
        _ledger.append(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))
    who = f"{os.getpid()} {os.getppid()}"
    line = f"{phase} {job.id} {job.deliveries} {job.attempt} {who} {time.time():.6f}\n"
    os.write(_ledger[0], line.encode())


@jobs.handle("chaos.sync", policy=Policy(**INNOCENT))
def sync(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(payload["seconds"])
    note("end", job)


@jobs.handle("chaos.async", policy=Policy(**INNOCENT))
async def concurrent(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    await asyncio.sleep(payload["seconds"])
    note("end", job)


@jobs.handle("chaos.fails", policy=Policy(same_failure_limit=1000, **INNOCENT))
def fails(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    if job.attempt <= payload["times"]:
        note("fail", job)
        raise ConnectionError("not yet")
    note("end", job)


@jobs.handle("chaos.effect", policy=Policy(same_failure_limit=1000, **INNOCENT))
def effect(payload: dict[str, Any], job: Job) -> None:
    """Write and complete in one transaction; what ends it otherwise is a failure."""
    import psycopg

    note("start", job)
    try:
        with psycopg.connect(os.environ["REDRIVE_TEST_URL"], connect_timeout=5) as conn:
            conn.execute("insert into effects (job) values (%s)", (job.id,))
            job.complete(conn)
            time.sleep(payload["seconds"])
            note("end", job)
    except Exception:
        note("fail", job)
        raise


@jobs.handle("chaos.poison", policy=Policy(**SOON))
def poison(payload: dict[str, Any], job: Job) -> None:
    note("start", job)
    time.sleep(0.02)
    note("die", job)
    os.kill(os.getpid(), signal.SIGKILL)
