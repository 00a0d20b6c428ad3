"""Run one attempt of a job in this process, as a runner would."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, Unpack, cast

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.enqueue import enqueue
from redrive.handlers import Handlers, decode_object
from redrive.handlers.dump import dump_model
from redrive.handlers.job_function import options_for
from redrive.rules.attempts.settlement import (
    Complete,
    DeadLetter,
    NotComplete,
    Retry,
    Settlement,
)
from redrive.rules.payloads.job_fields import (
    CheckedJob,
    JobOptions,
    Payload,
    check_job,
    check_options,
    fields_of_call,
)
from redrive.testing.past import Past
from redrive.worker.protocol import (
    Checkpoint,
    CheckpointKept,
    Jobs,
    Observed,
    Progress,
    Report,
    SideEffect,
    Work,
    report_of,
)
from redrive.worker.run.attempt import Attempt
from redrive.worker.run.deadlines import Clock
from redrive.worker.run.services import Services

Answer = TypeVar("Answer")

HOLD = (
    "with held as ("
    "insert into redrive.claims (worker, queue, priority, lane, upto, upto_id, ids)"
    " select redrive.register_v1("
    "'redrive.testing', '', interval '1 hour', null, null, null, null),"
    " queue, priority, lane, run_at, id, array[id] from redrive.jobs"
    " where id = cast(%s as bigint) returning worker)"
    " select max(worker) from held"
)
"""Claim of one job; a normal claim does not find jobs of the same transaction."""

IS_LEFT = "select exists (select from redrive.jobs where id = cast(%s as bigint))"


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of an attempt in a test.

    Attributes:
        outcome: completed, retried, released, dead or cancelled.
        reason: the reason of a death or a release; None otherwise.
        delay: seconds until the job would run again.
        category, error_class, message: of the failure, as they would be stored; else
            empty.
        side_effects: the handler's side effects, in order.
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


def run(  # noqa: PLR0913 # keywords
    handlers: Handlers,
    kind: str,
    payload: Payload = None,
    *,
    attempt: int = 1,
    conn: SyncConnection | None = None,
    past: Past | None = None,
    **options: Unpack[JobOptions],
) -> Outcome:
    """Run one attempt of a job's handler in this process, as a runner would.

    Args:
        handlers: the registry under test.
        kind: as for `handlers.enqueue`.
        payload: as for `handlers.enqueue`. A payload that cannot be stored raises
            InvalidJob. If the handler cannot read it, the outcome is dead, as for jobs
            of other producers.
        attempt: the number of this attempt, from 1.
        conn: the connection that has the job, as if a worker had claimed it. The
            handler must use the same connection, and can call `job.complete(conn)`.
            Nothing is committed or rolled back on it. Without `conn` no database has
            the job.
        past: circumstances of an earlier attempt, among them its number and headers.
            `redrive job replay --pytest` writes such a test.
        options: as for `enqueue`.

    Raises:
        LookupError: no handler is registered for the kind.
        RuntimeError: an event loop is running; await `run_async` instead.
    """
    check_options("run", options)
    work = run_async(
        handlers, kind, payload, attempt=attempt, conn=conn, past=past, **options
    )
    return in_new_loop(work, "run_async")


async def run_async(  # noqa: PLR0913 # keywords
    handlers: Handlers,
    kind: str,
    payload: Payload = None,
    *,
    attempt: int = 1,
    conn: SyncConnection | AsyncConnection | None = None,
    past: Past | None = None,
    **options: Unpack[JobOptions],
) -> Outcome:
    """Run one attempt inside an event loop; `conn` may be an async connection.

    The arguments are as for `run`.

    Raises:
        LookupError: no handler is registered for the kind.
    """
    given = options_for(handlers.known(kind), options)
    if past is None:
        past = Past(attempt=attempt)
    else:
        given = _with_headers(given, past)

    stored = dump_model(payload)
    fields = fields_of_call("run_async", kind=kind, payload=stored, options=given)
    job = check_job(fields)

    number = 1
    worker = 0
    deliveries = past.attempt

    if conn is not None:
        number = await answer(cast("Any", enqueue)(conn, kind, stored, **given))
        worker = await hold(conn, number)
        # The job is new in the database, so this is its first delivery.
        deliveries = 1

    batch = Jobs(worker, [job["queue"]], [_claimed(number, deliveries, job, past)])

    with past.restored():
        return await attempt_of(handlers, batch, conn, seed=past.seed)


def _with_headers(options: JobOptions, past: Past) -> JobOptions:
    """Add the headers of a past attempt; one of them is the version of its payload."""
    headers = dict(past.headers) | dict(options.get("headers") or {})
    return {**options, "headers": headers, "version": headers.pop("version", None)}


def in_new_loop(work: Coroutine[Any, Any, Answer], instead: str) -> Answer:
    """Run a coroutine to its end; if an event loop is running, raise RuntimeError.

    The message names the function to await instead.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)

    # Otherwise, Python warns that the coroutine was never awaited.
    work.close()
    msg = f"an event loop is running here: await {instead}(...)"
    raise RuntimeError(msg)


