"""Awa, by its Python client: the engine is Rust, the handlers are Python."""

import asyncio
from dataclasses import dataclass
from typing import Any

import awa
import line


@dataclass
class Noop:
    """The payload."""

    i: int
    p: int = 0
    s: str = ""


async def setup() -> None:
    """Make the schema, with the storage engine it advises."""
    client = awa.AsyncClient(line.URL, max_connections=20)
    await client.migrate()
    await client.install_queue_storage(schema="awa")
    await client.close()


async def worker(config: dict[str, Any]) -> None:
    """One client."""
    client = awa.AsyncClient(line.URL, max_connections=30)
    perform = line.work_of(config)

    @client.task(Noop, queue="bench")
    async def noop(job: Any) -> None:
        line.hit({"i": job.args.i, "p": 1} if job.args.p else {"i": job.args.i})
        if perform is not None:
            await perform()

    line.start(config)
    await client.start(
        [{"name": "bench", "max_workers": config["slots"], "deadline_duration_ms": 0}],
        poll_interval_ms=50,
    )
    await asyncio.Event().wait()


async def opener() -> tuple[line.One, line.Many]:
    """Insert one, or many by COPY."""
    client = awa.AsyncClient(line.URL, max_connections=2)

    async def one(payload: dict[str, Any]) -> None:
        await client.insert(Noop(**payload), queue="bench")

    async def many(payloads: list[dict[str, Any]]) -> None:
        await client.enqueue_many_copy(
            [Noop(**payload) for payload in payloads], queue="bench"
        )

    return one, many


if __name__ == "__main__":
    line.main(setup, worker, opener)
