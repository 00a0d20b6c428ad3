"""Place in another system from which a dead letter came."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from redrive.rules.rows import fields_of

PATHS: Mapping[str, tuple[str, ...]] = {
    "source": ("source",),
    "died in": ("gateway", "origin", "queue"),
    "queue there": ("gateway", "origin", "queue_arn"),
    "message id": ("gateway", "origin", "properties", "message_id"),
    "task id": ("celery", "id"),
    "ran on": ("celery", "worker"),
}
"""Name of a fact -> its path in the headers."""


def origin(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return what a person needs to find a dead letter in the system it came from.

    The result is empty for a job that died here. Any producer may write headers, so a
    value of another type is left out.
    """
    if "source" not in fields_of(headers):
        return {}

    found: dict[str, str] = {}
    for name, path in PATHS.items():
        value = _at(headers, path)
        if isinstance(value, str):
            found[name] = value

    return found


def _at(headers: Mapping[str, Any], path: Sequence[str]) -> Any:
    *parents, name = path
    for parent in parents:
        found = headers.get(parent)
        if isinstance(found, dict):
            headers = cast("dict[str, Any]", found)
        else:
            headers = {}

    return headers.get(name)
