"""Log lines of attempts that did not succeed.

Each minute, the first few of similar ends get a line each. One more line counts the
others. At level `debug`, every end gets its line.
"""

import logging
import time
from typing import Any, NamedTuple

import msgspec

from redrive.observability.logs import FAILURE
from redrive.observability.metrics import MAX_LABEL_SETS
from redrive.observability.sampling import Sampler
from redrive.rules.attempts.settlement import Outcome
from redrive.worker.held import ClaimedJob
from redrive.worker.protocol import Report

logger = logging.getLogger("redrive.jobs")

TOO_OLD = {
    "unknown_kind": "this worker's registry has no handler for the kind: import the module that"
    " declares it, or start a worker that has it",
    "newer_payload": "the producer is newer than this worker: deploy the handler's newer version",
}
"""Releases that say that this worker cannot run a job, and what to do about each."""

TOO_OLD_SECONDS = 60.0
"""Time between two warnings of this for one kind."""

_LEVELS = {Outcome.DEAD_LETTER: logging.WARNING, Outcome.RELEASE: logging.DEBUG}


class _Identity(msgspec.Struct, frozen=True):
    """Fields that make records of failures alike; the rest is skipped."""

    error_class: str = ""
    fingerprint: str = ""


_NO_FAILURE = _Identity()
_identify = msgspec.json.Decoder(_Identity).decode
_decode_failure = msgspec.json.Decoder(dict[str, Any]).decode


class _Sort(NamedTuple):
    """Key of similar ends of attempts."""

    kind: str
    ended: str
    reason: str | None
    error_class: str
    fingerprint: str


class EndLog:
    """Log lines of one worker's attempts that did not succeed."""

    def __init__(self) -> None:
        self._too_old_at: dict[str, float] = {}
        self._sampler = Sampler[_Sort]()

    def ended(self, held: ClaimedJob, report: Report) -> None:
        """Log the end of an attempt, unless there were many like it."""
        now = time.monotonic()

        level = _LEVELS.get(report.outcome, logging.INFO)
        if report.reason in TOO_OLD and self._is_news(held.kind, now):
            level = logging.WARNING

        if not logger.isEnabledFor(level):
            return

        if self._has_line(held, report, now):
            logger.log(level, report.outcome.logged, extra=_fields(held, report))

    def _has_line(self, held: ClaimedJob, report: Report, now: float) -> bool:
        """Return True if this end gets a log line of its own."""
        # A release is at level debug, or it is the one warning of its minute.
        if report.outcome is Outcome.RELEASE or logger.isEnabledFor(logging.DEBUG):
            return True

        failure = _NO_FAILURE if report.failure is None else _identify(report.failure)
        sort = _Sort(
            kind=held.kind,
            ended=report.outcome.logged,
            reason=report.reason,
            error_class=failure.error_class,
            fingerprint=failure.fingerprint,
        )

        return self._sampler.lets_through(sort, now)

    def _is_news(self, kind: str, now: float) -> bool:
        """Return True if no warning of the last minute said that it is too old."""
        if now < self._too_old_at.get(kind, float("-inf")) + TOO_OLD_SECONDS:
            return False

        # Any number of kinds may come, so this memory has a limit.
        if len(self._too_old_at) >= MAX_LABEL_SETS:
            self._too_old_at.clear()

        self._too_old_at[kind] = now
        return True

    def say_held_back(self, now: float) -> None:
        """Log once a minute how many similar ends got no line of their own."""
        for sort, count in self._sampler.held_back(now):
            fields: dict[str, Any] = {}
            if sort is not None:
                fields = sort._asdict()

            logger.info("more like it", extra=fields | {"count": count})


def _fields(held: ClaimedJob, report: Report) -> dict[str, object]:
    """Return the fields of a settlement's log line, in order."""
    fields: dict[str, object] = {
        "job": held.id,
        "kind": held.kind,
        "attempt": held.attempt,
        "delivery": held.deliveries,
        "reason": report.reason,
        "category": report.category or None,
        "trace_id": report.trace,
    }
    if report.outcome is Outcome.RETRY:
        fields["retry_in"] = round(report.delay, 1)
    if report.reason in TOO_OLD:
        fields["fix"] = TOO_OLD[report.reason]

    if report.failure is not None:
        failure = fields[FAILURE] = _decode_failure(report.failure)
        fields["payload_version"] = failure["detail"].get("payload_version")

    return fields
