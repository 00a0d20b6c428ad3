"""Arguments of a task as JSON, and back.

Celery's JSON also holds dates, decimals, UUIDs and bytes. It is used in both
directions. Nothing is ever unpickled. An object that it cannot hold is replaced by its
description, and the task is not sent until somebody has replaced that.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import Any, NamedTuple, cast

from redrive.errors import InvalidJob
from redrive.rules.payloads.limits import encode_payload
from redrive.rules.payloads.redact import scrub

OBJECT = "$python"
"""Key of the description of an object that JSON cannot hold."""

NOT_HELD = "JSON cannot hold this argument; edit the dead letter and put a value there"

MAX_REPR = 200
MAX_DEPTH = 60

_kombu: Any = import_module("kombu.utils.json")
_saferepr: Any = import_module("celery.utils.saferepr").saferepr


class Arguments(NamedTuple):
    """Arguments of a task."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def by_name(function: Callable[..., Any], given: Arguments) -> Arguments:
    """Return the arguments with the names that the function has for them.

    A secret is recognised by its name.
    """
    try:
        bound = signature(function).bind(*given.args, **given.kwargs)
    except (TypeError, ValueError):
        # They do not fit, and perhaps the task failed by it.
        return given

    return Arguments(given.args, {**bound.arguments, **given.kwargs})


def stored(given: Arguments) -> dict[str, Any]:
    """Return the payload for these arguments."""
    args = [*given.args]
    kwargs = dict(given.kwargs)
    payload = {"args": _plain(args, 0), "kwargs": _plain(kwargs, 0)}

    try:
        encode_payload("payload", payload)
    except InvalidJob as error:  # too large, or a text that Postgres does not take
        whole = {OBJECT: f"all arguments, because of {error.path}: {error.rule}"}
        return {"args": whole, "kwargs": {}}

    return payload


def _plain(value: Any, depth: int) -> Any:
    """Return a value as JSON has it."""
    try:
        return json.loads(_kombu.dumps(value))
    except Exception:  # noqa: BLE001 # an argument's own code may raise anything
        if depth < MAX_DEPTH:
            return _in_parts(value, depth)
        return _description(value)


def _in_parts(value: Any, depth: int) -> Any:
    """Return a value as JSON has it. JSON cannot hold some of its parts."""
    inside = depth + 1
    if type(value) is dict:
        members = cast("dict[Any, Any]", value).items()
        return {str(name): _plain(one, inside) for name, one in members}

    if type(value) in {list, tuple}:
        elements = cast("list[Any]", value)
        return [_plain(one, inside) for one in elements]

    return _description(value)


def _description(value: Any) -> dict[str, str]:
    name = f"{type(value).__module__}.{type(value).__qualname__}"

    text = str(_saferepr(value, MAX_REPR))
    text = scrub(text[:MAX_REPR])
    # UTF-8 cannot hold half of a surrogate pair.
    text = text.encode("utf-8", "replace").decode()

    return {OBJECT: name, "repr": text}


def restored(payload: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a payload, to be sent again.

    Raises:
        InvalidJob: a description of an object is in the way, or the payload does not
            have the form of `stored`.
    """
    for path in _descriptions("payload", payload):
        raise InvalidJob(path, NOT_HELD)

    args = payload.get("args", [])
    kwargs = payload.get("kwargs", {})
    if type(args) is not list or type(kwargs) is not dict:
        path = "payload"
        rule = "must have a list as args, and an object as kwargs"
        raise InvalidJob(path, rule)

    return Arguments(*_kombu.loads(json.dumps([args, kwargs])))


def _descriptions(path: str, value: Any) -> Iterator[str]:
    """Yield the places of objects that JSON could not hold."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        if OBJECT in members:
            yield path

        for name, one in members.items():
            yield from _descriptions(f"{path}.{name}", one)
    elif isinstance(value, list):
        for n, one in enumerate(cast("list[Any]", value)):
            yield from _descriptions(f"{path}[{n}]", one)
