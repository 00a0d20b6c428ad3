"""Tables of headers that pika cannot read, or that a dead letter cannot hold.

Any publisher may write such a table. An error of pika ends the connection, and the
broker delivers the message again, so that one message would stop the intake for good.
Its headers are kept as bytes instead. Pika reads a float as a whole number, and writes
none, so floats are read and written here.
"""

import struct
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pika.data
import pika.spec

UNREADABLE = "$unreadable"
"""Name of the only header of a message whose headers cannot be read."""

MAX_DEPTH = 20

_spec: Any = pika.spec
_data: Any = pika.data
_read_value = _data.decode_value
_write_value = _data.encode_value

FLOATS = {b"f": ">f", b"d": ">d"}
"""Type of a value -> its format, of 4 and of 8 bytes."""


def read(encoded: bytes, offset: int) -> tuple[dict[Any, Any], int]:
    """Read a table as pika does, and return where it ends."""
    (size,) = struct.unpack_from(">I", encoded, offset)
    end = offset + 4 + size

    try:
        table, _ = pika.data.decode_table(encoded, offset)
    except Exception:  # noqa: BLE001 # a time out of range, or depth
        table = None

    if table is None or not _is_plain(table):
        table = {UNREADABLE: encoded[offset:end]}

    return table, end


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Return True if JSON and Postgres can hold all names, and the depth."""
    if depth > MAX_DEPTH:
        return False

    parts: Iterable[Any] = ()
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        if not all((isinstance(name, str) and "\0" not in name) for name in table):
            return False

        parts = table.values()
    elif isinstance(value, list):
        parts = cast("list[Any]", value)

    return all(_is_plain(one, depth + 1) for one in parts)


def read_value(encoded: bytes, offset: int) -> tuple[Any, int]:
    """Read a value as pika does, but a float as it is."""
    layout = FLOATS.get(encoded[offset : offset + 1])
    if layout is None:
        return _read_value(encoded, offset)

    # One octet before the value names its type.
    begin = offset + 1
    end = begin + struct.calcsize(layout)
    (value,) = struct.unpack_from(layout, encoded, begin)

    return value, end


def write_value(pieces: list[bytes], value: Any) -> int:
    """Write a value as pika does, and a float."""
    if not isinstance(value, float):
        return _write_value(pieces, value)

    pieces.append(struct.pack(">cd", b"d", value))
    return len(pieces[-1])


def tolerate() -> None:
    """Let pika read the headers of messages with `read`, and keep floats."""
    _data.decode_value = read_value
    _data.encode_value = write_value
    _spec.data = SimpleNamespace(**{**vars(_data), "decode_table": read})
