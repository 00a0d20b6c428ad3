"""Procrastinate."""

import logging
from typing import Any

import line
import uvloop
from procrastinate import App, PsycopgConnector

logging.getLogger("procrastinate").setLevel(logging.WARNING)


def _app(size: int, config: dict[str, Any]) -> tuple[App, Any]:
    app = App(connector=PsycopgConnector(conninfo=line.URL, min_size=1, max_size=size))
    perform = line.work_of(config)

    @app.task(name="noop", queue="bench")
    async def noop(**payload: Any) -> None:
        line.hit(payload)
        if perform is not None:
            await perform()

    return app, noop


async def setup() -> None:
    """Make the schema."""
    app, _ = _app(2, {})
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def worker(config: dict[str, Any]) -> None:
    """Completed jobs are deleted, as everywhere."""
    slots = config["slots"]
    app, _ = _app(min(slots, 20) + 2, config)
    async with app.open_async():
        line.start(config)
        await app.run_worker_async(
            concurrency=slots,
            wait=True,
            delete_jobs="successful",
            install_signal_handlers=False,
        )


async def opener() -> tuple[line.One, line.Many]:
    """Defer one, or a batch."""
    app, noop = _app(2, {})
    await app.open_async().__aenter__()

    async def one(payload: dict[str, Any]) -> None:
        await noop.defer_async(**payload)

    async def many(payloads: list[dict[str, Any]]) -> None:
        await noop.batch_defer_async(*payloads)

    return one, many


if __name__ == "__main__":
    line.main(setup, worker, opener, chunk=1000, run=uvloop.run)
