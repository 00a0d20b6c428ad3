"""PgQueuer, whose heartbeat says when a job may be picked again."""

import asyncio
import json
import signal
from datetime import timedelta
from typing import Any

import asyncpg
import chaos
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries


async def _driver() -> AsyncpgPoolDriver:
    return AsyncpgPoolDriver(
        await asyncpg.create_pool(chaos.URL, min_size=1, timeout=5)
    )


async def setup() -> None:
    """Make the schema."""
    await Queries(await _driver()).install()


async def worker(slots: int) -> None:
    """One that ends when it is told to."""
    consumer = PgQueuer(await _driver())

    @consumer.entrypoint("chaos")
    async def work(job: Any) -> None:
        payload = json.loads(job.payload)
        await chaos.handle(payload["n"], payload["seconds"], job.attempts)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.shutdown.set)
    await consumer.run(
        dequeue_timeout=timedelta(seconds=0.5),
        batch_size=slots // 2,
        max_concurrent_tasks=slots,
        heartbeat_timeout=timedelta(seconds=chaos.TTL),
    )


async def opener() -> chaos.Add:
    """Enqueue one."""
    queries = Queries(await _driver())

    async def add(n: int, seconds: float) -> None:
        await queries.enqueue(
            "chaos", json.dumps({"n": n, "seconds": seconds}).encode(), 0
        )

    return add


if __name__ == "__main__":
    chaos.main(setup, worker, opener)
