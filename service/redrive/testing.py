"""For users' own tests: run one job's handler without a database, and see what was enqueued in one.

def test_a_declined_card_is_given_up() -> None:
    outcome = run(jobs, "invoice.charge", {"number": 17, "amount": "9.90"})

    assert (outcome.outcome, outcome.reason) == ("dead", "gave_up")
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack, cast

import msgspec
import psycopg
from psycopg.rows import dict_row

from redrive.encryption import shown_payload
from redrive.handlers import Handlers, decode_object
from redrive.rules.job_fields import CheckedJob, JobOptions, Payload, check_job, fields_of_call
from redrive.rules.settlement import Complete, DeadLetter, NotComplete, Retry, Settlement
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the attempt would have ended.

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
    **options: Unpack[JobOptions],
) -> Outcome:
    """Run one attempt of a job's handler here and now, as a runner would.

    Args:
        handlers: the registry under test.
        kind, payload: as for `enqueue`; what could not be enqueued raises InvalidJob here, too.
        attempt: which attempt this is, from 1.
        options: as for `enqueue`.

    Raises:
        LookupError: no handler is registered for the kind.
    """
    if handlers.get(kind) is None:
        msg = f"no handler is registered for {kind!r}"
        raise LookupError(msg)
    job = check_job(fields_of_call("run", kind, payload, options))
    work = _claimed(job, attempt)
    return asyncio.run(_run(handlers, Jobs(0, [job["queue"]], [work]), work))


def _claimed(job: CheckedJob, attempt: int) -> Work:
    """A job that was never stored, as a runner gets one that is claimed."""
    extras = {
        "max_attempts": job["max_attempts"],
        "idempotency_key": job["idempotency_key"],
        "tenant": job["tenant"],
        "headers": msgspec.json.decode(job["headers"]),
        "expires_in": job["expires_in"],
    }
    text = msgspec.json.encode(extras).decode()
    return Work(1, attempt, attempt, job["kind"], job["payload"], text, 1)


def enqueued(conn: psycopg.Connection[Any], kind: str | None = None) -> list[dict[str, Any]]:
    """The jobs that wait or run, oldest first, of one kind or all.

    It sees what the open transaction of `conn` did.
    """
    with conn.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            "select id, kind, queue, payload, run_at, priority, max_attempts, idempotency_key,"
            " ordering_key, tenant, expires_at, headers, attempt"
            " from redrive.jobs where %s::text is null or kind = %s order by id",
            (kind, kind),
        ).fetchall()
    return [row | {"payload": shown_payload(row)} for row in found]


def assert_enqueued(
    conn: psycopg.Connection[Any],
    kind: str,
    payload: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the one job of `kind` with at least this payload and these fields (queue, ...).

    Raises:
        AssertionError: there is none, or more than one; the text shows what is enqueued.
    """
    there = enqueued(conn, kind)
    wanted = dict(payload or {})
    fitting = [job for job in there if _fits(job, wanted, fields)]
    if len(fitting) != 1:
        sought = f"{len(fitting)} jobs of kind {kind!r} with {wanted | fields}"
        msg = f"{sought}; enqueued are:\n{_shown(there)}"
        raise AssertionError(msg)
    return fitting[0]


def _fits(job: dict[str, Any], payload: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Whether a job has at least this payload and these fields."""
    has_payload = all(job["payload"].get(name) == value for name, value in payload.items())
    return has_payload and all(job[name] == value for name, value in fields.items())


def _shown(jobs: list[dict[str, Any]]) -> str:
    return "\n".join(f"  {job['payload']} in queue {job['queue']}" for job in jobs) or "  none"


async def _run(handlers: Handlers, batch: Jobs, work: Work) -> Outcome:
    sent: list[SideEffect | Observed | Checkpoint | Progress] = []

    def send(message: SideEffect | Observed | Checkpoint | Progress) -> None:
        sent.append(message)
        if isinstance(message, Checkpoint):
            kept = CheckpointKept(message.id, message.deliveries, message.n, is_kept=True)
            loop.call_soon_threadsafe(services.notes.heed, kept)

    loop = asyncio.get_running_loop()
    with contextlib.closing(Services(handlers, 1, send, where={})) as services:
        settlement = await _settlement_of(services, batch, work)
    side_effects = [
        (message.what, msgspec.json.decode(message.detail))
        for message in sent
        if isinstance(message, SideEffect)
    ]
    return _outcome(settlement, side_effects)


async def _settlement_of(services: Services, batch: Jobs, work: Work) -> Settlement:
    """Run the attempt within its limit of time, and return how it ends."""
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    attempt = Attempt(services, task, batch, work, time.monotonic_ns())
    clock = asyncio.create_task(cancel_overdue([attempt]))
    try:
        settlement = await attempt.run()
    finally:
        clock.cancel()
    if attempt.may_be_gone and _is_not_committed(settlement):
        settlement = None  # it holds only if the handler's transaction is rolled back
    return settlement or Complete()


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
