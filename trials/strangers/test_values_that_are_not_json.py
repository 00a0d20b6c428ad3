"""sidekiq/sidekiq #5071, Bogdanp/django_dramatiq #61, rails/solid_queue #203.

A value that JSON does not have is refused by its place when it is enqueued, and nothing
is changed silently.
"""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive import enqueue
from redrive.errors import InvalidJob
from tests.postgres import Database

NOT_JSON = [
    date(2026, 1, 1),
    datetime(2026, 1, 1, tzinfo=UTC),
    timedelta(1),
    Decimal("1.10"),
    UUID(int=1),
    b"x",
    {1},
    {1: 2},
    math.nan,
    math.inf,
    "a\0b",
    "\ud800",
    object(),
]
JSON = ["", [], {}, None, False, 0, 2**70, -1.5, "日本 😀", [[""]], {"": ""}]


@pytest.mark.parametrize("value", NOT_JSON, ids=lambda value: type(value).__name__)
def test_a_value_that_is_not_json_is_refused_by_its_place(
    database: Database, value: Any
) -> None:
    with psycopg.connect(database.url) as conn:
        with pytest.raises(InvalidJob, match="payload"):
            enqueue(conn, "a.b", {"items": [{"value": value}]})
        enqueue(conn, "a.b", {"fine": True})
    assert database.value("select count(*) from redrive.jobs") == 1


@pytest.mark.parametrize("value", JSON, ids=repr)
def test_a_value_of_json_comes_back_as_it_was(database: Database, value: Any) -> None:
    with psycopg.connect(database.url) as conn:
        enqueue(conn, "a.b", {"value": value})
    stored = database.value("select payload from redrive.jobs")
    assert stored == {"value": value}
    assert type(stored["value"]) is type(value)
