"""Corrections of a payload by JSON Patch (RFC 6902), and their display.

Numbers keep every digit that Postgres keeps, so an edit changes only the values that it
names.
"""

import copy
import difflib
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, cast

import jsonpatch
import msgspec

from redrive.errors import InvalidJob, RedriveError
from redrive.rules.payloads.limits import (
    MAX_DEPTH,
    MAX_PAYLOAD_BYTES,
    check_keys,
    encode_payload,
)
from redrive.rules.payloads.redact import HIDDEN, scrub
from redrive.rules.rows import Fields

Operation = Fields
Patch = Sequence[Operation]

PAYLOAD, PATCH = "payload", "patch"
"""Path of the payload in error messages."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    "add": ("path", "value"),
    "remove": ("path",),
    "replace": ("path", "value"),
    "move": ("from", "path"),
    "copy": ("from", "path"),
    "test": ("path", "value"),
}
"""Operations, and the members that each of them requires."""

MAX_PATHS = 100
"""Number of a patch's paths that the audit log keeps."""

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode
_encode_in_order = msgspec.json.Encoder(
    decimal_format="number", order="deterministic"
).encode


class NotApplicable(RedriveError):
    """A patch names a missing value, or its `test` fails. No value is quoted."""


def decode(text: str | bytes) -> Any:
    """Read JSON and keep its numbers as written.

    Raises:
        InvalidJob: the text is not JSON, or is nested too deeply.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidJob(PAYLOAD, f"is not valid JSON: {error}") from None


def decode_typed(text: str) -> Any:
    """Read a payload that somebody typed.

    Raises:
        InvalidJob: as `decode`, or an object has a key twice.
    """
    payload = decode(text)
    check_keys(PAYLOAD, text)
    return payload


def encode(payload: Any) -> str:
    """Return a payload as JSON text.

    Raises:
        InvalidJob: no job can have this payload; `path` and `rule` say why.
    """
    try:
        text = _encode(payload).decode()
        # Decoded again, because the check knows no Decimal.
        plain = msgspec.json.decode(text)
    except UnicodeEncodeError:
        rule = "contains a lone surrogate, which is not text"
        raise InvalidJob(PAYLOAD, rule) from None
    except msgspec.DecodeError:
        raise InvalidJob(PAYLOAD, "number outside the range of a double") from None

    encode_payload(PAYLOAD, plain)
    return text


def indented(payload: Any) -> str:
    """Return a payload as indented JSON for reading and editing."""
    return msgspec.json.format(_encode(payload), indent=2).decode()


def read_patch(text: str) -> Patch:
    """Read a JSON Patch.

    Raises:
        InvalidJob: the text is no patch; `path` names the operation and its member.
    """
    if len(text.encode(errors="replace")) > MAX_PAYLOAD_BYTES:
        raise InvalidJob(PATCH, f"at most {MAX_PAYLOAD_BYTES} bytes")

    patch = _decoded(text)
    if not isinstance(patch, list) or not patch:
        example = '[{"op": "replace", "path": "/currency", "value": "EUR"}]'
        raise InvalidJob(PATCH, f"must be a list of operations, as {example}")

    operations = cast("list[Any]", patch)
    for n, operation in enumerate(operations):
        _check(f"patch[{n}]", operation)

    return operations


def _decoded(text: str) -> Any:
    try:
        patch = _decode(text)
        check_keys(PATCH, text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidJob(PATCH, f"is not valid JSON: {error}") from None

    return patch


def _check(where: str, operation: Any) -> None:
    if not isinstance(operation, dict):
        raise InvalidJob(where, "must be an object with op and path")

    members = cast("dict[str, Any]", operation)
    name = members.get("op")
    if not isinstance(name, str) or name not in NEEDS:
        where += ".op"
        known = ", ".join(NEEDS)
        raise InvalidJob(where, f"must be one of {known}")

    for member in NEEDS[name]:
        if member not in members:
            raise InvalidJob(where, f"{name} needs {member}")

        # A value may be any JSON. The other members are paths.
        if member != "value":
            _check_pointer(f"{where}.{member}", members[member])


def _check_pointer(where: str, pointer: Any) -> None:
    if not _is_pointer(pointer):
        rule = "must be a JSON Pointer, as /lines/0/price; ~1 stands for /"
        raise InvalidJob(where, rule)


def _is_pointer(text: Any) -> bool:
    try:
        jsonpatch.JsonPointer(text)
    except (jsonpatch.JsonPointerException, TypeError, AttributeError):
        return False

    return isinstance(text, str)


def apply(patch: Patch, payload: Any) -> Any:
    """Apply a patch to a copy of a payload.

    Raises:
        NotApplicable: the payload lacks a value that the patch names, or a test failed.
        InvalidJob: copies made the payload too large, or it is nested too deep.
    """
    # A copy, because the operations change it in place.
    made = _decode(_encode(payload))
    try:
        for n, operation in enumerate(patch):
            made = _applied(n, operation, made)
            # A few copies of a payload into itself would exceed the memory.
            if operation["op"] == "copy" and len(_encode(made)) > MAX_PAYLOAD_BYTES:
                raise InvalidJob(PAYLOAD, f"more than {MAX_PAYLOAD_BYTES} bytes")
    except RecursionError:
        raise InvalidJob(PAYLOAD, f"nested deeper than {MAX_DEPTH} levels") from None

    return made


def _applied(n: int, operation: Operation, payload: Any) -> Any:
    """Apply the operation with number `n` to the payload itself."""
    # A copy, because its value becomes a part of the payload, which may change again.
    single = jsonpatch.JsonPatch([copy.deepcopy(operation)])
    try:
        return single.apply(payload, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        where = scrub("{op} {path}".format_map(operation))
        msg = f"operation {n} of the patch does not apply: {where}"
        raise NotApplicable(msg) from None


def is_same(before: Any, after: Any) -> bool:
    """Return True if two payloads are equal; the order of keys does not matter."""
    return _encode_in_order(before) == _encode_in_order(after)


def difference(shown: Any, edited: Any) -> Patch:
    """Return the patch that converts one payload to the other.

    Raises:
        InvalidJob: the patch would write the placeholder of a hidden secret.
    """
    # The library compares values by their text, and json.dumps() knows no Decimal.
    found = jsonpatch.JsonPatch.from_diff(shown, edited, dumps=_in_order)
    patch = cast("list[Operation]", found.patch)

    for operation in patch:
        if HIDDEN.encode() in _encode(operation.get("value")):
            path = PAYLOAD + operation["path"].replace("/", ".")
            hint = "leave it where it is, or use --patch"
            rule = f"{HIDDEN} stands for a value that is not shown; {hint}"
            raise InvalidJob(path, rule)

    return patch


def _in_order(value: Any) -> str:
    return _encode_in_order(value).decode()


def paths(patch: Patch) -> list[str]:
    """Return the paths that a patch changes, without values, for records and people."""
    changed = chain.from_iterable(map(_changed, patch))
    shown = [scrub(path or "/") for path in changed]
    found = dict.fromkeys(shown)

    return _bounded(list(found))


def _bounded(found: list[str]) -> list[str]:
    """Return the first MAX_PATHS paths, and how many more there are."""
    more = len(found) - MAX_PATHS
    if more <= 0:
        return found

    return [*found[:MAX_PATHS], f"and {more} more"]


def _changed(operation: Operation) -> Iterator[str]:
    if operation["op"] == "move":
        yield operation["from"]
    if operation["op"] != "test":
        yield operation["path"]


def without_values(patch: Patch) -> Patch:
    """Return a patch without its values, to store beside encrypted data."""
    recorded: list[Operation] = []
    for operation in patch:
        kept = {name: part for name, part in operation.items() if name != "value"}
        recorded.append(kept)

    return recorded


def encoded(patch: Patch) -> str:
    """Return a patch as JSON text."""
    return _encode(patch).decode()


def told(operation: Operation) -> str:
    """Say what an operation of a patch does, with its value in full."""
    words = f"{operation['op']} {operation['path']}"
    if "from" in operation:
        words += f" from {operation['from']}"
    if "value" in operation:
        words += f": {_encode(operation['value']).decode()}"

    return words


def diff(before: Any, after: Any, title: str) -> list[str]:
    """Return a unified diff of two payloads, line by line; redact them first."""
    old = indented(before).splitlines()
    new = indented(after).splitlines()
    edited = f"{title}, edited"

    return list(difflib.unified_diff(old, new, title, edited, lineterm=""))
