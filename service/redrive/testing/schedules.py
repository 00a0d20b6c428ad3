"""Schedules in tests: their slots, and an attempt of a slot's job."""

from datetime import UTC, datetime
from itertools import islice

import msgspec

from redrive.database.drivers import SyncConnection
from redrive.handlers import Handlers
from redrive.rules.slots import Declaration, slots_after
from redrive.testing.attempt import Outcome, run


def slots(
    handlers: Handlers, schedule: str, after: datetime, n: int = 10
) -> list[datetime]:
    """Return the first `n` slots of a schedule after an instant, UTC.

    Args:
        handlers: the registry under test.
        schedule: the name of the schedule; the kind, if the schedule has no name.

    Raises:
        LookupError: there is no schedule of that name.
    """
    declared = _schedule(handlers, schedule)
    return list(islice(slots_after(declared.cron, declared.tz, after), n))


def run_scheduled(
    handlers: Handlers,
    schedule: str,
    slot: datetime,
    *,
    conn: SyncConnection | None = None,
) -> Outcome:
    """Run one attempt of the job that a schedule would enqueue for a slot, like `run`.

    Args:
        handlers: the registry under test.
        schedule: the name of the schedule; the kind, if the schedule has no name.
        slot: the slot of the job.
        conn: as for `run`: the connection that has the job, for `job.complete(conn)`.

    Raises:
        LookupError: there is no schedule of that name.
    """
    declared = _schedule(handlers, schedule)
    headers = {
        "schedule": declared.name,
        "scheduled_for": slot.astimezone(UTC).isoformat(),
    }
    payload = msgspec.json.decode(declared.payload)

    return run(
        handlers,
        declared.kind,
        payload,
        conn=conn,
        queue=declared.queue,
        headers=headers,
    )


def _schedule(handlers: Handlers, name: str) -> Declaration:
    found = handlers.schedules.get(name)
    if found is None:
        known = ", ".join(handlers.schedules) or "none"
        msg = f"there is no schedule {name!r}; there are: {known}"
        raise LookupError(msg)

    return found
