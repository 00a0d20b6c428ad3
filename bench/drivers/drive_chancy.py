"""Chancy."""

import logging
import sys
from typing import Any

import line
import uvloop
from chancy import Chancy, Queue, Worker, job

sys.modules["drive_chancy"] = sys.modules[
    "__main__"
]  # its workers import handlers by name
log = logging.getLogger("chancy")
log.setLevel(logging.ERROR)
_config: dict[str, Any] = {}


@job(queue="bench")
async def noop(**payload: Any) -> None:
    """Be counted, then do what was asked."""
    line.hit(payload)
    perform = _config.get("perform")
    if perform is not None:
        await perform()


noop.__module__ = "drive_chancy"


def _queue(slots: int) -> Queue:
    return Queue(
        "bench",
        concurrency=slots,
        executor=Chancy.Executor.Async,
        polling_interval=1,
        eager_polling=True,
    )


async def setup() -> None:
    """Make the schema."""
    async with Chancy(line.URL, log=log) as chancy:
        await chancy.migrate()


async def worker(config: dict[str, Any]) -> None:
    """One worker with the asyncio executor."""
    _config["perform"] = line.work_of(config)
    async with Chancy(line.URL, log=log) as chancy:
        await chancy.declare(_queue(config["slots"]), upsert=True)
        line.start(config)
        async with Worker(chancy, register_signal_handlers=False) as running:
            await running.wait_for_shutdown()


async def opener() -> tuple[line.One, line.Many]:
    """Push one, or many in batches of 1000."""
    chancy = Chancy(line.URL, log=log)
    await chancy.__aenter__()
    await chancy.declare(_queue(500))

    async def one(payload: dict[str, Any]) -> None:
        await chancy.push(noop.job.with_kwargs(**payload))

    async def many(payloads: list[dict[str, Any]]) -> None:
        jobs = [noop.job.with_kwargs(**payload) for payload in payloads]
        async for _ in chancy.push_many(jobs, batch_size=1000):
            pass

    return one, many


if __name__ == "__main__":
    line.main(setup, worker, opener, run=uvloop.run)
