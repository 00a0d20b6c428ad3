"""PgQueuer."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import asyncpg
import line
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries


async def _driver() -> AsyncpgDriver:
    return AsyncpgDriver(await asyncpg.connect(line.URL))


async def setup() -> None:
    """Make the schema, with its own advice on autovacuum."""
    queries = Queries(await _driver())
    await queries.install()
    await queries.optimize_autovacuum()


async def worker(config: dict[str, Any]) -> None:
    """Consumers in one process, each with a connection."""
    perform = line.work_of(config)
    consumers = []
    for _ in range(config["consumers"]):
        driver = await _driver()
        consumer = PgQueuer(driver, queries=Queries(driver))

        @consumer.entrypoint("noop")
        async def noop(job: Any) -> None:
            line.hit(json.loads(job.payload))
            if perform is not None:
                await perform()

        consumers.append(consumer)
    line.start(config)
    await asyncio.gather(
        *(
            c.run(batch_size=config["batch"], dequeue_timeout=timedelta(seconds=30))
            for c in consumers
        )
    )


async def opener() -> tuple[line.One, line.Many]:
    """One statement for many."""
    queries = Queries(await _driver())

    async def one(payload: dict[str, Any]) -> None:
        await queries.enqueue("noop", json.dumps(payload).encode(), 0)

    async def many(payloads: list[dict[str, Any]]) -> None:
        count = len(payloads)
        await queries.enqueue(
            ["noop"] * count, [json.dumps(p).encode() for p in payloads], [0] * count
        )

    return one, many


if __name__ == "__main__":
    line.main(setup, worker, opener, run=uvloop.run)
