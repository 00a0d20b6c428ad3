"""Signature of a handler's function."""

import inspect
import typing
from collections.abc import Callable, Iterator
from functools import update_wrapper
from inspect import Parameter
from typing import Any, cast

from redrive.handlers.handler import decode_object, encode_json

_POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


def takes_job(kind: str, function: Callable[..., Any]) -> bool:
    """Return True if the function takes (payload, job); False for the payload only.

    Raises:
        ValueError: the function takes other arguments.
    """
    parameters = inspect.signature(function).parameters.values()
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    # Parameters after the second are allowed if they have a default.
    taken = positional[:2] + [
        each for each in positional[2:] if each.default is each.empty
    ]
    if len(taken) not in {1, 2}:
        msg = (
            f"the handler of {kind!r} must take (payload) or (payload, job),"
            f" it takes {len(taken)} arguments"
        )
        raise ValueError(msg)

    return len(taken) == 2  # noqa: PLR2004 # payload and job


def is_async(function: Callable[..., Any]) -> bool:
    """Return True for `async def`, also as the `__call__` of an object."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 # to look at it
    return any(map(inspect.iscoroutinefunction, (function, called)))


def check_runs(what: str, function: Callable[..., Any] | None) -> None:
    """Raise ValueError if a call of the function would run nothing of it."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 # to look at it
    for each in (function, called):
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            msg = (
                f"{what} must not have `yield`: a call returns a generator,"
                " and runs nothing"
            )
            raise ValueError(msg)


def reader(function: Callable[..., Any]) -> tuple[type | None, Callable[[str], Any]]:
    """Return the payload's model, if it has one, and the function that reads it.

    The annotation of the first parameter decides.
    """
    first = next(iter(inspect.signature(function).parameters))
    try:
        annotation = typing.get_type_hints(function).get(first)
    except Exception:  # noqa: BLE001 # without its annotation the payload is a dict
        annotation = None

    validate = getattr(annotation, "model_validate_json", None)
    if validate is not None:
        return annotation, validate

    return None, decode_object


def secret_fields(payload_type: type | None) -> frozenset[str]:
    """Return the names of a model's SecretStr and SecretBytes fields, at any depth."""
    if payload_type is None:
        return frozenset()

    properties = _properties(cast("Any", payload_type).model_json_schema())

    # pydantic marks its secret types so, in unions and lists, too.
    secret = b'"writeOnly":true'
    return frozenset(name for name, rule in properties if secret in encode_json(rule))


def _properties(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield each property of a JSON schema with its own schema, at any depth."""
    if isinstance(node, dict):
        schema = cast("dict[str, Any]", node)
        yield from schema.get("properties", {}).items()
        children = list(schema.values())
    else:
        children = cast("list[Any]", node) if isinstance(node, list) else []

    for child in children:
        yield from _properties(child)


def without_payload(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler for a function that takes nothing, or only the job."""
    parameters = inspect.signature(function).parameters.values()
    needed = [
        p.name for p in parameters if p.kind in _POSITIONAL and p.default is p.empty
    ]
    if needed not in ([], ["job"]):
        return function

    def run(_payload: dict[str, Any], job: object) -> Any:
        return function(*([job] if needed else []))

    async def run_async(_payload: dict[str, Any], job: object) -> Any:
        return await run(_payload, job)

    made = run_async if is_async(function) else run
    # Take this first: after `update_wrapper`, `inspect` shows the one of `function`.
    taken = inspect.signature(made)
    update_wrapper(made, function)  # messages show the function's own name and place
    made.__signature__ = taken

    return made


def faults_of(error: ValueError) -> str:
    """Return the faults of a payload by field, without its values."""
    errors: Any = getattr(error, "errors", None)
    if errors is None:
        return type(error).__name__

    faults = errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(
        f"{'.'.join(map(str, f['loc'])) or 'payload'}: {f['type']}" for f in faults
    )


def place_of(function: Callable[..., Any]) -> str:
    """Return the module and line of a function, which tell equal names apart."""
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", type(function).__name__)
    place = f"{function.__module__}.{name}"

    code = getattr(function, "__code__", None)
    if code is None:
        return place

    return f"{place} (line {code.co_firstlineno})"
