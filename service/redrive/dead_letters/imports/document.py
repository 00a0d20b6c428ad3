"""Check of a dead letter from another system, and its conversion to the stored form.

The other system gives its failure only as text. The failure gets a category, a
fingerprint and redaction like any other. So imported dead letters are grouped and
explained like all others.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from redrive.dead_letters.edit.patch import PAYLOAD
from redrive.errors import InvalidJob
from redrive.rules.attempts.failure import reported
from redrive.rules.attempts.policy import is_whole
from redrive.rules.model import Category, Failure, Reason
from redrive.rules.nearest import nearest_or_all
from redrive.rules.payloads.job_fields import CheckedJob, check_job
from redrive.rules.payloads.limits import (
    MAX_ATTEMPTS,
    check_instant,
    check_number,
    check_text,
)
from redrive.rules.payloads.redact import secret_values
from redrive.rules.rows import Fields, Row

NOT_RECORDED = "NotRecorded"
"""Error class of a dead letter without an error."""

MAX_TEXT = 262_144

OF_THE_JOB = ("kind", "payload", "queue", "tenant", "headers", "idempotency_key")
"""Fields with the same meaning as in enqueue."""


class _Form(NamedTuple):
    """Format of a stack's lines, and whether the innermost line comes first."""

    place: re.Pattern[str]
    is_innermost_first: bool


_STACKS = (
    _Form(  # Python
        re.compile(
            r'File "(?P<file>[^"\n]{1,400})", line (?P<line>\d{1,9}), in (?P<function>[^\n]{1,200})'
        ),
        is_innermost_first=False,
    ),
    _Form(  # Ruby
        re.compile(
            r"^[ \t]{0,40}(?:from )?(?P<file>[^\s:][^:\n]{0,399}):(?P<line>\d{1,9}):in "
            r"[`'](?P<function>[^'\n]{1,200})'",
            re.MULTILINE,
        ),
        is_innermost_first=True,
    ),
    _Form(  # JavaScript, Java
        re.compile(
            r"^[ \t]{0,40}at (?:async )?(?P<function>[^\s(]{1,200}) ?"
            r"\((?P<file>[^():\n][^()\n]{0,399}?):(?P<line>\d{1,9})(?::\d{1,9})?\)",
            re.MULTILINE,
        ),
        is_innermost_first=True,
    ),
)
_PYTHON_BEGINS = "Traceback (most recent call last)"
_NOT_OWN = re.compile(
    r"^<|^node:|/(?:gems|lib/ruby|lib/python[\d.]+|site-packages|dist-packages|node_modules)/"
)
"""Directories of libraries on any machine."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A checked dead letter of another system.

    Attributes:
        job: the fields of the job as they are stored; objects are JSON text.
        source_id: its id in the other system, or None.
        died_at: time of death; None = not given.
        created_at: time of the enqueue; None = not given.
    """

    job: CheckedJob
    failure: Failure
    reason: Reason
    attempts: int
    source_id: str | None
    died_at: datetime | None
    created_at: datetime | None


def read(fields: Fields, source: str) -> Imported:
    """Check a dead letter that came from `source`.

    Raises:
        InvalidJob: a field is unknown, missing or out of range; `path` and `rule` say
            which.
    """
    _check_names(fields)
    death = _death(fields)
    job = _job(fields, source, death["source_id"])
    contents = [fields.get("payload"), fields.get("headers")]
    secrets = secret_values(contents)

    return Imported(
        job=job,
        failure=_failure(death, source, job["kind"], secrets),
        reason=Reason(death["reason"]),
        attempts=death["attempts"],
        source_id=death["source_id"],
        died_at=death["died_at"],
        created_at=death["created_at"],
    )


def _check_names(fields: Fields) -> None:
    known = (*OF_THE_JOB, *_CHECKS)
    for name in fields:
        if name not in known:
            raise InvalidJob(name, f"unknown field; {nearest_or_all(name, known)}")


def _death(fields: Fields) -> dict[str, Any]:
    """Return the checked fields about the death."""
    death = {name: check(name, fields.get(name)) for name, check in _CHECKS.items()}
    created_at, died_at = death["created_at"], death["died_at"]
    if created_at and died_at and created_at > died_at:
        path = "created_at"
        raise InvalidJob(path, "must not lie after died_at")

    return death


