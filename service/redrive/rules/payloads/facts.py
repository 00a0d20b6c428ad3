"""Facts of a job: they can be compared and counted, and reveal no content.

A fact is a path (`payload.currency`) and a mark. The mark of a text is a short digest.
Equal texts have equal marks, but the mark does not reveal the text. Numbers, true,
false and null are their own marks. The marks of secrets, long texts and times only tell
their type.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from typing import Any, cast

from redrive.rules.payloads.redact import HIDDEN, redact, scrub
from redrive.rules.rows import Fields, fields_of

Mark = str | int | float | bool | None
Facts = Mapping[str, Mark]

TEXT, LONG, TIME, NUMBER, SECRET, UNREAD = (
    "#",
    "?text",
    "?time",
    "?number",
    "?secret",
    "?unread",
)
"""Prefix of a text's mark, and the marks of values that are not compared."""

MAX_FIELDS = 64
MAX_DEPTH = 4
MAX_TEXT = 64
MAX_NUMBER = 1e9
"""Larger numbers are treated as identifiers, such as account numbers."""
MAX_PAYLOAD = 32_768
"""Size limit in bytes of JSON; larger payloads are not read."""

NOT_COMPARED = frozenset(
    {"$redrive", "traceparent", "tracestate", "attempt_traceparent", "version"}
)
"""Headers that belong to one job, or that the payload's model has already."""

_NAME = re.compile(r"(?!(?:\D*\d){4})[A-Za-z_][A-Za-z0-9_.-]{0,39}")
"""Name of a field. A key with more digits is data, such as the key of a map by id."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]|\Z)")


def facts_of(  # noqa: PLR0913 # the parts of a job
    payload: Any,
    headers: Fields,
    tenant: str | None,
    *,
    declared: Collection[str] = (),
    secrets: Collection[str] = (),
    texts: MutableMapping[str, str] | None = None,
) -> dict[str, Mark]:
    """Return the facts of a job's content.

    Args:
        payload: None if it cannot or must not be read.
        declared: keys that are secret although their names do not sound so.
        secrets: values that must not appear anywhere.
        texts: receives the text of each text's mark.
    """
    kept = {
        name: value
        for name, value in fields_of(headers).items()
        if name not in NOT_COMPARED
    }
    content = {"tenant": tenant, "header": kept, "payload": payload}
    if not isinstance(payload, dict):
        content["payload"] = {}

    # Bounded first, so that the search for secrets is bounded, too. `header` and
    # `payload` are one level more.
    bounded = _bounded(content, MAX_DEPTH + 1)
    hidden = redact(bounded, declared, secrets)
    found = dict(_marked(hidden, "", texts))
    if not isinstance(payload, dict):
        found["payload"] = UNREAD

    return found


def type_of(mark: Mark) -> str:
    """Return the type of a mark's value, as a word."""
    match mark:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case _ if mark == NUMBER:
            return "number"
        case _ if mark == SECRET:
            return "secret"
        case _:
            return "text"


def is_value(mark: Mark) -> bool:
    """Return True if the mark stands for a value that may be shown."""
    return not (isinstance(mark, str) and mark.startswith("?"))


def _bounded(value: Any, depth: int) -> Any:
    """Return a value without deep levels and with lists reduced to their lengths."""
    if isinstance(value, Mapping):
        return _bounded_members(cast("Fields", value), depth)
    if isinstance(value, list):
        return len(cast("list[Any]", value))
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return LONG

    return value


def _bounded_members(items: Fields, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, inner in items.items():
        is_too_deep = depth <= 1 and isinstance(inner, Mapping)
        if is_too_deep:
            continue
        if not _NAME.fullmatch(name):
            continue

        # Only the length of a list is left, and its name says so.
        suffix = "[]" if isinstance(inner, list) else ""
        found[name + suffix] = _bounded(inner, depth - 1)

    return found


def _marked(
    value: Any, path: str, texts: MutableMapping[str, str] | None
) -> Iterator[tuple[str, Mark]]:
    """Yield paths and marks, also of nested values."""
    if not isinstance(value, Mapping):
        yield path, _mark(value, texts)
        return

    room = MAX_FIELDS
    for name, inner in cast("Fields", value).items():
        for found in _marked(inner, f"{path}.{name}" if path else name, texts):
            # A name may be a secret itself.
            if room and scrub(name) == name:
                room -= 1
                yield found


def _mark(value: Any, texts: MutableMapping[str, str] | None) -> Mark:
    if isinstance(value, str):
        return _mark_of_text(value, texts)
    if value is None or isinstance(value, bool):
        return value

    # An integer may be too long for a float; a comparison is false for NaN.
    is_small = -MAX_NUMBER <= value <= MAX_NUMBER
    return value if is_small else NUMBER


def _mark_of_text(text: str, texts: MutableMapping[str, str] | None) -> str:
    # Redaction came first, so its placeholder shows where a secret was.
    if HIDDEN in text:
        return SECRET
    if text == LONG or _TIME.match(text):
        return LONG if text == LONG else TIME

    mark = TEXT + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    if texts is not None:
        texts[mark] = text

    return mark
