"""temporalio/sdk-python #1048.

A handler gives work to a pool of processes, by fork or by spawn, also from its event loop. The
pool ends with the handler, and the runner works on.
"""

import asyncio
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from redrive import Handlers, Job, Policy, enqueue
from tests.flow import look
from tests.flow.handlers import note
from tests.flow.harness import alive, children, wait_for, workers_on
from tests.postgres import Database

HANDLERS = "trials.strangers.test_processes_in_handlers:jobs"
jobs = Handlers()
ONCE = Policy(max_attempts=1, timeout=120)


def _pool(method: str) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, multiprocessing.get_context(method))


@jobs.handle("pool.plain", policy=ONCE)
def plain(payload: dict[str, Any], job: Job) -> None:
    with _pool(payload["method"]) as pool:
        assert list(pool.map(pow, [2, 3], [3, 2])) == [8, 9]
    note("end", job)


@jobs.handle("pool.async", policy=ONCE)
async def in_loop(payload: dict[str, Any], job: Job) -> None:
    with _pool(payload["method"]) as pool:
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(pool, pow, n, 2) for n in (2, 3)]
        assert await asyncio.gather(*calls) == [4, 9]
    note("end", job)


@jobs.handle("pool.broken", policy=ONCE)
def broken(payload: dict[str, Any], job: Job) -> None:
    """One of its processes dies: this is an error of the job, and of nobody else."""
    with _pool(payload["method"]) as pool:
        note("start", job)
        pool.submit(os._exit, 1).result()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_works_and_ends_with_its_job(
    database: Database, tmp_path: Path, method: str
) -> None:
    kinds = ("pool.plain", "pool.async", "pool.plain", "pool.async")
    good = [enqueue(database.conn, kind, {"method": method}) for kind in kinds]
    bad = enqueue(database.conn, "pool.broken", {"method": method})
    with workers_on(database.url, tmp_path) as workers:
        worker = workers("--slots", "2", handlers=HANDLERS)
        wait_for(lambda: look.live(database) == 0)

        (runner,) = worker.runners
        wait_for(lambda: not any(map(_is_worker, children(runner))), 30)
        assert set(look.letters(database)) == {bad}
        ended = [entry.job for entry in workers.ledger() if entry.phase == "end"]
        assert sorted(ended) == good
        assert worker.metric("redrive_runner_deaths_total") == 0


def _is_worker(pid: int) -> bool:
    """Return False for the tracker of resources, which lasts as long as its process."""
    line = Path(f"/proc/{pid}/cmdline")
    return alive(pid) and b"resource_tracker" not in line.read_bytes()
