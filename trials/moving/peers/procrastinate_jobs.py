"""Procrastinate: jobs that failed, and jobs that wait. argv: the database's conninfo."""

import asyncio
import sys

from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=sys.argv[1]))


@app.task(name="Shop.charge", queue="billing")
async def charge(invoice: int) -> None:
    """Always fails."""
    msg = f"no such invoice: {invoice}"
    raise ValueError(msg)


async def main() -> None:
    """Leave them behind."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for invoice in (17, 18):
            await charge.defer_async(invoice=invoice)
        await app.run_worker_async(wait=False, install_signal_handlers=False)
        await charge.configure(priority=3, lock="customer-4").defer_async(invoice=19)
        await charge.configure(schedule_in={"hours": 1}).defer_async(invoice=20)


if __name__ == "__main__":
    asyncio.run(main())
