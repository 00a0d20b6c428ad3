"""Integers to Postgres by the thousand: arrays packed in one go, where psycopg looks at each element several times."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import pq
from psycopg.adapt import Dumper
from psycopg.types import TypeInfo

_HEADER = struct.Struct(">iiiii")
"""dimensions, whether there are nulls, type of the elements, their number, index of the first"""

_HAS_NO_NULLS = 0


@dataclass(frozen=True, slots=True)
class Ints:
    """A parameter of type int[]."""

    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class Bigints:
    """A parameter of type bigint[]."""

    values: Sequence[int]


def _pack(element: TypeInfo, width: int, code: str, values: Sequence[int]) -> bytes:
    """The binary form of an array: a header, then each element behind its width."""
    count = len(values)
    pairs = [width] * (2 * count)
    pairs[1::2] = values
    return _HEADER.pack(1, _HAS_NO_NULLS, element.oid, count, 1) + struct.pack(">" + code * count, *pairs)


class _IntsDumper(Dumper):
    format = pq.Format.BINARY
    oid = psycopg.postgres.types["int4"].array_oid

    def dump(self, obj: Ints) -> bytes:
        return _pack(psycopg.postgres.types["int4"], 4, "ii", obj.values)


class _BigintsDumper(Dumper):
    format = pq.Format.BINARY
    oid = psycopg.postgres.types["int8"].array_oid

    def dump(self, obj: Bigints) -> bytes:
        return _pack(psycopg.postgres.types["int8"], 8, "iq", obj.values)


psycopg.adapters.register_dumper(Ints, _IntsDumper)
psycopg.adapters.register_dumper(Bigints, _BigintsDumper)
