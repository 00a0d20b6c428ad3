"""Messages between supervisor and runner.

Payloads cross as the text that Postgres gave. The runner parses them one by one, so a
payload that cannot be read fails its own job and not its batch.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from redrive.rules.attempts.settlement import (
    Cancel,
    DeadLetter,
    NotComplete,
    Outcome,
    Release,
    Retry,
)
from redrive.rules.heal import Heal
from redrive.rules.model import Claimed
from redrive.rules.slots import Declaration


class Work(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Claimed job on its way to a runner.

    `extras` is the JSON of `Extras`; None if all of it has its default. `lane` counts
    `Jobs.queues` from 1. `created` is in seconds since 1970.
    """

    id: int
    deliveries: int
    attempt: int
    kind: str
    payload: str
    extras: str | None
    lane: int
    created: float = 0.0


class LastCheckpoint(msgspec.Struct, frozen=True):
    """Checkpoint of an earlier attempt, and its delivery; `data` may be an envelope."""

    delivery: int
    data: dict[str, Any]


class _Facts(msgspec.Struct, frozen=True):
    """Fields that few jobs have, and no producer fills."""

    max_attempts: int | None = None
    losses: int = 0
    refunds: int | None = None
    streak: int = 0
    fingerprint: str | None = None
    redrives: int = 0
    source: str | None = None
    expires_in: float | None = None
    retried_for: float | None = None


class Extras(_Facts, frozen=True):
    """Fields that few jobs have."""

    tenant: str | None = None
    headers: dict[str, Any] = {}
    idempotency_key: str | None = None
    ordering_key: str | None = None
    checkpoint: LastCheckpoint | None = None


NO_EXTRAS = Extras()


_decode_facts = msgspec.json.Decoder(_Facts).decode
decode_extras = msgspec.json.Decoder(Extras).decode


def read_extras(text: str | None) -> Extras:
    """Read the rare fields of a job. Never fails.

    Headers can hold what Python cannot read.
    """
    if text is None:
        return NO_EXTRAS

    try:
        return decode_extras(text)
    except (msgspec.DecodeError, RecursionError):
        pass

    # A header that cannot be read does not hide the facts that decide about a job.
    try:
        facts = _decode_facts(text)
    except (msgspec.DecodeError, RecursionError):
        return NO_EXTRAS

    return Extras(**msgspec.structs.asdict(facts))


def claimed_of(kind: str, attempt: int, extras: Extras) -> Claimed:
    """Return the facts about a claimed job that decisions need."""
    return Claimed(
        kind=kind,
        attempt=attempt,
        max_attempts=extras.max_attempts,
        losses=extras.losses,
        streak=extras.streak,
        fingerprint=extras.fingerprint,
        expires_in=extras.expires_in,
        retried_for=extras.retried_for or 0.0,
    )


def has_expired(text: str | None) -> bool:
    """Return True if the job's window had closed when it was claimed."""
    expires_in = read_extras(text).expires_in
    return expires_in is not None and expires_in <= 0


class Report(msgspec.Struct, array_like=True, frozen=True):
    """End of an attempt in the form of settle's parameters; `report_of` writes it.

    `failure` is JSON. `completed_by_handler`: the handler completed the job in a
    transaction of its own. So the row is normally gone. The report is used only if
    that transaction was rolled back.
    """

    id: int
    deliveries: int
    outcome: Outcome
    delay: float = 0.0
    run_at: datetime | None = None
    refund: bool = False
    losses: int = 0
    failure: str | None = None
    reason: str | None = None
    category: str = ""
    seconds: float = 0.0
    completed_by_handler: bool = False
    trace: str | None = None


class Kind(msgspec.Struct, array_like=True, frozen=True):
    """Facts about a handler that the supervisor needs.

    `policy` has the fields of a `Policy` except its rules.
    """

    kind: str
    timeout: float
    policy: dict[str, Any]
    depends_on: tuple[str, ...] = ()
    queue: str = "default"
    holds_key: bool = False
    limits: tuple[str, ...] = ()
    approval: str | None = None
    heal: Heal | None = None
    secret: tuple[str, ...] = ()
    redrive_rate: float | None = None
    repeatable: bool = True


class Dependency(msgspec.Struct, array_like=True, frozen=True):
    """Settings of a breaker.

    `threshold` failures within `window` seconds open it, at first for `cooldown`
    seconds.
    """

    name: str
    threshold: int = 5
    window: float = 10.0
    cooldown: float = 5.0


class Jobs(msgspec.Struct, array_like=True, tag="jobs"):
    """Down: run these jobs.

    `worker` is the identity that claimed them. `queues` has the queue of each lane that
    it claimed from.
    """

    worker: int
    queues: list[str]
    rows: list[Work]


class Stop(msgspec.Struct, array_like=True, tag="stop"):
    """Down: start nothing more, list what was not started, and end after the rest."""


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """Up: the runner is ready, and lists the kinds that it can run."""

    kinds: list[Kind]
    dependencies: list[Dependency]
    schedules: list[Declaration] = []


