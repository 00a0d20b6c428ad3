"""JSON from users, as one text or as lines.

An error names the fault and its place.
"""

from typing import Any, cast

import msgspec

from redrive.errors import InvalidJob
from redrive.rules.payloads.limits import check_keys
from redrive.rules.rows import Row


def read_json(path: str, text: str | bytes) -> Any:
    """Read a JSON value.

    Raises:
        InvalidJob: the text is not JSON, or has a key twice; the error names `path`.
    """
    try:
        value = msgspec.json.decode(text)
        check_keys(path, text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJob(path, f"is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidJob(path, "nested deeper than 64 levels") from None

    return value


def read_object(path: str, text: bytes) -> Row:
    """Read a line that must be an object, which describes a job.

    Raises:
        InvalidJob: the line is not JSON or not an object; the error names `path`.
    """
    value = read_json(path, text)
    if not isinstance(value, dict):
        raise InvalidJob(path, "must be an object with at least a kind")
    return cast("Row", value)
