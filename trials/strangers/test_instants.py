"""rq/rq-scheduler #101, #246, rq/rq #1258, sidekiq/sidekiq #1108, OCA/queue #411.

A job is due at the instant that the caller named, in whatever zone the caller, the
process and the session are.
"""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from redrive import enqueue
from redrive.errors import InvalidJob
from tests.postgres import Database

BERLIN = ZoneInfo("Europe/Berlin")
INSTANTS = [
    datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    datetime(2030, 10, 27, 2, 30, tzinfo=BERLIN, fold=0),
    datetime(2030, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2030, 3, 31, 2, 30, tzinfo=BERLIN),
    datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
]


@pytest.mark.parametrize("at", INSTANTS, ids=str)
@pytest.mark.parametrize("zone", ["UTC", "Africa/Dar_es_Salaam", "Asia/Kathmandu"])
def test_a_job_is_due_at_the_instant_that_was_named(
    database: Database, at: datetime, zone: str
) -> None:
    with psycopg.connect(database.url, options=f"-c timezone={zone}") as conn:
        enqueue(conn, "a.b", run_at=at)
    assert database.value("select run_at from redrive.jobs") == at.astimezone(UTC)


@pytest.mark.parametrize("zone", ["Africa/Dar_es_Salaam", "America/Los_Angeles"])
def test_a_job_without_an_instant_is_due_now(database: Database, zone: str) -> None:
    with psycopg.connect(database.url, options=f"-c timezone={zone}") as conn:
        enqueue(conn, "a.b")
    late: Any = database.value("select clock_timestamp() - run_at from redrive.jobs")
    assert timedelta(0) <= late < timedelta(minutes=1)


def test_an_instant_without_a_zone_is_refused(database: Database) -> None:
    naive = datetime(2030, 1, 1)
    with (
        psycopg.connect(database.url) as conn,
        pytest.raises(InvalidJob, match="aware"),
    ):
        enqueue(conn, "a.b", run_at=naive)
