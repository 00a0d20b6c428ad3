"""Messages of other queues: their conversion to dead letters, and back.

A body that is a JSON object is the payload. Any other body is the field `body` of the
payload: as JSON, as text, or as base64. The header `gateway` of the dead letter keeps
what the message needs to be sent again.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any, cast

import msgspec

from redrive.dead_letters.imports.document import Imported, read
from redrive.errors import InvalidJob
from redrive.extras.gateway.marks import Mark, digest
from redrive.extras.gateway.message import Death, Message, Outgoing

QUEUE = "gateway"
"""Queue in Redrive of the dead letters of all sources."""

BODY, HEADERS = "body", "headers"
"""Fields of a payload that is not the body itself."""

BYTES = "bytes"
"""Form in which body, headers and origin are base64."""

NO_TEXT = Death(
    "gateway.NotText", "the message cannot be stored as text, so its bytes are kept"
)


_exact = json.JSONDecoder(
    parse_int=str, parse_float=Decimal, object_pairs_hook=tuple
).decode
"""Reads JSON with all digits of its numbers, and with keys that are there twice."""


def letter_of(
    message: Message,
    kind: str,
    source_id: str,
    *,
    exact: bool,
    first: int = 0,
    **notes: Any,
) -> Imported:
    """Return a message as a dead letter to import, in the best form that fits.

    Args:
        kind: the kind of the dead letter, which is also the name of its source.
        exact: keep the bytes of a JSON body, not only its value.
        first: the number of the first form to try. The database may have refused the
            ones before it.
        notes: more fields of the header `gateway`.

    Raises:
        InvalidJob: the message is too large.
    """
    faults: list[InvalidJob] = []
    for payload, header in islice(_forms(message, exact=exact), first, None):
        headers = header | notes
        try:
            return _read(message, kind, source_id, payload, headers)
        except InvalidJob as error:
            faults.append(error)

    raise faults[-1]


def fingerprint_of(message: Message, kind: str, *, exact: bool) -> str | None:
    """Return the group of a message's death; None if the message is too large.

    The arguments are as for `letter_of`.
    """
    try:
        return letter_of(message, kind, "-", exact=exact).failure.fingerprint
    except InvalidJob:
        return None


def _read(
    message: Message,
    kind: str,
    source_id: str,
    payload: Mapping[str, Any],
    header: Mapping[str, Any],
) -> Imported:
    death = NO_TEXT if header["form"] == BYTES else message.death
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

LAST_FORM = 4
"""Number of the last form. The first one is 0."""


def _forms(message: Message, *, exact: bool) -> Iterator[Form]:
    """Yield the forms in which a message can be stored, the best first."""
    origin = {"origin": dict(message.origin)}
    headers = {HEADERS: dict(message.headers)}
    readers = (partial(_payload, exact=exact), _base64)

    for reader in readers:
        form, payload = reader(message.body)
        yield payload, {"form": form, **origin, **headers}

    # If the headers are too large for a job's headers, the payload has them.
    for reader in readers:
        form, payload = reader(message.body)
        yield (
            ({BODY: payload} if form == "object" else payload) | headers,
            {"form": _NAMED.get(form, form), **origin},
        )

    headers, origin = (
        _text(json.dumps(dict(part)).encode())
        for part in (message.headers, message.origin)
    )
    content = {BODY: _text(message.body), HEADERS: headers}
    yield content, {"form": BYTES, "origin": origin}


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _content(text: object) -> bytes:
    """Return what a base64 text holds.

    Raises:
        ValueError: it is not base64.
    """
    return base64.b64decode(str(text), validate=True)


_NAMED = {"object": "value"}
"""Form of a payload -> its form inside of another object."""


def _payload(body: bytes, *, exact: bool) -> tuple[str, dict[str, Any]]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _base64(body)

    if exact:
        return "text", {BODY: text}

    try:
        value = msgspec.json.decode(body)
        is_whole = _exact(_json(value).decode()) == _exact(text)
    except (ArithmeticError, RecursionError, ValueError):
        value, is_whole = None, False

    if not is_whole:
        return "text", {BODY: text}

    if isinstance(value, dict):
        return "object", cast("dict[str, Any]", value)

    return "value", {BODY: value}


def _base64(body: bytes) -> tuple[str, dict[str, Any]]:
    return "base64", {BODY: _text(body)}


def outgoing(
    payload: Mapping[str, Any],
    header: Mapping[str, Any],
    job: int,
    redrives: int,
    token: str,
) -> Outgoing:
    """Return the message that a dead letter stands for.

    Args:
        payload: payload of the dead letter.
        header: its header `gateway`.
        job: id of the job that sends the message.
        redrives: how often the job was redriven.
        token: secret of the job. It identifies the message if it comes back.

    Raises:
        ValueError: the payload was edited and has lost the body.
    """
    form = str(header.get("form"))
    body = _body(payload, form)

    origin = header["origin"]
    # If the headers were too large for the header `gateway`, the payload has them.
    headers = header.get(HEADERS, payload.get(HEADERS, {}))

    if form == BYTES:
        origin, headers = (json.loads(_content(text)) for text in (origin, headers))

    mark = Mark(job=job, redrives=redrives, body=digest(body), token=token)

    return Outgoing(body, origin, headers, mark)


def _body(payload: Mapping[str, Any], form: str) -> bytes:
    if form == "object":
        return _json(payload)
    if BODY not in payload:
        msg = f"payload.{BODY}: is missing; it must hold the body as {form}"
        raise ValueError(msg)
    if form == "value":
        return _json(payload[BODY])

    text = str(payload[BODY])
    if form == "text":
        return text.encode()

    return _content(text)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