class Done(msgspec.Struct, array_like=True, tag="done"):
    """Up: completed attempts as (id, deliveries, seconds).

    `example` is the id of one of them and its trace, if they are traced.
    """

    rows: list[tuple[int, int, float]]
    example: tuple[int, str] | None = None


class Ended(msgspec.Struct, array_like=True, tag="ended"):
    """Up: attempts that ended in another way."""

    reports: list[Report]


class SideEffect(msgspec.Struct, array_like=True, tag="side_effect"):
    """Up: a side effect that a handler reports."""

    id: int
    deliveries: int
    what: str
    detail: str


class Checkpoint(msgspec.Struct, array_like=True, tag="checkpoint"):
    """Up: a checkpoint for the next attempt, the `n`th of this one, as JSON."""

    id: int
    deliveries: int
    n: int
    data: str


class Progress(msgspec.Struct, array_like=True, tag="progress"):
    """Up: progress of handlers as (id, deliveries, share, JSON of text or envelope)."""

    rows: list[tuple[int, int, float, str]]


class Returned(msgspec.Struct, array_like=True, tag="returned"):
    """Up, before `Done`: a handler's result as JSON, to keep for this many seconds."""

    id: int
    deliveries: int
    result: str
    keep: float


class CheckpointKept(msgspec.Struct, array_like=True, tag="checkpoint_kept"):
    """Down: a checkpoint and all earlier ones of its job are committed.

    If not, another worker has the job by now, or the database refuses it.
    """

    id: int
    deliveries: int
    n: int
    is_kept: bool


class Sampled(msgspec.Struct, array_like=True, tag="sampled"):
    """Up: facts of a job of this kind that succeeded, as JSON."""

    kind: str
    facts: str


class OpenBreakers(msgspec.Struct, array_like=True, tag="open_breakers"):
    """Down: start nothing that depends on these breakers, except probes.

    A lease in `probes` allows one job, however often it is sent.

    `names`: breaker -> the monotonic instant until which it is open, and its cooldown
    in seconds. `probes`: breaker -> the lease, the monotonic instant at which it ends.
    """

    names: dict[str, tuple[float, float]]
    probes: dict[str, float]


class Observed(msgspec.Struct, array_like=True, tag="observed"):
    """Up: a handler used a dependency by name, with or without success."""

    name: str
    succeeded: bool


class Died(msgspec.Struct, array_like=True, tag="died"):
    """Down: a job died, and no runner saw it; for the registry's `on_dead`."""

    id: int
    kind: str
    attempt: int
    report: Report


class CancelJob(msgspec.Struct, array_like=True, tag="cancel_job"):
    """Down: a job is no longer wanted, if it is this delivery."""

    id: int
    deliveries: int


class Suspended(msgspec.Struct, array_like=True, tag="suspended"):
    """Down: the runner was suspended for this long, which counts to no timeout."""

    seconds: float


class Unstarted(msgspec.Struct, array_like=True, tag="unstarted"):
    """Up: jobs that were not started before a Stop."""

    ids: list[int]


class Leaving(msgspec.Struct, array_like=True, tag="leaving"):
    """Up: the runner starts nothing more, because something in its process is broken."""

    why: str


Down = Jobs | Stop | Died | OpenBreakers | CancelJob | CheckpointKept | Suspended
Up = (
    Hello
    | Done
    | Ended
    | Unstarted
    | Leaving
    | SideEffect
    | Observed
    | Checkpoint
    | Progress
    | Returned
    | Sampled
)

encode_frame = msgspec.msgpack.Encoder().encode
decode_down: Callable[[bytes | bytearray | memoryview], Down] = msgspec.msgpack.Decoder(
    Down
).decode
decode_up: Callable[[bytes | bytearray | memoryview], Up] = msgspec.msgpack.Decoder(
    Up
).decode
_encode_json = msgspec.json.Encoder().encode


def report_of(  # noqa: PLR0913 # a record
    job: int,
    deliveries: int,
    settlement: NotComplete,
    *,
    seconds: float = 0.0,
    completed_by_handler: bool = False,
    trace: str | None = None,
) -> Report:
    """Return a settlement as a report. The keywords are fields of it.

    `seconds`: how long the handler ran.
    """
    report = Report(
        job,
        deliveries,
        settlement.outcome,
        seconds=seconds,
        completed_by_handler=completed_by_handler,
        trace=trace,
    )

    match settlement:
        case Retry(failure=failure, delay=delay):
            return _failed(report, settlement, str(failure.category), delay)

        case DeadLetter(reason=reason):
            return _failed(report, settlement, str(reason))

        case Release(why=why, delay=delay, at=at):
            return replace(report, delay=delay, run_at=at, refund=True, reason=why)

        case Cancel():
            return report

        case _:
            assert_never(settlement)


def _failed(
    report: Report, settlement: Retry | DeadLetter, reason: str, delay: float = 0.0
) -> Report:
    failure = settlement.failure
    return replace(
        report,
        delay=delay,
        refund=settlement.refund,
        losses=settlement.losses,
        failure=_encode_json(failure.record()).decode(),
        reason=reason,
        category=str(failure.category),
    )
