"""Procrastinate, with the periodic job that its page on stalled jobs shows."""

from typing import Any

import chaos
from procrastinate import App, JobContext, PsycopgConnector


def _app(size: int) -> App:
    return App(
        connector=PsycopgConnector(conninfo=chaos.URL, min_size=1, max_size=size)
    )


def _with_handlers(app: App) -> Any:
    @app.task(name="chaos", queue="chaos", pass_context=True)
    async def work(context: JobContext, n: int, seconds: float) -> None:
        await chaos.handle(n, seconds, context.job.attempts)

    @app.periodic(cron="* * * * * */5")
    @app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
    async def retry_stalled_jobs(context: JobContext, timestamp: int) -> None:  # noqa: ARG001 # procrastinate gives it
        found = await context.app.job_manager.get_stalled_jobs(
            seconds_since_heartbeat=chaos.TTL
        )
        for job in found:
            await context.app.job_manager.retry_job(job)

    return work


async def setup() -> None:
    """Make the schema."""
    app = _app(2)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def worker(slots: int) -> None:
    """One that beats and is looked for three times as often as by default."""
    app = _app(slots + 4)
    _with_handlers(app)
    async with app.open_async():
        await app.run_worker_async(
            concurrency=slots,
            fetch_job_polling_interval=0.5,
            update_heartbeat_interval=chaos.TTL / 3,
            stalled_worker_timeout=chaos.TTL,
            shutdown_graceful_timeout=chaos.DRAIN,
        )


async def opener() -> chaos.Add:
    """Defer one."""
    app = _app(1)
    work = _with_handlers(app)
    await app.open_async().__aenter__()

    async def add(n: int, seconds: float) -> None:
        await work.defer_async(n=n, seconds=seconds)

    return add


if __name__ == "__main__":
    chaos.main(setup, worker, opener)
