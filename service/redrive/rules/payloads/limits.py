"""Limits of a job: the same rules as in SQL, with the path of the fault in errors.

A producer and a worker may run different versions of Python. The producer must not
enqueue a job that the worker cannot read. `json.loads` fails at 995 levels on 3.11 and
at 9,998 on 3.13, and silently reads 1e400 as infinity.
"""

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from redrive.errors import InvalidJob
from redrive.rules.rows import Fields
from redrive.signals import seconds


def _number(value: object) -> int:
    """Convert a subclass of int, such as a batch's id, which msgspec does not know."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(type(value).__name__)


_encode = msgspec.json.Encoder(enc_hook=_number).encode
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}\Z")
MAX_PAYLOAD_BYTES = 262_144
MAX_DEPTH = 64
MAX_HEADER_BYTES = 8_192
MAX_KEY_CHARACTERS = 255
MAX_PRIORITY = 1_000
MAX_ATTEMPTS = 100_000
MAX_VERSION = 1_000_000
MAX_NAMES = 16
NO_TIME = timedelta(0)
UNIQUE = "$unique:"
"""Prefix of the keys that the database creates for unique jobs."""

MIN_DURATION = 0.001
MAX_DURATION = 100 * 366 * 86_400.0
MAX_DOUBLE = 1.7976931348623157e308
SURE_INTEGER = 1 << 63
_CONTAINERS = (dict, list, tuple, Mapping)
FIRST_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
LAST_INSTANT = datetime(9999, 12, 31, tzinfo=UTC)


def check_name(field: str, value: object) -> str:
    """Return `value` if it is a name of a kind or a queue, else raise InvalidJob."""
    if not isinstance(value, str) or not _is_name(value):
        raise InvalidJob(field, "must match ^[A-Za-z][A-Za-z0-9_.-]{0,62}$")
    return value


@functools.lru_cache(1_024)
def _is_name(text: str) -> bool:
    return NAME.match(text) is not None


def check_keys(path: str, text: str | bytes) -> None:
    """Check that no object of a valid JSON text has a key twice.

    Raises:
        InvalidJob: one has, or the text is nested too deeply. The error names `path`.
    """

    def check(members: list[tuple[str, Any]]) -> None:
        seen = set[str]()
        for key, _ in members:
            if key in seen:
                raise InvalidJob(
                    path, f"has the key {key[:MAX_KEY_CHARACTERS]!r} twice"
                )
            seen.add(key)

    # Numbers stay texts, because Python refuses to read long ones.
    try:
        json.loads(text, object_pairs_hook=check, parse_int=str, parse_float=str)
    except RecursionError:
        raise InvalidJob(path, "nested deeper than 64 levels") from None


def check_text(field: str, value: object) -> str | None:
    """Return `value` if it is None or can be a key, else raise InvalidJob."""
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_KEY_CHARACTERS:
        raise InvalidJob(field, f"must have 1 to {MAX_KEY_CHARACTERS} characters")

    rule = "" if value.isprintable() else _fault_of(value)  # most are printable
    if rule:
        raise InvalidJob(field, rule)

    return value


def check_key(field: str, value: object) -> str | None:
    """Return `value` if it is None or an idempotency key, else raise InvalidJob."""
    key = check_text(field, value)
    if key is not None and key.startswith(UNIQUE):
        raise InvalidJob(field, f"must not begin with {UNIQUE}")

    return key


def check_number(field: str, value: object, low: int, high: int) -> int:
    """Return `value` if it is an int from `low` to `high`, else raise InvalidJob."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return int(value)

    raise InvalidJob(field, f"must lie between {low} and {high}")


def check_priority(field: str, value: object) -> int:
    """Return `value` if it is a priority, else raise InvalidJob."""
    return check_number(field, value, -MAX_PRIORITY, MAX_PRIORITY)


def check_max_attempts(field: str, value: object) -> int | None:
    """Return `value` if it is None or a number of attempts, else raise InvalidJob."""
    if value is None:
        return None
    return check_number(field, value, 1, MAX_ATTEMPTS)


def check_version(field: str, value: object) -> int | None:
    """Return `value` if it is None or a payload version, else raise InvalidJob."""
    if value is None:
        return None
    return check_number(field, value, 1, MAX_VERSION)


