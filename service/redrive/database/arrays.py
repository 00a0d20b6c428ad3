"""Array parameters packed in one step; psycopg would convert each element."""

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from psycopg import adapters, postgres, pq
from psycopg.adapt import Dumper

_HEADER = struct.Struct(">iiiii")
"""dimensions, has nulls, type of the elements, their number, index of the first"""

_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)

_FIRST_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

T = TypeVar("T")
N = TypeVar("N", bound=float)


class Array(Generic[T]):
    """Array parameter that is packed once: when it is sent, or before."""

    __slots__ = ("_packed", "values")
    elements: ClassVar[str]
    """Type of the elements."""

    def __init__(self, values: Sequence[T]) -> None:
        self.values = values
        self._packed = b""

    def packed(self) -> bytes:
        """Return the array in the binary format of the server."""
        if not self._packed:
            oid = postgres.types[self.elements].oid
            self._packed = _HEADER.pack(1, 1, oid, len(self.values), 1) + self._pack()

        return self._packed

    def _pack(self) -> bytes:
        raise NotImplementedError


class _Numbers(Array[N]):
    __slots__ = ()
    code: ClassVar[str]
    """Format code of one element, for struct."""

    def _pack(self) -> bytes:
        return _numbers(self.code, self.values)


def _numbers(code: str, values: Sequence[float]) -> bytes:
    """Pack numbers of one width, each after its length."""
    count = len(values)
    width = struct.calcsize(">" + code)

    pairs: list[float] = [width] * (2 * count)
    pairs[1::2] = values

    return struct.pack(">" + f"i{code}" * count, *pairs)


class Smallints(_Numbers[int]):
    """Parameter of type smallint[]."""

    __slots__ = ()
    elements, code = "int2", "h"


class Ints(_Numbers[int]):
    """Parameter of type int[]."""

    __slots__ = ()
    elements, code = "int4", "i"


class Bigints(_Numbers[int]):
    """Parameter of type bigint[]."""

    __slots__ = ()
    elements, code = "int8", "q"


class Floats(_Numbers[float]):
    """Parameter of type float8[]."""

    __slots__ = ()
    elements, code = "float8", "d"


class Booleans(_Numbers[bool]):
    """Parameter of type boolean[]."""

    __slots__ = ()
    elements, code = "bool", "?"


class Instants(Array[datetime]):
    """Parameter of type timestamptz[]."""

    __slots__ = ()
    elements = "timestamptz"

    def _pack(self) -> bytes:
        return _numbers(
            "q", [(at - _FIRST_INSTANT) // _MICROSECOND for at in self.values]
        )


class Texts(Array[str | None]):
    """Parameter of type text[]."""

    __slots__ = ()
    elements = "text"

    def _pack(self) -> bytes:
        parts: list[bytes] = []
        for value in self.values:
            if value is None:
                parts.append(_NULL)
            else:
                text = value.encode()
                parts += (_LENGTH.pack(len(text)), text)

        return b"".join(parts)


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Array[Any]) -> bytes:
        return obj.packed()


for _type in (Smallints, Ints, Bigints, Floats, Booleans, Instants, Texts):
    _oid = {"oid": postgres.types[_type.elements].array_oid}
    adapters.register_dumper(
        _type, type(f"{_type.__name__}Dumper", (_ArrayDumper,), _oid)
    )