async def answer(given: Any) -> Any:
    """Return the result of a query on a sync or async connection."""
    return await given if inspect.isawaitable(given) else given


async def hold(conn: Any, job: int) -> int:
    """Claim a job in the transaction that is open on `conn`, and return its worker.

    Raises:
        LookupError: there is no such job; for example, a job with its key has already
            succeeded.
    """
    worker = await answer(sql_drivers.scalar(conn, HOLD, (job,), lambda value: value))
    if worker is None:
        msg = f"job {job} has ended already: its idempotency key is taken"
        raise LookupError(msg)
    return worker


def _claimed(number: int, deliveries: int, job: CheckedJob, past: Past) -> Work:
    """Return a new job in the form that a runner receives."""
    extras: dict[str, Any] = {
        "max_attempts": job["max_attempts"],
        "idempotency_key": job["idempotency_key"],
        "tenant": job["tenant"],
        "headers": msgspec.json.decode(job["headers"]),
        "expires_in": job["expires_in"],
    }

    if past.checkpoint is not None:
        # It was kept under an earlier delivery.
        noted = {"data": past.checkpoint}
        extras["checkpoint"] = {"delivery": deliveries - 1, "data": noted}

    text = msgspec.json.encode(extras)
    return Work(
        id=number,
        deliveries=deliveries,
        attempt=past.attempt,
        kind=job["kind"],
        payload=job["payload"],
        extras=text.decode(),
        lane=1,
    )


async def attempt_of(
    handlers: Handlers, batch: Jobs, conn: Any = None, *, seed: str | None = None
) -> Outcome:
    """Run the only job of a batch; it is claimed on `conn`, if given."""
    settlement, effects = await settle_attempt(handlers, batch, conn, seed=seed)
    return _outcome(settlement, effects)


SideEffects = list[tuple[str, dict[str, Any]]]


async def settle_attempt(
    handlers: Handlers,
    batch: Jobs,
    conn: Any = None,
    *,
    seed: str | None = None,
    on_error: Callable[[BaseException], None] | None = None,
) -> tuple[Settlement, SideEffects]:
    """Run the only job of a batch; return its settlement and its side effects.

    Args:
        seed: of `job.random`; None = as in a worker.
        on_error: gets the exception that ends the attempt.
    """
    sent: list[SideEffect | Observed | Checkpoint | Progress] = []

    def send(message: SideEffect | Observed | Checkpoint | Progress) -> None:
        sent.append(message)
        if isinstance(message, Checkpoint):
            kept = CheckpointKept(
                message.id, message.deliveries, message.n, is_kept=True
            )
            # Answer later: `checkpoint` holds the lock that `answered` takes.
            loop.call_soon_threadsafe(services.notes.answered, kept)

    loop = asyncio.get_running_loop()
    services = Services(handlers, send, where={}, leaves_open=conn is not None)
    services.seed = seed
    services.on_error = on_error

    with contextlib.closing(services):
        settlement = await _settlement_of(services, batch, conn)

    return settlement, [
        (message.what, msgspec.json.decode(message.detail))
        for message in sent
        if isinstance(message, SideEffect)
    ]


async def _settlement_of(services: Services, batch: Jobs, conn: Any) -> Settlement:
    """Run the attempt within its timeout, and return its settlement."""
    (work,) = batch.rows
    attempt = Attempt(services, batch, work, time.monotonic_ns())
    attempt.task = cast("asyncio.Task[Any]", asyncio.current_task())
    clock = Clock(asyncio.get_running_loop(), [attempt])
    clock.start()

    try:
        settlement = await attempt.run()
    finally:
        clock.stop()

    if attempt.completed_by_handler and await _has_completed(conn, work, settlement):
        settlement = None

    return settlement or Complete()


async def _has_completed(conn: Any, work: Work, settlement: NotComplete | None) -> bool:
    """Return True if the handler completed the job itself, even if it raised later."""
    if conn is None:  # without a connection the commit is assumed
        return (
            isinstance(settlement, Retry | DeadLetter)
            and settlement.failure.error_class == "NotCommitted"
        )
    return not await answer(sql_drivers.scalar(conn, IS_LEFT, (work.id,), bool))


def _failure(report: Report) -> dict[str, Any]:
    if report.failure is None:
        return {}
    return decode_object(report.failure)


def _outcome(
    settlement: Settlement, side_effects: list[tuple[str, dict[str, Any]]]
) -> Outcome:
    if isinstance(settlement, Complete):
        return Outcome(settlement.outcome.event, side_effects=side_effects)

    report = report_of(0, 0, settlement)
    # The reason of a retry is its category, which has a field of its own.
    reason = None if isinstance(settlement, Retry) else report.reason
    failure = _failure(report)

    return Outcome(
        outcome=report.outcome.event,
        reason=reason,
        delay=report.delay,
        category=report.category,
        error_class=failure.get("error_class", ""),
        message=failure.get("message", ""),
        side_effects=side_effects,
    )
