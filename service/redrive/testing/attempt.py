"""Run one attempt of a job here and now, as a runner would."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, Unpack, cast

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.enqueue import enqueue
from redrive.handlers import Handlers, decode_object
from redrive.job_function import options_for
from redrive.rules.attempts.settlement import Complete, DeadLetter, NotComplete, Retry, Settlement
from redrive.rules.payloads.job_fields import (
    CheckedJob,
    JobOptions,
    Payload,
    check_job,
    check_options,
    fields_of_call,
)
from redrive.rules.payloads.reveal import dump_model
from redrive.worker.protocol import (
    Checkpoint,
    CheckpointKept,
    Jobs,
    Observed,
    Progress,
    SideEffect,
    Work,
    report_of,
)
from redrive.worker.runner.attempt import Attempt
from redrive.worker.runner.deadlines import cancel_overdue
from redrive.worker.runner.services import Services

Answer = TypeVar("Answer")

HOLD = (
    "with held as (insert into redrive.claims (worker, queue, priority, lane, upto, upto_id, ids)"
    " select redrive.register_v4('redrive.testing', '', interval '1 hour', null, null, null),"
    " queue, priority, lane, run_at, id, array[id] from redrive.jobs"
    " where id = cast(%s as bigint) returning worker)"
    " select max(worker) from held"
)
"""What a claim does, for one job: one that was enqueued in the same transaction is not due yet."""

IS_LEFT = "select exists (select from redrive.jobs where id = cast(%s as bigint))"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Expected end of the attempt.

    Attributes:
        outcome: completed, retried, released, dead or cancelled.
        reason: why it died or was released; None otherwise.
        delay: seconds until it would run again.
        category, error_class, message: of the failure, as they would be stored; else empty.
        side_effects: what the handler reported, in order.
    """

    outcome: str
    reason: str | None = None
    delay: float = 0.0
    category: str = ""
    error_class: str = ""
    message: str = ""
    side_effects: list[tuple[str, dict[str, Any]]] = field(
        default_factory=list[tuple[str, dict[str, Any]]]
    )


def run(
    handlers: Handlers,
    kind: str,
    payload: Payload = None,
    *,
    attempt: int = 1,
    conn: SyncConnection | None = None,
    **options: Unpack[JobOptions],
) -> Outcome:
    """Run one attempt of a job's handler here and now, as a runner would.

    Args:
        handlers: the registry under test.
        kind: as for `handlers.enqueue`.
        payload: so, too; what could not be stored raises InvalidJob here as there. One that the
            handler cannot read is a dead letter, as of a producer elsewhere.
        attempt: which attempt this is, from 1.
        conn: where the job is, as one that a worker has claimed, so that the handler can call
            `job.complete(conn)`: the connection that the handler uses, too. Nothing is committed or
            rolled back on it. Without it there is no job in any database.
        options: as for `enqueue`.

    Raises:
        LookupError: no handler is registered for the kind.
        RuntimeError: an event loop is running here; await `run_async`.
    """
    check_options("run", options)
    return in_new_loop(
        run_async(handlers, kind, payload, attempt=attempt, conn=conn, **options), "run_async"
    )


async def run_async(
    handlers: Handlers,
    kind: str,
    payload: Payload = None,
    *,
    attempt: int = 1,
    conn: SyncConnection | AsyncConnection | None = None,
    **options: Unpack[JobOptions],
) -> Outcome:
    """Do the same within an event loop, where `conn` may be an async connection."""
    given = options_for(handlers.known(kind), options)
    stored = dump_model(payload)
    job = check_job(fields_of_call("run_async", kind, stored, given))
    if conn is None:
        return await attempt_of(
            handlers, Jobs(0, [job["queue"]], [_claimed(1, attempt, job, attempt)])
        )
    number = await answer(cast("Any", enqueue)(conn, kind, stored, **given))
    worker = await hold(conn, number)
    batch = Jobs(worker, [job["queue"]], [_claimed(number, 1, job, attempt)])
    return await attempt_of(handlers, batch, conn)


