"""Wait for the end of a job on the caller's own connection, and return its result."""

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

OUTCOME = (
    "select outcome, cast(result as text), delivery from redrive.outcome_v1(%s, %s)"
)
LIVE = "live"
UNKNOWN = "unknown"
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two looks: the pause doubles each time up to the longest."""


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a job.

    Attributes:
        outcome: `succeeded`, `dead`, `dismissed` or `cancelled`. `live`: the job has
            not ended in time. `unknown`: no record of the job is left, and none says
            that it succeeded.
        result: the value that the handler returned, as JSON has it. None if it returned
            nothing, or the result is no longer kept.
    """

    outcome: str
    result: Any = None


@overload
def wait(conn: SyncConnection, job: int, timeout: Seconds = 30) -> Ended: ...
@overload
def wait(
    conn: AsyncConnection, job: int, timeout: Seconds = 30
) -> Awaitable[Ended]: ...
def wait(conn: Any, job: int, timeout: Seconds = 30) -> Ended | Awaitable[Ended]:
    """Wait until a job has ended, for at most `timeout`.

    Commit the transaction that enqueued the job first; no worker can run it before. If
    the handler returns None, the outcome is `succeeded` in two cases. Either the queue
    keeps a history, or this call began before the job ended. If no record is left, the
    outcome is `unknown`. Then the job may have succeeded, its enqueue may have been
    rolled back, or its dead letter was purged.

    Args:
        conn: as for `enqueue`; an async connection returns an awaitable. The call
            polls, so it needs no connection of its own and works through a pooler.
        job: the id of the job.
        timeout: seconds or a timedelta.

    Raises:
        LookupError: there is no such job.
        Undecryptable: the result is encrypted with a key that this process does not
            have.
    """
    give_up_at = time.monotonic() + seconds(timeout)
    if sql_drivers.is_async(conn):
        return _wait_async(conn, job, give_up_at)

    pauses = _pauses()
    # Without any record, only a job that was seen live counts as succeeded.
    was_live = False

    while True:
        ended: Ended = _look(conn, job, was_live=was_live)
        was_live = ended.outcome == LIVE
        left = give_up_at - time.monotonic()
        if ended.outcome != LIVE or left <= 0:
            return ended

        time.sleep(min(left, next(pauses)))


async def _wait_async(conn: Any, job: int, give_up_at: float) -> Ended:
    pauses = _pauses()
    was_live = False

    while True:
        ended: Ended = await _look(conn, job, was_live=was_live)
        was_live = ended.outcome == LIVE
        left = give_up_at - time.monotonic()
        if ended.outcome != LIVE or left <= 0:
            return ended

        await asyncio.sleep(min(left, next(pauses)))


def _pauses() -> Iterator[float]:
    """Yield the pauses between looks, endlessly, with jitter to spread waiters."""
    pause = FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(LONGEST_PAUSE, 2 * pause)


def _look(conn: Any, job: int, *, was_live: bool) -> Any:
    """Return the state of a job, or an awaitable of it. Raises as `wait`."""
    return sql_drivers.row(
        conn, OUTCOME, (job, was_live), lambda row: _ended(job, *row)
    )


def _ended(
    job: int, outcome: str | None, result: str | None, delivery: int | None
) -> Ended:
    if outcome is None:
        msg = f"there is no job {job}"
        raise LookupError(msg)
    if outcome != "succeeded" or result is None or delivery is None:
        return Ended(outcome)

    stored = msgspec.json.decode(result)
    opened = open_noted(
        configured(), value=stored, what="result", job=job, delivery=delivery
    )

    return Ended(outcome, opened["value"])
