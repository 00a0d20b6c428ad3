"""One clock for the deadlines of all slots, in place of a timer for each job."""

import asyncio
import time
from collections.abc import Callable, Sequence

from redrive.worker.runner.attempt import NEVER, Attempt

TICK, IDLE_TICK = 0.05, 0.25
"""Seconds between two looks, while an attempt has a deadline and while none has."""


async def cancel_overdue(
    attempts: Sequence[Attempt | None], has_work: Callable[[], bool], came: asyncio.Event
) -> None:
    """Cancel async attempts whose time is over, for ever; `attempts` holds those that run.

    Without work it waits until some has come.
    """
    while True:
        if not has_work():
            came.clear()
            await came.wait()
        is_idle = all(attempt is None or attempt.over_at == NEVER for attempt in attempts)
        await asyncio.sleep(IDLE_TICK if is_idle else TICK)
        now = time.monotonic()
        for attempt in attempts:
            if attempt is not None:
                attempt.cancel_if_overdue(now)
