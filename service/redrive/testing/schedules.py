"""Schedules in tests: when they fire, and what their jobs do."""

from datetime import UTC, datetime
from itertools import islice

import msgspec

from redrive.database.drivers import SyncConnection
from redrive.handlers import Handlers
from redrive.rules.scheduling.slots import Declaration, slots_after
from redrive.testing.attempt import Outcome, run


def slots(handlers: Handlers, schedule: str, after: datetime, n: int = 10) -> list[datetime]:
    """The first `n` slots of a schedule after an instant, UTC.

    Args:
        handlers: the registry under test.
        schedule: its name; the kind, where it has none of its own.

    Raises:
        LookupError: there is no schedule of that name.
    """
    declared = _schedule(handlers, schedule)
    return list(islice(slots_after(declared.cron, declared.tz, after), n))


def run_scheduled(
    handlers: Handlers, schedule: str, slot: datetime, *, conn: SyncConnection | None = None
) -> Outcome:
    """Run one attempt of the job that a schedule would enqueue for a slot, as `run` does.

    Args:
        handlers: the registry under test.
        schedule: its name; the kind, where it has none of its own.
        slot: for when the job comes.
        conn: as for `run`: where the job is, so that its handler can call `job.complete(conn)`.

    Raises:
        LookupError: there is no schedule of that name.
    """
    declared = _schedule(handlers, schedule)
    headers = {"schedule": declared.name, "scheduled_for": slot.astimezone(UTC).isoformat()}
    payload = msgspec.json.decode(declared.payload)
    return run(handlers, declared.kind, payload, conn=conn, queue=declared.queue, headers=headers)


def _schedule(handlers: Handlers, name: str) -> Declaration:
    found = handlers.schedules.get(name)
    if found is None:
        msg = f"no schedule {name!r}; there are: {', '.join(handlers.schedules) or 'none'}"
        raise LookupError(msg)
    return found
