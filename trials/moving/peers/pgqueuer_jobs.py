"""PgQueuer: jobs that it holds as failed, and jobs that wait. argv: the database's URL."""

import asyncio
import json
import sys
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode


async def main() -> None:
    """Leave them behind."""
    driver = AsyncpgDriver(await asyncpg.connect(sys.argv[1]))
    queries = Queries(driver)
    await queries.install()
    app = PgQueuer(driver)

    @app.entrypoint("Shop.charge", on_failure="hold")
    async def charge(job: Job) -> None:
        msg = f"no such invoice: {json.loads(job.payload or b'')['invoice']}"
        raise ValueError(msg)

    bodies = [json.dumps({"invoice": n}).encode() for n in range(17, 21)]
    await queries.enqueue(["Shop.charge"] * 2, bodies[:2], [0, 5])
    await app.run(mode=QueueExecutionMode.drain)
    later = [timedelta(0), timedelta(hours=1)]
    await queries.enqueue(["Shop.charge"] * 2, bodies[2:], [3, 0], later)


if __name__ == "__main__":
    asyncio.run(main())
