"""Arrays to Postgres by the thousand, packed in one go; psycopg looks at each element in turn."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import adapters, postgres, pq
from psycopg.adapt import Dumper

_HEADER = struct.Struct(">iiiii")
"""dimensions, whether there are nulls, type of the elements, their number, index of the first"""

_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)


@dataclass(frozen=True, slots=True)
class Smallints:
    """A parameter of type smallint[]."""

    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class Ints:
    """A parameter of type int[]."""

    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class Bigints:
    """A parameter of type bigint[]."""

    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class Floats:
    """A parameter of type float8[]."""

    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Booleans:
    """A parameter of type boolean[]."""

    values: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Texts:
    """A parameter of type text[]."""

    values: Sequence[str | None]


def _fixed(type_name: str, code: str) -> type[Dumper]:
    """A dumper for elements of one width: each goes behind it."""
    info = postgres.types[type_name]
    width = struct.calcsize(">" + code)

    class FixedDumper(Dumper):
        format = pq.Format.BINARY
        oid = info.array_oid

        def dump(self, obj: Smallints | Ints | Bigints | Floats | Booleans) -> bytes:
            count = len(obj.values)
            pairs: list[float] = [width] * (2 * count)
            pairs[1::2] = obj.values
            return _HEADER.pack(1, 0, info.oid, count, 1) + struct.pack(
                ">" + f"i{code}" * count, *pairs
            )

    return FixedDumper


class _TextsDumper(Dumper):
    format = pq.Format.BINARY
    oid = postgres.types["text"].array_oid

    def dump(self, obj: Texts) -> bytes:
        parts = [_HEADER.pack(1, 1, postgres.types["text"].oid, len(obj.values), 1)]
        for value in obj.values:
            if value is None:
                parts.append(_NULL)
            else:
                text = value.encode()
                parts += (_LENGTH.pack(len(text)), text)
        return b"".join(parts)


adapters.register_dumper(Smallints, _fixed("int2", "h"))
adapters.register_dumper(Ints, _fixed("int4", "i"))
adapters.register_dumper(Bigints, _fixed("int8", "q"))
adapters.register_dumper(Floats, _fixed("float8", "d"))
adapters.register_dumper(Booleans, _fixed("bool", "?"))
adapters.register_dumper(Texts, _TextsDumper)
