"""Absurd. Its schema is a file of its repository, which ABSURD_SQL names."""

import asyncio
import os
from pathlib import Path
from typing import Any

import line
import psycopg
import uvloop
from absurd_sdk import AsyncAbsurd


async def setup() -> None:
    """Make the schema and a queue."""
    with psycopg.connect(line.URL, autocommit=True) as conn:
        conn.execute(Path(os.environ["ABSURD_SQL"]).read_bytes())  # noqa: ASYNC240 # nothing else runs yet
        conn.execute("select absurd.create_queue('bench')")


async def worker(config: dict[str, Any]) -> None:
    """One worker."""
    absurd = AsyncAbsurd(line.URL, queue_name="bench")
    perform = line.work_of(config)

    @absurd.register_task("noop")
    async def noop(payload: dict[str, Any], _context: Any) -> None:
        line.hit(payload)
        if perform is not None:
            await perform()

    line.start(config)
    slots = config["slots"]
    await asyncio.gather(
        absurd.start_worker(
            worker_id="bench", concurrency=slots, batch_size=slots, poll_interval=0.25
        )
    )


async def opener() -> tuple[line.One, line.Many]:
    """One at a time: there is no bulk call."""
    absurd = AsyncAbsurd(line.URL, queue_name="bench")

    async def one(payload: dict[str, Any]) -> None:
        await absurd.spawn("noop", payload, queue="bench")

    async def many(payloads: list[dict[str, Any]]) -> None:
        for payload in payloads:
            await one(payload)

    return one, many


if __name__ == "__main__":
    line.main(setup, worker, opener, run=uvloop.run)