def check_duration(field: str, value: Any) -> float | None:
    """Return a duration in seconds, or None; else raise InvalidJob."""
    if value is None:
        return None

    try:
        duration = seconds(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidJob(field, "must be a timedelta or a number of seconds") from None

    if not MIN_DURATION <= duration <= MAX_DURATION:
        raise InvalidJob(field, "must lie between 1 ms and 100 years")

    return duration


def check_delay(field: str, value: Any) -> float | None:
    """Return a delay in seconds, which may be 0, or None; else raise InvalidJob."""
    if value in (0, NO_TIME):
        return 0.0
    return check_duration(field, value)


def check_names(field: str, value: object) -> list[str] | None:
    """Return `value` if it is None or names of fields, else raise InvalidJob."""
    if value is None:
        return None

    names = cast("list[object]", value) if isinstance(value, (list, tuple)) else []
    are_texts = all(isinstance(name, str) for name in names)
    if not are_texts or not 1 <= len(names) <= MAX_NAMES:
        rule = f"must be 1 to {MAX_NAMES} names of fields of the payload"
        raise InvalidJob(field, rule)

    for name in names:
        check_text(field, name)

    return cast("list[str]", list(names))


def check_on_conflict(field: str, value: object) -> str | None:
    """Return `value` if it is None, "skip" or "replace", else raise InvalidJob."""
    choices = (None, "skip", "replace")  # a tuple: the value may be unhashable
    if value in choices:
        return cast("str | None", value)

    raise InvalidJob(field, "must be skip or replace")


def check_batch(field: str, value: object) -> int | None:
    """Return `value` if it is None or the id of a batch, else raise InvalidJob."""
    if value is None:
        return None
    return check_number(field, value, 1, SURE_INTEGER - 1)


def check_instant(field: str, value: object) -> datetime | None:
    """Return `value` if it is None or a valid aware datetime, else raise InvalidJob."""
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidJob(field, "must be an aware datetime")
    if not FIRST_INSTANT <= value <= LAST_INSTANT:
        raise InvalidJob(field, "must lie between the years 2000 and 9999")

    return value


def encode_payload(field: str, value: Any) -> str:
    """Return a payload as JSON text; None is an empty one.

    Args:
        field: path of the payload in errors.

    Raises:
        InvalidJob: a value is not JSON, or the payload is too large or too deep.
    """
    return encode_object(field, {} if value is None else value, MAX_PAYLOAD_BYTES)


def encode_headers(field: str, value: Any) -> str:
    """Return headers as JSON text, `{}` for None.

    Raises:
        InvalidJob: a value is not JSON, or the headers are too large or too deep.
    """
    if not value:  # almost every job has none
        return "{}"
    return encode_object(field, value, MAX_HEADER_BYTES)


def encode_object(field: str, value: Any, max_bytes: int) -> str:
    """Return `value` as the JSON text of an object that every worker can read.

    Args:
        field: path of the object in errors.
        value: a mapping or a pydantic model.

    Raises:
        InvalidJob: a value is not JSON, or the object is too large or too deep; `path`
            leads to the first such value.
    """
    if _are_plain((value,), 0) and isinstance(value, dict):
        try:
            body = _encode(value)
        except UnicodeEncodeError:
            pass  # the slow check finds the text
        else:
            # Otherwise the slow check finds the path of the fault.
            if len(body) <= max_bytes and b"\\u0000" not in body:
                return body.decode()

    return _encode_closely(field, value, max_bytes)


def _are_plain(items: Iterable[Any], depth: int) -> bool:
    """Return True if all values have exact JSON types, down to `depth` levels.

    This is the fast path for almost every payload.
    """
    for item in items:
        kind = cast("type[object]", type(item))
        if kind is str or item is None or kind is bool:
            continue

        if kind is int:
            if not -SURE_INTEGER < item < SURE_INTEGER:
                return False
        elif kind is float:
            if not math.isfinite(item):
                return False
        elif depth == MAX_DEPTH:
            return False
        elif kind is dict:
            for key in item:
                if type(key) is not str:
                    return False

            if not _are_plain(item.values(), depth + 1):
                return False
        elif kind is not list or not _are_plain(item, depth + 1):
            return False

    return True


def _encode_closely(field: str, value: Any, max_bytes: int) -> str:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        value = dump(mode="json")

    if not isinstance(value, Mapping):
        name = type(value).__name__
        raise InvalidJob(field, f"must be an object, not {name}")

    _check_tree(field, cast("Fields", value))
    body = _encode(value)
    size = len(body)
    if size > max_bytes:
        raise InvalidJob(field, f"{size} bytes, at most {max_bytes}")

    return body.decode()


def _check_tree(field: str, root: Fields) -> None:
    # A stack, so that deep input cannot exceed the recursion limit.
    stack: list[tuple[str, Any, int]] = [(field, root, 1)]
    while stack:
        path, value, depth = stack.pop()
        if not isinstance(value, _CONTAINERS):
            rule = _fault_of_leaf(value)
            if rule:
                raise InvalidJob(path, rule)

            continue

        if depth > MAX_DEPTH:
            rule = f"nested deeper than {MAX_DEPTH} levels"
            raise InvalidJob(field, rule)

        stack += _children(path, value, depth + 1)


def _children(path: str, node: Any, depth: int) -> Iterable[tuple[str, Any, int]]:
    """Yield the members of an object or an array, with their paths."""
    if isinstance(node, (list, tuple)):
        items = cast("Sequence[Any]", node)
        return [(f"{path}[{n}]", item, depth) for n, item in enumerate(items)]

    for key in node:
        _check_key(path, key)

    return [(f"{path}.{key}", item, depth) for key, item in node.items()]


def _check_key(path: str, key: object) -> None:
    if not isinstance(key, str):
        raise InvalidJob(path, f"key of type {type(key).__name__}, must be a string")
    if rule := _fault_of(key):
        path += ".(key)"
        raise InvalidJob(path, rule)


def _fault_of_leaf(value: object) -> str:
    """Return the fault of a value that is no object and no array; empty if valid."""
    match value:
        case None:
            return ""
        case str():
            return _fault_of(value)
        case int() | float():
            return _fault_of_number(value)
        case _:
            return f"{type(value).__name__} is not JSON; convert it before you enqueue"


def _fault_of_number(number: float) -> str:
    if abs(number) <= MAX_DOUBLE:  # false for NaN
        return ""
    if isinstance(number, float):
        return "number must be finite"

    return "number outside the range of a double"


def _fault_of(text: str) -> str:
    """Return the reason why Postgres cannot store this text; empty if it can."""
    if "\0" in text:
        return "contains the character NUL, which Postgres cannot store"

    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "contains a lone surrogate, which is not text"

    return ""
