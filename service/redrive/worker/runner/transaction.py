"""End of the transaction in which a handler completed its job."""

import asyncio
import logging
from concurrent.futures import Executor
from typing import Any

from redrive.database import drivers
from redrive.rules.attempts.failure import class_name

ROLL_BACK_SECONDS = 5.0

logger = logging.getLogger("redrive.runner")


async def end_transaction(conn: Any, threads: Executor) -> bool:
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
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(threads, drivers.roll_back, conn)
    except Exception as error:  # noqa: BLE001 # of a driver, about a connection that is broken
        logger.warning(
            "the transaction of job.complete() cannot be ended",
            extra={"error_class": class_name(error)},
        )

    return True
