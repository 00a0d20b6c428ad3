"""temporalio/sdk-python #676, #126; Bogdanp/dramatiq #17, #251.

A payload has an enum that is a string, a UUID, a time and a decimal. The handler gets what
the producer sent.
"""

from datetime import date, time
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import psycopg
from pydantic import BaseModel

from redrive import Handlers
from redrive.testing import run_enqueued
from tests.postgres import Database


class Old(str, Enum):  # noqa: UP042 # what many have
    ONE = "one"


class New(StrEnum):
    TWO = "two"


class Level(IntEnum):
    HIGH = 3


class Plain(Enum):
    PAIR = "pair"


class Everything(BaseModel):
    old: Old = Old.ONE
    new: New = New.TWO
    level: Level = Level.HIGH
    plain: Plain = Plain.PAIR
    by: dict[Old, list[Plain]] = {Old.ONE: [Plain.PAIR]}
    id: UUID = UUID(int=7)
    at: time = time(2, 37, 57)
    day: date = date(2024, 2, 29)
    amount: Decimal = Decimal("9.90")


def test_a_model_arrives_as_it_was_sent(database: Database) -> None:
    jobs = Handlers()
    got: list[Any] = []

    @jobs.handle("a.b")
    def keep(payload: Everything) -> None:
        got.append(payload)

    with psycopg.connect(database.url) as conn:
        keep.enqueue(conn, Everything())
        run_enqueued(jobs, conn)
    assert got == [Everything()]
