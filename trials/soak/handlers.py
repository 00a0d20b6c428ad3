"""Handlers that behave, beside the misbehaving ones of the tests, in one registry.

A handler that misbehaves may replace what others find in their modules. So the good ones
bind all that they use when they are imported.
"""

import asyncio
import decimal
import time
from asyncio import CancelledError, sleep
from os import O_APPEND, O_CREAT, O_WRONLY, environ, getpid
from os import open as open_file
from os import write as write_file
from pathlib import Path
from typing import Any
from weakref import WeakSet

from redrive import Handlers, Job, Policy, Retry
from tests.flow import breaking, parents, untidy

jobs = Handlers()
for each in (breaking, parents, untidy):
    jobs.include(each.jobs)

GOOD = Policy(max_attempts=8, timeout=60, backoff=0.5, backoff_cap=1)
HOME = Path(environ["REDRIVE_TEST_HOME"])
now, wait = time.monotonic, time.sleep
current_task, precision = asyncio.current_task, decimal.getcontext
tasks = WeakSet[Any]()
_ledger: dict[int, int] = {}


def note(phase: str, job: Job) -> None:
    """Write a line to this process's ledger."""
    pid = getpid()
    if pid not in _ledger:
        path = HOME / f"good-{pid}"
        _ledger[pid] = open_file(path, O_WRONLY | O_APPEND | O_CREAT, 0o644)
    line = f"{phase} {job.id} {job.deliveries} {job.attempt} {pid} {now():.6f}\n"
    write_file(_ledger[pid], line.encode())


def begin(job: Job) -> None:
    """Note the start, and whether the job finds what another one has left."""
    note("start", job)
    if untidy.tenant.get() != "nobody" or precision().prec != 20:
        note("context", job)


@jobs.handle("good.async", policy=GOOD)
async def good_async(payload: dict[str, Any], job: Job) -> None:
    begin(job)
    if (task := current_task()) in tasks:
        note("task", job)
    tasks.add(task)
    try:
        await sleep(payload["seconds"])
    except CancelledError:
        note("cancelled", job)
        raise
    note("end", job)


@jobs.handle("good.sync", policy=GOOD)
def good_sync(payload: dict[str, Any], job: Job) -> None:
    begin(job)
    wait(payload["seconds"])
    note("end", job)


@jobs.handle("good.retry", policy=GOOD)
async def good_retry(payload: dict[str, Any], job: Job) -> None:
    """Succeed in the second attempt."""
    begin(job)
    if job.attempt == 1:
        raise Retry(after=1)
    note("end", job)


@jobs.handle("bad.block", policy=Policy(max_attempts=1, timeout=60))
async def bad_block(payload: dict[str, Any], job: Job) -> None:
    """Block the event loop."""
    wait(payload["seconds"])