def in_new_loop(work: Coroutine[Any, Any, Answer], instead: str) -> Answer:
    """Run it to its end where no event loop runs; where one does, name what to await."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    msg = f"an event loop is running here: await {instead}(...)"
    raise RuntimeError(msg)


async def answer(given: Any) -> Any:
    """Return what a connection answers, sync or async."""
    return await given if inspect.isawaitable(given) else given


async def hold(conn: Any, job: int) -> int:
    """Claim a job in the transaction that is open on `conn`. Returns the worker that has it.

    Raises:
        LookupError: there is no such job, as the key it was enqueued with has succeeded already.
    """
    worker = await answer(sql_drivers.scalar(conn, HOLD, (job,), _itself))
    if worker is None:
        msg = f"job {job} has ended already: its idempotency key is taken"
        raise LookupError(msg)
    return worker


def _itself(value: Any) -> Any:
    return value


def _claimed(number: int, deliveries: int, job: CheckedJob, attempt: int) -> Work:
    """A new job as a runner gets it."""
    extras = {
        "max_attempts": job["max_attempts"],
        "idempotency_key": job["idempotency_key"],
        "tenant": job["tenant"],
        "headers": msgspec.json.decode(job["headers"]),
        "expires_in": job["expires_in"],
    }
    text = msgspec.json.encode(extras).decode()
    return Work(number, deliveries, attempt, job["kind"], job["payload"], text, 1)


async def attempt_of(handlers: Handlers, batch: Jobs, conn: Any = None) -> Outcome:
    """Run the one job of a batch; it is held on `conn`, if that is given."""
    sent: list[SideEffect | Observed | Checkpoint | Progress] = []

    def send(message: SideEffect | Observed | Checkpoint | Progress) -> None:
        sent.append(message)
        if isinstance(message, Checkpoint):
            kept = CheckpointKept(message.id, message.deliveries, message.n, is_kept=True)
            loop.call_soon_threadsafe(services.notes.heed, kept)

    loop = asyncio.get_running_loop()
    services = Services(handlers, 1, send, where={}, leaves_open=conn is not None)
    with contextlib.closing(services):
        settlement = await _settlement_of(services, batch, conn)
    side_effects = [
        (message.what, msgspec.json.decode(message.detail))
        for message in sent
        if isinstance(message, SideEffect)
    ]
    return _outcome(settlement, side_effects)


async def _settlement_of(services: Services, batch: Jobs, conn: Any) -> Settlement:
    """Run the attempt within its limit of time, and return how it ends."""
    (work,) = batch.rows
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    attempt = Attempt(services, task, batch, work, time.monotonic_ns())
    clock = asyncio.create_task(cancel_overdue([attempt]))
    try:
        settlement = await attempt.run()
    finally:
        clock.cancel()
    if attempt.may_be_gone and await _has_completed(conn, work, settlement):
        settlement = None
    return settlement or Complete()


async def _has_completed(conn: Any, work: Work, settlement: NotComplete | None) -> bool:
    """Return True if the handler's own completion stands, whatever it raised later."""
    if conn is None:  # then the best is supposed of its transaction
        return _is_not_committed(settlement)
    return not await answer(sql_drivers.scalar(conn, IS_LEFT, (work.id,), bool))


def _is_not_committed(settlement: NotComplete | None) -> bool:
    return (
        isinstance(settlement, Retry | DeadLetter)
        and settlement.failure.error_class == "NotCommitted"
    )


def _outcome(settlement: Settlement, side_effects: list[tuple[str, dict[str, Any]]]) -> Outcome:
    if isinstance(settlement, Complete):
        return Outcome(settlement.outcome.event, side_effects=side_effects)
    report = report_of(0, 0, settlement)
    failure = {} if report.failure is None else decode_object(report.failure)
    return Outcome(
        report.outcome.event,
        None if isinstance(settlement, Retry) else report.reason,
        report.delay,
        report.category,
        failure.get("error_class", ""),
        failure.get("message", ""),
        side_effects,
    )
