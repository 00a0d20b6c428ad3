"""Messages of other queues: their conversion to dead letters, and back.

A body that is a JSON object is the payload. Any other body is the field `body` of the
payload: as JSON, as text, or as base64. The header `gateway` of the dead letter keeps
what the message needs to be sent again.
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from redrive.errors import InvalidJob
from redrive.rules.dead_letters.imported import Imported, read

QUEUE = "gateway"
"""Queue in Redrive of the dead letters of all sources."""

MARK = "redrive-job"
"""Header of a message that was sent back. It names the job, and a digest of the body."""

BODY, HEADERS = "body", "headers"
"""Fields of a payload that is not the body itself."""


class Mark(NamedTuple):
    """Job that sent a message back, as the message's header names it."""

    job: int
    redrives: int
    source_id: str
    body: str

    def __str__(self) -> str:
        """Return the header's value."""
        return ".".join(map(str, self))

    @property
    def key(self) -> str:
        """Return the key that decides between a return and a success."""
        return f"gateway/{self.job}/{self.redrives}"


_MARK = re.compile(
    r"(\d{1,18})\.(\d{1,9})\.([^.\0]{1,255})\.([0-9a-f]{32})\Z", re.ASCII
)


def mark_of(header: object, body: bytes) -> Mark | None:
    """Return the mark of a message; None if it has none.

    An application may copy the headers of a message to another one. A mark with another
    body is therefore none.
    """
    found = _MARK.match(str(header))
    if found is None or found[4] != digest(body):
        return None
    return Mark(int(found[1]), int(found[2]), found[3], found[4])


def digest(body: bytes) -> str:
    """Return a short digest of a body."""
    return hashlib.sha256(body).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Death:
    """What the other system says of a message's death."""

    error_class: str
    message: str
    reason: str = "attempts_exhausted"
    stack: str | None = None
    attempts: int = 1
    died_at: datetime | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """Message of a dead letter queue.

    Attributes:
        handle: what acknowledges it there.
        origin: what is needed to send it again, except body and headers: JSON.
        headers: its headers, as JSON.
        source_id: its id there, or None.
        is_unique: the id alone makes the message unique.
        may_be_known: it was delivered before, so it may have been imported.
        mark: the job that sent it, if it was sent back before.
    """

    handle: Any
    body: bytes
    origin: Mapping[str, Any]
    headers: Mapping[str, Any]
    death: Death
    source_id: str | None = None
    is_unique: bool = False
    may_be_known: bool = False
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Message to send back: a body, and what `Message` kept of the original."""

    body: bytes
    origin: Mapping[str, Any]
    headers: Mapping[str, Any]
    mark: Mark


class Source(Protocol):
    """Connection to a dead letter queue. One thread uses it."""

    def receive(self) -> Sequence[Message]:
        """Return the next messages; none after about a second without any."""
        ...

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Delete messages there: they are committed here."""
        ...

    def send(self, message: Outgoing) -> None:
        """Send a message to where it died; return when the other system has it.

        Raises:
            NotSent: it is certain that the other system does not have the message.
        """
        ...

    def ping(self) -> None:
        """Raise an error if the connection is known to be closed."""
        ...

    def waiting(self) -> int:
        """Return how many messages wait in the dead letter queue."""
        ...

    def close(self) -> None:
        """Close the connection. Unacknowledged messages return to their queue."""
        ...


class NotSent(Exception):
    """The other system refused a message; it does not have it.

    Attributes:
        is_final: True if another attempt would not help.
    """

    def __init__(self, why: str, *, is_final: bool = True) -> None:
        super().__init__(why)
        self.is_final = is_final


