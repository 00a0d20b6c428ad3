"""End of the transaction in which a handler completed its job."""

import asyncio
from typing import Any

from redrive.database import drivers
from redrive.rules.attempts.failure import class_name
from redrive.worker.run.own import warn
from redrive.worker.run.threads import Threads

ROLL_BACK_SECONDS = 5.0


async def end_transaction(conn: Any, threads: Threads) -> bool:
    """Roll back an open transaction. Returns True if one was, or may have been, open.

    An open transaction locks the job's row, and would hold up the settlement of its
    batch. It never raises, and takes at most ROLL_BACK_SECONDS.
    """
    try:
        async with asyncio.timeout(ROLL_BACK_SECONDS):
            if not drivers.in_transaction(conn):
                return False

            if drivers.is_async(conn):
                await drivers.roll_back(conn)
            else:
                await threads.call(drivers.roll_back, conn)
    except Exception as error:  # noqa: BLE001 # of a driver, about a connection that is broken
        warn(
            "the transaction of job.complete() cannot be ended",
            error_class=class_name(error),
        )

    return True
