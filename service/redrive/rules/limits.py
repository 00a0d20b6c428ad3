"""What a job may hold: the same rules as the table's constraints, with the path of what breaks
them.

A producer on one version of Python must not be able to enqueue what a worker on another cannot
read: `json.loads` gives up at 995 levels on 3.11 and at 9,998 on 3.13, and reads 1e400 as infinity
without a word.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from redrive.errors import InvalidJob

_encode = msgspec.json.Encoder().encode
NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}\Z")
MAX_PAYLOAD_BYTES = 262_144
MAX_DEPTH = 64
MAX_HEADER_BYTES = 8_192
MAX_KEY_CHARACTERS = 255
MAX_PRIORITY = 1_000
MAX_ATTEMPTS = 100_000
MAX_DOUBLE = 1.7976931348623157e308
SURE_INTEGER = 1 << 63
FIRST_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
LAST_INSTANT = datetime(9999, 12, 31, tzinfo=UTC)


def check_name(field: str, value: object) -> str:
    """Return `value` if it is a name a kind or queue can have, else raise InvalidJob."""
    if not isinstance(value, str) or not _is_name(value):
        raise InvalidJob(field, "must match ^[a-z][a-z0-9_.-]{0,62}$")
    return value


@functools.lru_cache(1_024)
def _is_name(text: str) -> bool:
    return NAME.match(text) is not None


def check_text(field: str, value: object) -> str | None:
    """Return `value` if it is None or a key Postgres can store, else raise InvalidJob."""
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_KEY_CHARACTERS:
        raise InvalidJob(field, f"must have 1 to {MAX_KEY_CHARACTERS} characters")
    _check_string(field, value)
    return value


def check_number(field: str, value: object, low: int, high: int) -> int:
    """Return `value` if it is a whole number between `low` and `high`, else raise InvalidJob."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidJob(field, f"must lie between {low} and {high}")
    return value


def check_instant(field: str, value: object) -> datetime | None:
    """Return `value` if it is None or an aware datetime Postgres and Python can both hold, else
    raise InvalidJob.
    """
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidJob(field, "must be an aware datetime")
    if not FIRST_INSTANT <= value <= LAST_INSTANT:
        raise InvalidJob(field, "must lie between the years 2000 and 9999")
    return value


def encode_object(field: str, value: Any, max_bytes: int) -> str:
    """Return `value` as the JSON text of an object that every worker can read.

    Takes a mapping or a pydantic model. Raises InvalidJob with the path of the first thing that is
    not sound.
    """
    if _are_plain((value,), 0) and isinstance(value, dict):
        try:
            body = _encode(value)
        except UnicodeEncodeError:
            pass  # the close look says which text
        else:
            if len(body) <= max_bytes and b"\\u0000" not in body:
                return body.decode()
    return _encode_closely(field, value, max_bytes)


def _are_plain(items: Iterable[Any], depth: int) -> bool:
    """Whether these are of the very types of JSON, as almost every payload is. `depth`: of what
    they are in.
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
        raise InvalidJob(field, f"must be an object, not {type(value).__name__}")
    _check_tree(field, cast("Mapping[str, Any]", value))
    body = _encode(value)
    if len(body) > max_bytes:
        raise InvalidJob(field, f"{len(body)} bytes, at most {max_bytes}")
    return body.decode()


def _check_tree(field: str, root: Mapping[str, Any]) -> None:
    # A stack and not recursion: the depth of the input must not be the depth of ours.
    stack: list[tuple[str, Any, int]] = [(field, root, 1)]
    while stack:
        path, value, depth = stack.pop()
        if isinstance(value, str):
            _check_string(path, value)
        elif value is None or isinstance(value, bool):
            pass
        elif isinstance(value, int):
            if abs(value) > MAX_DOUBLE:
                raise InvalidJob(path, "number outside the range of a double")
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidJob(path, "number must be finite")
        elif depth > MAX_DEPTH and isinstance(value, (Mapping, list, tuple)):
            raise InvalidJob(field, f"nested deeper than {MAX_DEPTH} levels")
        elif isinstance(value, Mapping):
            for key, item in cast("Mapping[object, Any]", value).items():
                if not isinstance(key, str):
                    raise InvalidJob(path, f"key of type {type(key).__name__}, must be a string")
                _check_string(f"{path}.(key)", key)
                stack.append((f"{path}.{key}", item, depth + 1))
        elif isinstance(value, (list, tuple)):
            items = cast("Sequence[Any]", value)
            stack.extend((f"{path}[{n}]", item, depth + 1) for n, item in enumerate(items))
        else:
            raise InvalidJob(
                path, f"{type(value).__name__} is not JSON; convert it before you enqueue"
            )


def _check_string(path: str, value: str) -> None:
    if "\0" in value:
        raise InvalidJob(path, "contains the character NUL, which Postgres cannot store")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidJob(path, "contains a lone surrogate, which is not text") from None
