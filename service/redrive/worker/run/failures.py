"""Failures of an attempt, as they are recorded: without the secrets of its job."""

import contextlib
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from redrive.encryption import Undecryptable
from redrive.handlers import Handler, decode_object
from redrive.observability.source import with_source
from redrive.rules.attempts.failure import (
    Reported,
    class_name,
    describe,
    made_up,
    safe_text,
    scrubbed,
)
from redrive.rules.attempts.settlement import DeadLetter
from redrive.rules.model import Category, Failure, Reason
from redrive.rules.payloads.redact import secret_values
from redrive.signals import Signal, seconds
from redrive.worker.protocol import Extras, Work
from redrive.worker.run.own import clock
from redrive.worker.run.services import Services


class Failing(Protocol):
    """Parts of an attempt that its failures need."""

    services: Services
    work: Work
    handler: Handler
    started_ns: int
    traceparent: str | None

    def secrets(self) -> Collection[str]:
        """Return the texts that no record may contain."""
        ...


def described(attempt: Failing, error: BaseException, **detail: Any) -> Failure:
    """Record an exception of the handler, or of a step before it."""
    _notice(attempt, error)
    handler = attempt.handler
    if handler.secret:
        detail["secret_fields"] = sorted(handler.secret)

    secrets = attempt.secrets()
    failure = describe(
        error,
        attempt.work.kind,
        rules=handler.policy.rules,
        secrets=secrets,
        own=attempt.services.own,
        started_at=_started_at(attempt),
        **_trace(attempt),
        **detail,
        **attempt.services.where,
    )
    # The files of another system's failure are not here. `isinstance` may run its code.
    if issubclass(type(error), Reported):
        return failure

    return with_source(failure, attempt.services.source_lines, secrets)


def undescribed(attempt: Failing, error: BaseException) -> Failure:
    """Record an exception by its class alone: to ask it for more takes too long."""
    return _made_up_traced(
        attempt,
        error_class=class_name(error),
        message="its text took too long to make",
        category=Category.OTHER,
    )


def not_started(attempt: Failing, reason: Reason) -> DeadLetter:
    """Return the end of a job that must not start."""
    message = f"not started: {reason}"
    failure = _made_up(
        attempt, error_class="NotStarted", message=message, category=Category.OTHER
    )
    return DeadLetter(reason, _not_begun(failure), refund=True)


def undecryptable(attempt: Failing, error: Undecryptable) -> DeadLetter:
    """Return the end of a job that cannot be decrypted."""
    failure = _made_up(
        attempt,
        error_class="Undecryptable",
        message=str(error),
        category=Category.INVALID,
    )
    return DeadLetter(Reason.UNDECRYPTABLE, _not_begun(failure))


def newer_payload(attempt: Failing, version: int) -> DeadLetter:
    """Return the end of a job whose payload version no handler takes."""
    ours = attempt.handler.version
    message = f"the payload has version {version}, the handler takes {ours}"
    failure = _made_up(
        attempt, error_class="NewerPayload", message=message, category=Category.INVALID
    )

    return DeadLetter(Reason.INVALID_PAYLOAD, _not_begun(failure), refund=True)


def invalid_payload(
    attempt: Failing, error: BaseException, version: object
) -> DeadLetter:
    """Return the end of a job whose payload the handler does not take."""
    is_versioned = attempt.handler.version > 1 and isinstance(version, int)
    known = version if is_versioned else None
    failure = described(attempt, error, phase="payload", payload_version=known)
    failure = replace(failure, category=Category.INVALID)

    return DeadLetter(Reason.INVALID_PAYLOAD, _not_begun(failure))


def deadline_exceeded(attempt: Failing) -> Failure:
    """Record that an async handler was cancelled at its deadline."""
    limit = seconds(attempt.handler.policy.timeout)
    message = f"the attempt took longer than its timeout of {limit:g} s"
    return _made_up_traced(
        attempt, error_class="DeadlineExceeded", message=message, category=Category.LOST
    )


def asked_for(attempt: Failing, signal: Signal) -> Failure:
    """Record the signal that a handler raised to end the attempt."""
    _notice(attempt, signal)
    text = scrubbed(safe_text(signal), attempt.secrets())
    message = text or "asked for by the handler"
    name = type(signal).__name__

    return _made_up_traced(
        attempt, error_class=name, message=message, category=Category.OTHER
    )


def not_committed(attempt: Failing, *, was_open: bool) -> Failure:
    """Record that the transaction of `job.complete(conn)` was not committed."""
    if was_open:
        message = (
            "the handler returned while the transaction of job.complete()"
            " was still open"
        )
    else:
        message = (
            "the transaction of job.complete() was rolled back,"
            " but the handler returned as if it had succeeded"
        )

    return _made_up(
        attempt, error_class="NotCommitted", message=message, category=Category.OTHER
    )


def known_secrets(
    services: Services, handler: Handler, work: Work, extras: Extras
) -> Collection[str]:
    """Return the secrets of the job and of this process.

    A payload that cannot be read adds none: it has no keys to go by.
    """
    declared = handler.secret
    known = services.secrets | handler.known
    known |= secret_values(dict(extras.headers), declared)

    with contextlib.suppress(Exception):
        known |= secret_values(decode_object(work.payload), declared)

    return known


def _not_begun(failure: Failure) -> Failure:
    """Record that the handler did not begin, so a redrive repeats nothing."""
    return replace(failure, detail={**failure.detail, "began": False})


def _made_up(
    attempt: Failing, error_class: str, message: str, category: Category
) -> Failure:
    where = attempt.services.where
    return made_up(error_class, message, category, attempt.work.kind, **where)


def _made_up_traced(
    attempt: Failing, error_class: str, message: str, category: Category
) -> Failure:
    known = {**attempt.services.where, **_trace(attempt)}
    known["started_at"] = _started_at(attempt)

    return made_up(error_class, message, category, attempt.work.kind, **known)


def _notice(attempt: Failing, error: BaseException) -> None:
    if attempt.services.on_error is not None:
        attempt.services.on_error(error)


def _started_at(attempt: Failing) -> str:
    """Return when the attempt began, by this machine's clock, as its handler read it."""
    ago = (clock.monotonic_ns() - attempt.started_ns) / 1e9
    return datetime.fromtimestamp(clock.time() - ago, UTC).isoformat()


def _trace(attempt: Failing) -> dict[str, str]:
    """Return where to find this attempt among the traces."""
    if attempt.traceparent is None:
        return {}

    return {
        "traceparent": attempt.traceparent,
        "trace_id": attempt.traceparent.split("-")[1],
    }
