"""Wait for a job's end, on the caller's own connection, and take what its handler returned."""

import asyncio
import random
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import Any, overload

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.encryption import configured, open_noted
from redrive.signals import Seconds, seconds

OUTCOME = "select outcome, cast(result as text), delivery from redrive.outcome_v2(%s, %s)"
LIVE = "live"
UNKNOWN = "unknown"
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two looks: twice as long each time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a job.

    Attributes:
        outcome: `succeeded`, `dead`, `dismissed` or `cancelled`; `live`: it has not ended in time;
            `unknown`: nothing is left of it, and nothing on record says that it succeeded.
        result: what its handler returned, as JSON has it; None where that was nothing, or is not
            kept any more.
    """

    outcome: str
    result: Any = None


@overload
def wait(conn: SyncConnection, job: int, timeout: Seconds = 30) -> Ended: ...
@overload
def wait(conn: AsyncConnection, job: int, timeout: Seconds = 30) -> Awaitable[Ended]: ...
def wait(conn: Any, job: int, timeout: Seconds = 30) -> Ended | Awaitable[Ended]:
    """Wait until a job has ended, for at most `timeout`.

    Commit first what enqueued it: nobody runs it before that. A job whose handler returned None is
    known to have succeeded if its queue has a history, or if this call began before the job ended.
    If nothing is on record, the outcome is `unknown`: the job may have succeeded, its enqueue may
    have been rolled back, or its dead letter was purged.

    Args:
        conn: as for `enqueue`; an async one gives an awaitable. It looks now and then, so it needs
            no connection of its own, and works through a pooler.
        job: its id.
        timeout: seconds or a timedelta.

    Raises:
        LookupError: there is no such job.
        Undecryptable: its result is encrypted with a key that this process has not.
    """
    give_up_at = time.monotonic() + seconds(timeout)
    if sql_drivers.is_async(conn):
        return _wait_async(conn, job, give_up_at)
    pauses, was_live = _pauses(), False
    while True:
        ended: Ended = _look(conn, job, was_live=was_live)
        was_live = ended.outcome == LIVE
        left = give_up_at - time.monotonic()
        if ended.outcome != LIVE or left <= 0:
            return ended
        time.sleep(min(left, next(pauses)))


async def _wait_async(conn: Any, job: int, give_up_at: float) -> Ended:
    pauses, was_live = _pauses(), False
    while True:
        ended: Ended = await _look(conn, job, was_live=was_live)
        was_live = ended.outcome == LIVE
        left = give_up_at - time.monotonic()
        if ended.outcome != LIVE or left <= 0:
            return ended
        await asyncio.sleep(min(left, next(pauses)))


def _pauses() -> Iterator[float]:
    """Yield the pauses between looks, endlessly, with jitter so that waiters spread
    out.
    """
    pause = FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(LONGEST_PAUSE, 2 * pause)


def _look(conn: Any, job: int, *, was_live: bool) -> Any:
    """Return how a job is now, or an awaitable of it. Raises as `wait`."""
    return sql_drivers.row(conn, OUTCOME, (job, was_live), lambda row: _ended(job, *row))


def _ended(job: int, outcome: str | None, result: str | None, delivery: int | None) -> Ended:
    if outcome is None:
        msg = f"there is no job {job}"
        raise LookupError(msg)
    if outcome != "succeeded" or result is None or delivery is None:
        return Ended(outcome)
    stored = msgspec.json.decode(result)
    return Ended(outcome, open_noted(configured(), stored, "result", job, delivery)["value"])
