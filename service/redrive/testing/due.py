"""Run what is enqueued, here and now, in the transaction that is open on a connection."""

from typing import Any

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.encryption import shown_payload
from redrive.handlers import Handlers
from redrive.job import COMPLETE
from redrive.signals import Seconds, seconds
from redrive.testing.attempt import IS_LEFT, Outcome, answer, attempt_of, hold, in_new_loop
from redrive.worker.protocol import Jobs, Work

NEXT = (
    "select (select cast(to_jsonb(j) as text) from ("
    "select id, kind, queue, payload, headers, max_attempts, idempotency_key, ordering_key, tenant,"
    " deliveries, attempt,"
    " extract(epoch from expires_at - greatest(run_at, clock_timestamp())) as expires_in"
    " from redrive.jobs"
    " where run_at <= clock_timestamp() + cast(%s as float8) * interval '1 second'"
    " and kind in (select jsonb_array_elements_text(cast(cast(%s as text) as jsonb)))"
    " and not exists (select from redrive.claims k where redrive.jobs.id = any (k.ids))"
    " order by run_at, id limit 1) j)"
)
MOST = 1_000
"""Jobs in one call: more of them enqueue each other for ever."""


def run_enqueued(
    handlers: Handlers, conn: SyncConnection, *, ahead: Seconds = 0
) -> dict[int, Outcome]:
    """Run one attempt of each job that is due, and of what they enqueue, until there is no more.

    It happens in the transaction that is open on `conn`, in the order in which the jobs are due. A
    job that completes is gone then; any other stays as it is, claimed.

    Args:
        handlers: the registry; jobs of other kinds are left alone.
        conn: where the jobs are. Nothing is committed or rolled back on it.
        ahead: how far to look into the future: jobs that are due by then run, too.

    Returns:
        how each job ended, by its id.

    Raises:
        RuntimeError: an event loop is running here, await `run_enqueued_async`; or the jobs enqueue
            others for ever.
    """
    return in_new_loop(run_enqueued_async(handlers, conn, ahead=ahead), "run_enqueued_async")


async def run_enqueued_async(
    handlers: Handlers, conn: SyncConnection | AsyncConnection, *, ahead: Seconds = 0
) -> dict[int, Outcome]:
    """Do the same within an event loop, where `conn` may be an async connection."""
    kinds = msgspec.json.encode([handler.kind for handler in handlers]).decode()
    outcomes: dict[int, Outcome] = {}
    for _ in range(MOST):
        text = await answer(
            sql_drivers.scalar(conn, NEXT, (seconds(ahead), kinds), lambda found: found)
        )
        if text is None:
            return outcomes
        row: dict[str, Any] = msgspec.json.decode(text)
        worker = await hold(conn, row["id"])
        outcome = await attempt_of(handlers, Jobs(worker, [row["queue"]], [_work(row)]), conn)
        outcomes[row["id"]] = outcome
        if outcome.outcome == "completed":
            await _complete(conn, worker, row)
    msg = f"{MOST} jobs have run, and there is one more: do they enqueue each other?"
    raise RuntimeError(msg)


def _work(row: dict[str, Any]) -> Work:
    names = ("max_attempts", "idempotency_key", "ordering_key", "tenant", "headers", "expires_in")
    extras = msgspec.json.encode({name: row[name] for name in names}).decode()
    payload = msgspec.json.encode(shown_payload(row)).decode()
    return Work(
        row["id"], row["deliveries"] + 1, row["attempt"] + 1, row["kind"], payload, extras, 1
    )


async def _complete(conn: Any, worker: int, row: dict[str, Any]) -> None:
    """Complete a job whose handler has not done so itself."""
    if await answer(sql_drivers.scalar(conn, IS_LEFT, (row["id"],), bool)):
        parameters = (worker, row["id"], row["deliveries"] + 1)
        await answer(sql_drivers.scalar(conn, COMPLETE, parameters, bool))
