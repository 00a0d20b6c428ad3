"""For users' own tests: run one job's handler without a database, and see what was enqueued in one.

def test_a_declined_card_is_given_up() -> None:
    outcome = run(jobs, "invoice.charge", {"number": 17, "amount": "9.90"})

    assert (outcome.outcome, outcome.reason) == ("dead", "gave_up")
"""

import asyncio
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

import msgspec
import psycopg
from psycopg.rows import dict_row

from redrive.encryption import shown_payload
from redrive.handlers import Handlers
from redrive.rules import settlement
from redrive.rules.job_fields import JobOptions, Payload, check_job, fields_of_call
from redrive.worker.channel import Channel
from redrive.worker.protocol import Jobs, Report, SideEffect, Work, decode_up
from redrive.worker.runner.loop import Runner
from redrive.worker.shared_state import SharedState


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the attempt would have ended.

    Attributes:
        outcome: completed, retried, released, dead or cancelled.
        reason: why it died or was released; None otherwise.
        delay: seconds until it would run again.
        category, error_class, message: of the failure, as they would be stored; empty when there
        was none.
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
    """Run one attempt of a job's handler here and now, as a runner would: payload type, policy,
    signals, timeout.

    Args:
        handlers: the registry under test.
        kind, payload: as for `enqueue`; a payload that could not be enqueued raises InvalidJob here
        too.
        attempt: which attempt this is, from 1.
        options: as for `enqueue`.

    Raises:
        LookupError: no handler is registered for the kind.
    """
    if handlers.get(kind) is None:
        msg = f"no handler is registered for {kind!r}"
        raise LookupError(msg)
    job = check_job(fields_of_call("run", kind, payload, options))
    extras = {
        "max_attempts": job["max_attempts"],
        "idempotency_key": job["idempotency_key"],
        "tenant": job["tenant"],
        "headers": msgspec.json.decode(job["headers"]),
        "expires_in": job["expires_in"],
    }
    text = msgspec.json.encode(extras).decode()
    work = Work(1, attempt, attempt, kind, job["payload"], text, 1)
    return asyncio.run(_run(handlers, Jobs(0, [job["queue"]], [work]), work))


def enqueued(conn: psycopg.Connection[Any], kind: str | None = None) -> list[dict[str, Any]]:
    """The jobs that wait or run, oldest first; of one kind or all. Sees what the open transaction
    of `conn` did.
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
    """Return the one job of `kind` that has at least this in its payload, and these fields (queue,
    priority, ...).

    Raises:
        AssertionError: there is none, or more than one; the text shows what there is.
    """
    there = enqueued(conn, kind)
    wanted = dict(payload or {})
    fitting = [
        job
        for job in there
        if all(job["payload"].get(name) == value for name, value in wanted.items())
        and all(job[name] == value for name, value in fields.items())
    ]
    if len(fitting) != 1:
        shown = (
            "\n".join(f"  {job['payload']} in queue {job['queue']}" for job in there) or "  none"
        )
        msg = f"{len(fitting)} jobs of kind {kind!r} with {wanted | fields}; enqueued are:\n{shown}"
        raise AssertionError(msg)
    return fitting[0]


async def _run(handlers: Handlers, batch: Jobs, work: Work) -> Outcome:
    ours, theirs = socket.socketpair()
    shared = SharedState(1)
    try:
        report = await Runner(Channel(theirs), shared, handlers, {}).once(
            batch, work, time.monotonic_ns()
        )
        await asyncio.sleep(0)  # side effects of a handler in a thread are sent by the loop
        told = [
            message
            for frame in Channel(ours).receive() or ()
            if isinstance(message := decode_up(frame), SideEffect)
        ]
    finally:
        shared.close()
        ours.close()
        theirs.close()
    return _outcome(report, [(t.what, msgspec.json.decode(t.detail)) for t in told])


def _outcome(report: Report | None, side_effects: list[tuple[str, dict[str, Any]]]) -> Outcome:
    failure: dict[str, Any] = {}
    if report is not None and report.failure is not None:
        failure = msgspec.json.decode(report.failure)
    # A handler that completed the job in its own transaction and returned: the report is for a
    # rollback of it.
    if report is None or (report.may_be_gone and failure.get("error_class") == "NotCommitted"):
        return Outcome(settlement.Outcome.COMPLETE.event, side_effects=side_effects)
    reason = (
        report.reason
        if report.outcome in {settlement.Outcome.DEAD_LETTER, settlement.Outcome.RELEASE}
        else None
    )
    return Outcome(
        report.outcome.event,
        reason,
        report.delay,
        report.category,
        failure.get("error_class", ""),
        failure.get("message", ""),
        side_effects,
    )
