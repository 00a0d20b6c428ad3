"""Run enqueued jobs in this process, in a connection's open transaction."""

from typing import Any

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.encryption import shown_payload
from redrive.handlers import Handlers
from redrive.handlers.job import COMPLETE
from redrive.signals import Seconds, seconds
from redrive.testing.attempt import (
    IS_LEFT,
    Outcome,
    answer,
    attempt_of,
    hold,
    in_new_loop,
)
from redrive.worker.protocol import Jobs, Work

NEXT = (
    "select (select cast(to_jsonb(j) as text) from ("
    "select id, kind, queue, payload, headers, max_attempts, idempotency_key,"
    " ordering_key, tenant, deliveries, attempt,"
    " extract(epoch from expires_at - greatest(run_at, clock_timestamp()))"
    " as expires_in"
    " from redrive.jobs"
    " where run_at <= clock_timestamp() + cast(%s as float8) * interval '1 second'"
    " and kind in (select jsonb_array_elements_text(cast(cast(%s as text) as jsonb)))"
    " and not exists (select from redrive.claims k where redrive.jobs.id = any (k.ids))"
    " order by run_at, id limit 1) j)"
)
MOST = 1_000
"""Most jobs of one call; more suggest that jobs enqueue each other endlessly."""


def run_enqueued(
    handlers: Handlers, conn: SyncConnection, *, ahead: Seconds = 0
) -> dict[int, Outcome]:
    """Run one attempt of each due job, and of the jobs that they enqueue.

    The call ends when no due job is left. It works in the transaction that is open on
    `conn`, in the order in which the jobs are due. A completed job is gone then. Any
    other job stays unchanged and claimed.

    Args:
        handlers: the registry; jobs of other kinds are left alone.
        conn: the connection that has the jobs. Nothing is committed or rolled back on
            it.
        ahead: also run jobs that will be due within this time.

    Returns:
        The end of each job, by its id.

    Raises:
        RuntimeError: an event loop is running, so await `run_enqueued_async`; or jobs
            enqueue other jobs endlessly.
    """
    work = run_enqueued_async(handlers, conn, ahead=ahead)
    return in_new_loop(work, "run_enqueued_async")


async def run_enqueued_async(
    handlers: Handlers, conn: SyncConnection | AsyncConnection, *, ahead: Seconds = 0
) -> dict[int, Outcome]:
    """Run due jobs inside an event loop; `conn` may be an async connection.

    The arguments and the result are as for `run_enqueued`.

    Raises:
        RuntimeError: jobs enqueue other jobs endlessly.
    """
    outcomes: dict[int, Outcome] = {}
    for _ in range(MOST):
        # Ask again after each job, because it may have enqueued others.
        row = await _next(handlers, conn, seconds(ahead))
        if row is None:
            return outcomes

        job = row["id"]
        worker = await hold(conn, job)
        batch = Jobs(worker, [row["queue"]], [_work(row)])
        outcomes[job] = await attempt_of(handlers, batch, conn)

        if outcomes[job].outcome == "completed":
            await _complete(conn, worker, row)

    msg = f"{MOST} jobs have run, and there is one more: do they enqueue each other?"
    raise RuntimeError(msg)


async def _next(handlers: Handlers, conn: Any, ahead: float) -> dict[str, Any] | None:
    """Return the next due job of a kind with a handler, or None."""
    kinds = msgspec.json.encode([handler.kind for handler in handlers])
    parameters = (ahead, kinds.decode())
    found = sql_drivers.scalar(
        conn,
        NEXT,
        parameters,
        lambda text: None if text is None else msgspec.json.decode(text),
    )

    return await answer(found)


def _work(row: dict[str, Any]) -> Work:
    names = (
        "max_attempts",
        "idempotency_key",
        "ordering_key",
        "tenant",
        "headers",
        "expires_in",
    )
    extras = msgspec.json.encode({name: row[name] for name in names})
    payload = msgspec.json.encode(shown_payload(row))

    return Work(
        id=row["id"],
        # The claim of this test counts, too.
        deliveries=row["deliveries"] + 1,
        attempt=row["attempt"] + 1,
        kind=row["kind"],
        payload=payload.decode(),
        extras=extras.decode(),
        lane=1,
    )


async def _complete(conn: Any, worker: int, row: dict[str, Any]) -> None:
    """Complete a job if its handler has not done so."""
    job = row["id"]
    if await answer(sql_drivers.scalar(conn, IS_LEFT, (job,), bool)):
        parameters = (worker, job, row["deliveries"] + 1)
        await answer(sql_drivers.scalar(conn, COMPLETE, parameters, bool))
