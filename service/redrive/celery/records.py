"""Records of the spool: a task's dead letter, or the outcome of a task sent again."""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from redrive.celery.arguments import Arguments, stored
from redrive.dead_letters.imports.document import Imported
from redrive.dead_letters.imports.store import Reader
from redrive.observability.source import with_source
from redrive.rules.attempts.failure import describe
from redrive.rules.model import Category, Failure
from redrive.rules.payloads.limits import MAX_ATTEMPTS
from redrive.rules.payloads.redact import secret_values, secrets_of_environment

SOURCE = "celery"
"""Source of the dead letters, as in `dlq import --source`."""

PREFIX = "celery."
"""Prefix of the kinds."""

OUTCOME = "celery-outcome"
"""Kind of the jobs that hold the outcome of a task sent again."""

MARK = "redrive"
"""Header of a task that Redrive has sent; see `Sent`."""

HEADER = "celery"
"""Header of a dead letter: the task, its id, and how to send it again."""

UNIQUE_FOR = timedelta(days=30)
UNIQUE_BY = ("job", "send", "token")
MAX_OPTIONS = 5_000
MAX_OUTCOME = 7_000
"""Bytes of an outcome's failure. A result may have 8 KiB."""

MAX_OUTCOME_MESSAGE = 1_000
MAX_KIND = 63
LOST = {"WorkerLostError", "TimeLimitExceeded", "Terminated"}
"""Errors of billiard: the process that ran the task is gone."""

CONTINUED = ("chain", "link", "link_error")
"""Options that say what follows on the task. Without them it must not be sent."""

KEPT = ("root_id", "parent_id", "shadow", "soft_time_limit", "time_limit", *CONTINUED)
"""Options of a task that are kept, from Context.as_execution_options.

An expiry is not among them, because it has passed when the task is sent again.
"""

encode = msgspec.json.Encoder(enc_hook=str).encode


class Sent(msgspec.Struct, frozen=True):
    """Mark of a task that Redrive has sent.

    Anybody who can write to the broker may send one. Only the job knows the token.
    """

    job: int
    send: int
    queue: str
    token: str


class Record(msgspec.Struct, frozen=True):
    """Content of a file of the spool; one of the fields is set.

    Attributes:
        letter: a line for an import.
        failure: its failure, without secrets.
        outcome: a job of the kind OUTCOME, for enqueue_many.
    """

    letter: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None


decode = msgspec.json.Decoder(Record).decode


def name_of(task_id: str, sent: Sent | None) -> str:
    """Return the name of a record; a repeated report has the same."""
    send = ""
    if sent is not None:
        send = f"{sent.job}-{sent.send}-{sent.token}"

    return hashlib.sha256(f"{task_id}:{send}".encode()).hexdigest()[:32]


def kind_of(task: str) -> str:
    """Return the kind of a task's dead letters; a long name ends in a digest."""
    kind = PREFIX + as_name(task)
    if len(kind) <= MAX_KIND:
        return kind

    digest = hashlib.sha256(task.encode()).hexdigest()[:8]
    # A hyphen and eight digits follow.
    return f"{kind[: MAX_KIND - 9]}-{digest}"


def as_name(text: str) -> str:
    """Return a text with the characters that names of kinds and queues may have."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def as_queue(text: str) -> str:
    """Return the name of Redrive's queue for a queue of Celery."""
    name = as_name(text)[:MAX_KIND]
    if name[:1].isalpha():
        return name
    return f"q{name}"[:MAX_KIND]


def sent_of(mark: object) -> Sent | None:
    """Return what a task's header says; None for a task that Redrive did not send."""
    try:
        return msgspec.convert(mark, Sent)
    except msgspec.ValidationError:
        return None


def failure_of(error: BaseException, task: str, given: Arguments) -> Failure:
    """Describe the error of a task, without its secrets and the environment's."""
    secrets = secret_values([*given.args, dict(given.kwargs)])
    secrets |= secrets_of_environment(os.environ)
    failure = describe(error, kind_of(task), secrets=secrets)
    failure = with_source(failure, source_lines(), secrets)

    if type(error).__name__ in LOST:
        return replace(failure, category=Category.LOST)

    return failure


@cache
def source_lines() -> int:
    """Return REDRIVE_SOURCE_LINES; a wrong setting costs the lines, and no dead letter."""
    from redrive.settings import Settings  # noqa: PLC0415 # a program that only enqueues tasks never needs it

    given: dict[str, Any] = {}  # all of them have defaults
    try:
        return Settings(**given).source_lines
    except ValueError:
        return 0


def letter(request: Any, task: str, failure: Failure, given: Arguments) -> Record:
    """Return the record of a task that failed for good; `request` is its Context."""
    where: dict[str, Any] = request.delivery_info or {}
    queue = where.get("routing_key") or "celery"
    retries = request.retries or 0

    found = {
        "task": task,
        "id": request.id,
        "retries": request.retries,
        "worker": request.hostname,
        **{name: where.get(name) for name in ("exchange", "routing_key", "priority")},
        **_options(request.as_execution_options()),
    }
    fields: dict[str, Any] = {
        "source_id": request.id,
        "kind": kind_of(task),
        "queue": as_queue(queue),
        "payload": stored(given),
        "headers": {
            HEADER: {name: value for name, value in found.items() if value is not None}
        },
        "attempts": min(retries + 1, MAX_ATTEMPTS),
        "died_at": datetime.now(UTC).isoformat(),
    }
    return Record(letter=fields, failure=failure.record())


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options to send the task with, as JSON, and what is missing."""
    options = {name: given[name] for name in KEPT if given.get(name)}
    text = encode(options)
    if len(text) <= MAX_OPTIONS:
        return {"options": msgspec.json.decode(text)}

    return {"missing": [name for name in CONTINUED if name in options]}


def outcome(sent: Sent, failure: Failure | None) -> Record:
    """Return the record of how a task that Redrive sent has ended."""
    payload = {
        "job": sent.job,
        "send": sent.send,
        "token": sent.token,
        "outcome": "succeeded" if failure is None else "failed",
        "failure": None if failure is None else _short(failure),
    }
    # The send has enqueued this job without an outcome, and this replaces it.
    return Record(outcome=outcome_job(sent.queue, payload) | {"on_conflict": "replace"})


def outcome_job(queue: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the job that holds an outcome: one for each send."""
    return {
        "kind": OUTCOME,
        "queue": queue,
        "payload": payload,
        "unique_for": UNIQUE_FOR.total_seconds(),
        "unique_by": UNIQUE_BY,
    }


def _short(failure: Failure) -> dict[str, Any]:
    """Return a failure's record that fits into a result."""
    record = failure.record()
    record["message"] = record["message"][:MAX_OUTCOME_MESSAGE]
    stack: list[Any] = record["detail"].get("stack", [])

    while True:
        record["detail"] = {"stack": stack}
        if not stack or len(encode(record)) <= MAX_OUTCOME:
            return record

        # The outermost frames are left out first.
        stack = stack[1:]


def read_failure(record: Mapping[str, Any], verdict: str | None = None) -> Failure:
    """Return a failure from its record."""
    return Failure(
        error_class=record["error_class"],
        message=record["message"],
        category=Category(record["category"]),
        fingerprint=record["fingerprint"],
        detail=record["detail"],
        verdict=verdict,
    )


def read_letter(record: Record) -> Imported:
    """Return the dead letter of a record, checked.

    Raises:
        InvalidJob: it cannot be stored.
    """
    found = Reader(SOURCE).read(record.letter or {})
    return replace(found, failure=read_failure(record.failure or {}))