def letter_of(
    message: Message, kind: str, source_id: str, *, exact: bool, **notes: Any
) -> Imported:
    """Return a message as a dead letter to import.

    Args:
        kind: the kind of the dead letter, which is also the name of its source.
        exact: keep the bytes of a JSON body, not only its value.
        notes: more fields of the header `gateway`.

    Raises:
        InvalidJob: the message is too large.
    """
    *others, last = _forms(message, exact=exact)
    for payload, header in others:
        try:
            return _read(message, kind, source_id, payload, header | notes)
        except InvalidJob:
            continue
    payload, header = last
    return _read(message, kind, source_id, payload, header | notes)


def _read(
    message: Message,
    kind: str,
    source_id: str,
    payload: Mapping[str, Any],
    header: Mapping[str, Any],
) -> Imported:
    death = message.death
    fields = {
        "kind": kind,
        "queue": QUEUE,
        "payload": payload,
        "headers": {"gateway": header},
        "source_id": source_id,
        "reason": death.reason,
        "error_class": death.error_class,
        "message": death.message,
        "stack": death.stack,
        "attempts": death.attempts,
        "died_at": death.died_at and death.died_at.isoformat(),
        "created_at": death.created_at and death.created_at.isoformat(),
    }
    return read(fields, kind)


Form = tuple[dict[str, Any], dict[str, Any]]
"""Payload, and the header `gateway` that describes it."""


def _forms(message: Message, *, exact: bool) -> list[Form]:
    """Return the forms in which a message can be stored, the best first."""
    found = (_payload(message.body, exact=exact), _base64(message.body))
    short = {"origin": dict(message.origin)}
    headers = {HEADERS: dict(message.headers)}
    forms = [(payload, {"form": form, **short, **headers}) for form, payload in found]
    # If the headers are too large for a job's headers, the payload has them.
    return forms + [
        (_wrapped(form, payload) | headers, {"form": _NAMED.get(form, form), **short})
        for form, payload in found
    ]


_NAMED = {"object": "value"}
"""Form of a payload -> its form inside of another object."""


def _wrapped(form: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {BODY: payload} if form == "object" else payload


def _payload(body: bytes, *, exact: bool) -> tuple[str, dict[str, Any]]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _base64(body)
    if exact:
        return "text", {BODY: text}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return "text", {BODY: text}
    if isinstance(value, dict):
        return "object", cast("dict[str, Any]", value)
    return "value", {BODY: value}


def _base64(body: bytes) -> tuple[str, dict[str, Any]]:
    return "base64", {BODY: base64.b64encode(body).decode()}


def outgoing(
    payload: Mapping[str, Any],
    header: Mapping[str, Any],
    job: int,
    redrives: int,
    source_id: str,
) -> Outgoing:
    """Return the message that a dead letter stands for.

    Raises:
        ValueError: the payload was edited and has lost the body.
    """
    body = _body(payload, str(header.get("form")))
    headers = header.get(HEADERS, payload.get(HEADERS, {}))
    mark = Mark(job, redrives, source_id, digest(body))
    return Outgoing(body, header["origin"], headers, mark)


def _body(payload: Mapping[str, Any], form: str) -> bytes:
    if form == "object":
        return _json(payload)
    if BODY not in payload:
        msg = f"payload.{BODY}: is missing; it must hold the body as {form}"
        raise ValueError(msg)
    if form == "value":
        return _json(payload[BODY])
    text = str(payload[BODY])
    return text.encode() if form == "text" else base64.b64decode(text, validate=True)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def instant(value: Any) -> datetime | None:
    """Return an instant that other systems give as a datetime or Unix seconds."""
    try:
        at = (
            value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
        )
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return at if datetime(2000, 1, 1, tzinfo=UTC) <= at <= datetime.now(UTC) else None


@dataclass(slots=True)
class Counts:
    """Numbers of a source's messages since the gateway began.

    `moved_at` is when a message was last taken in, or none waited: monotonic seconds.
    """

    taken: int = 0
    known: int = 0
    returned: int = 0
    possible_duplicates: int = 0
    refused: int = 0
    errors: int = 0
    waiting: int | None = None
    moved_at: float = field(default_factory=time.monotonic)
    faults: dict[str, str] = field(default_factory=dict[str, str])
