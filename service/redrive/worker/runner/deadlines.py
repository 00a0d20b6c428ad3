"""Clock for the deadlines of all slots: it replaces a timer for each job."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from redrive.worker.runner.attempt import NEVER, Attempt

TICK, IDLE_TICK = 0.05, 0.25
"""Seconds between two looks: if an attempt has a deadline, and if none has."""


async def cancel_overdue(
    attempts: Sequence[Attempt | None],
    until_busy: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Cancel async attempts when their time is over. Never returns.

    `attempts` holds the running ones. `until_busy` waits until there are any.
    """
    while True:
        if until_busy is not None:
            await until_busy()

        is_idle = all(
            attempt is None or attempt.over_at == NEVER for attempt in attempts
        )
        await asyncio.sleep(IDLE_TICK if is_idle else TICK)
        # The process may have been suspended. Read first how long that was.
        await asyncio.sleep(0)
        now = time.monotonic()

        for attempt in attempts:
            if attempt is not None:
                attempt.cancel_if_overdue(now)