def _failure(
    death: Fields, source: str, kind: str, secrets: Collection[str]
) -> Failure:
    return reported(
        death["error_class"] or NOT_RECORDED,
        message=death["message"] or f"{source} kept no message",
        stack=frames(death["stack"] or ""),
        kind=kind,
        category=death["category"],
        secrets=secrets,
    )


def frames(stack: str) -> list[Row]:
    """Return the places in a printed stack, outermost first; none if unknown."""
    # Of a chain, Python prints the exception that was raised last at the end.
    text = stack[max(0, stack.rfind(_PYTHON_BEGINS)) :]
    for form in _STACKS:
        found = [_frame(place) for place in form.place.finditer(text)]
        if found:
            return found[::-1] if form.is_innermost_first else found

    return []


def _frame(place: re.Match[str]) -> Row:
    file = place["file"]
    return {
        "file": file,
        "function": place["function"],
        # the last part of the path, because each release has its own directory
        "module": re.split(r"[/\\]", file)[-1],
        "line": int(place["line"]),
        "own": not _NOT_OWN.search(file),
    }


def _job(fields: Fields, source: str, source_id: str | None) -> CheckedJob:
    """Convert the fields to a job's fields; the origin is stored in the headers."""
    of_job = {name: fields[name] for name in OF_THE_JOB if name in fields}
    # A null queue stands for the default, like a missing one.
    if of_job.get("queue", "") is None:
        del of_job["queue"]
    if of_job.get(PAYLOAD, "") is None:
        raise InvalidJob(PAYLOAD, "must be an object, not null")

    headers: Any = fields.get("headers") or {}
    if isinstance(headers, Mapping):  # other types are rejected by their check
        headers = {**cast("Fields", headers), **_origin(source, source_id)}

    return check_job({**of_job, "headers": headers})


def _origin(source: str, source_id: str | None) -> dict[str, str]:
    origin = {"source": source}
    if source_id is not None:
        origin["source_id"] = source_id

    return origin


def _text(name: str, value: object) -> str | None:
    """Return a text of any form; it is cleaned and shortened when it is stored."""
    if value is None:
        return value
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        return value
    raise InvalidJob(name, f"must be a text of at most {MAX_TEXT} characters")


def _stack(name: str, value: object) -> str | None:
    """Return a stack, given as text or as a list of lines, as text."""
    if isinstance(value, list):
        lines = cast("list[object]", value)
        if not all(isinstance(line, str) for line in lines):
            raise InvalidJob(name, "must be a text, or a list of its lines")

        value = "\n".join(cast("list[str]", lines))

    return _text(name, value)


def _instant(name: str, value: Any) -> datetime | None:
    """Read an instant: ISO 8601 (UTC if it has no zone) or seconds since 1970."""
    if value is None:
        return None

    try:
        at = _as_instant(value)
    except (TypeError, ValueError, OverflowError, OSError):
        rule = "write 2026-03-01T12:00Z, or seconds since 1970"
        raise InvalidJob(name, rule) from None

    return check_instant(name, at if at.tzinfo else at.replace(tzinfo=UTC))


def _as_instant(value: Any) -> datetime:
    if isinstance(value, str):
        return datetime.fromisoformat(value.strip())
    return datetime.fromtimestamp(float(value), UTC)


def _one_of(
    choices: Sequence[str], default: str | None
) -> Callable[[str, object], Any]:
    """Return a check for the values of a closed set."""

    def check(name: str, value: object) -> Any:
        if value is None:
            return default

        if value not in choices:
            allowed = ", ".join(choices)
            raise InvalidJob(name, f"must be one of {allowed}")

        return value

    return check


def _source_id(name: str, value: object) -> str | None:
    """Return an id as text; many systems have numbers."""
    return check_text(name, str(value) if is_whole(value) else value)


def _attempts(name: str, value: object) -> int:
    if value is None:
        return 1
    return check_number(name, value, 1, MAX_ATTEMPTS)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "reason": _one_of([*Reason], Reason.ATTEMPTS_EXHAUSTED),
    "category": _one_of([*Category], None),
    "error_class": _text,
    "message": _text,
    "stack": _stack,
    "died_at": _instant,
    "created_at": _instant,
    "attempts": _attempts,
    "source_id": _source_id,
}
"""Field of the death -> its check."""
