"""Trial of a few dead letters of a plan, each in a confined process."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import LiteralString

import msgspec

from redrive.database.rows import Connection, rows
from redrive.dead_letters.campaigns.tried import Tried
from redrive.encryption import Whose, shown_payload, without_mark
from redrive.extras.replay.bundle import Bundle
from redrive.extras.replay.process import CannotConfine
from redrive.extras.replay.replay import Replayed, replay_confined
from redrive.extras.replay.scene import Request
from redrive.handlers import Handlers
from redrive.jobs.export import BUNDLE, opened_checkpoint
from redrive.rules.attempts.seeds import seed_of
from redrive.rules.rows import Fields
from redrive.signals import seconds
from redrive.worker.protocol import LastCheckpoint

MAX_SECONDS = 10.0
"""Limit for a handler whose policy allows more."""
SLACK_SECONDS = 0.5
"""Extra time after the timeout, for an async handler to react to its cancellation."""
MAX_CAUSE = 200
LATE = "DeadlineExceeded"
"""Name that a runner gives to a timeout."""

_CHOSEN: LiteralString = """
    select d.id, d.kind, d.queue, d.tenant, d.idempotency_key, d.ordering_key, d.headers,
           d.payload, d.deliveries, d.redrives, d.fingerprint,
           d.created_at,
           (select jsonb_build_object('delivery', p.deliveries, 'data', p.data)
            from redrive.checkpoints p where p.job = d.id) as checkpoint
    from (select j.n, j.id, j.redrives, count(*) over letters as size,
                 least(2 * row_number() over (letters order by j.n) - 1,
                       2 * row_number() over (letters order by j.n desc)) as turn
          from redrive.campaign_jobs j
          join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives
          where j.campaign = %s and j.state is null and d.kind = any (%s)
          window letters as (partition by d.fingerprint)
          order by turn, size desc, j.n limit %s) c
    join redrive.dead_letters d on d.id = c.id and d.redrives = c.redrives
    order by c.turn, c.size desc, c.n"""
"""Choice of dead letters: the oldest of each group, largest group first.

Then follow the newest of each group, the second oldest, and so on."""


def try_some(  # noqa: PLR0913 # dead letters and handlers
    conn: Connection,
    plan: int,
    kinds: Sequence[str],
    handlers: Handlers,
    target: str,
    count: int,
    progress: Callable[[int], None],
) -> Tried:
    """Run the handlers of a few dead letters of a plan, and store nothing.

    Args:
        kinds: kinds of the plan.
        handlers: the registry that `target` names, as `module:attribute`.

    Raises:
        CannotConfine: no confined process can be started.
    """
    tried = Tried()
    known = [kind for kind in kinds if handlers.get(kind)]

    for row in rows(conn, _CHOSEN, plan, known, count):
        limit = min(seconds(handlers.known(row["kind"]).policy.timeout), MAX_SECONDS)
        try:
            found = replay_confined(
                Request(target, _bundle(row)), limit=limit + SLACK_SECONDS
            )
        except CannotConfine as error:
            msg = f"--try: {error}"
            raise CannotConfine(msg) from None

        _count(tried, row, found)
        progress(1)

    return tried


def _count(tried: Tried, row: Fields, found: Replayed) -> None:
    """Count the result of an attempt."""
    result = found.result
    failure = result and result.failure

    # The refused call may be the cause of the failure, so it counts first.
    if found.targets:
        tried.stopped_at_call += 1
    elif found.is_late or (failure and failure["error_class"] == LATE):
        tried.timed_out += 1
    elif result and result.outcome == "completed":
        tried.returned += 1
    else:
        cause = _cause_of(found)
        tried.failed[cause] = tried.failed.get(cause, 0) + 1
        tried.again += bool(failure and failure["fingerprint"] == row["fingerprint"])


def _cause_of(found: Replayed) -> str:
    """Return the error, why the process died, or why the handler released its job."""
    result = found.result
    if result is None:
        return f"RunnerLost: {found.end}"[:MAX_CAUSE]
    if result.failure is None:
        return result.reason or result.outcome

    cause = result.failure["error_class"]
    if message := result.failure["message"]:
        cause = f"{cause}: {message}"

    return cause[:MAX_CAUSE]


def _bundle(row: Fields) -> Bundle:
    """Return the job as an attempt after a redrive would get it."""
    deliveries = row["deliveries"] + 1
    saved = opened_checkpoint(row["id"], row["checkpoint"])
    checkpoint = None if saved is None else msgspec.convert(saved, LastCheckpoint)
    return Bundle(
        bundle=BUNDLE,
        id=row["id"],
        kind=row["kind"],
        queue=row["queue"],
        payload=shown_payload(row),
        attempt=1,
        deliveries=deliveries,
        created_at=row["created_at"],
        started_at=datetime.now(UTC),
        seed=seed_of(row["id"], deliveries),
        headers=without_mark(row["headers"]),
        checkpoint=checkpoint,
        redrives=row["redrives"] + 1,
        tenant=row["tenant"],
        idempotency_key=Whose.of(row).idempotency_key,
        ordering_key=row["ordering_key"],
    )
