"""Which waiting jobs no living worker handles, from what workers said of themselves."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import LiteralString

import pytest

from redrive.jobs import unhandled as waiting
from redrive.jobs.unhandled import Unhandled
from redrive.worker import store
from tests.factories import make_job, make_jobs
from tests.postgres import Connection, Database

LATER = datetime(2200, 1, 1, tzinfo=UTC)
PAGES: LiteralString = """
    select sum(pg_stat_get_xact_blocks_fetched(oid))::int from unnest(
        array['redrive.jobs'::regclass, 'redrive.jobs_due_idx'::regclass]) oid
"""


def register(
    conn: Connection, *kinds: str, queues: Sequence[str] | None = None, name: str = "w"
) -> int:
    return store.register(conn, store.Registration(name, "test", 30.0, kinds, queues))


def pages_read(conn: Connection) -> int:
    """Pages of the jobs and of their index that a look for unhandled ones fetches."""
    with conn.transaction():
        before = conn.execute(PAGES).fetchone()
        waiting.unhandled(conn)
        after = conn.execute(PAGES).fetchone()
    assert before
    assert after
    return after[0] - before[0]


def unhandled(conn: Connection) -> dict[tuple[str, str], int]:
    return {(found.queue, found.kind): found.jobs for found in waiting.unhandled(conn)}


def test_a_kind_that_no_living_worker_handles_is_found_with_what_they_do_handle(
    database: Database,
) -> None:
    conn = database.session().conn
    register(conn, "mail.*", "invoice.charge")
    register(conn, "report", queues=["reports"], name="elsewhere")
    make_jobs(conn, 3, "report")
    make_jobs(conn, 2, "mail.send")
    make_jobs(conn, 1, "order")
    make_jobs(conn, 4, "report", queue="reports")

    assert waiting.unhandled(conn) == [
        Unhandled("default", "report", 3, ["invoice.charge", "mail.*"]),
        Unhandled("default", "order", 1, ["invoice.charge", "mail.*"]),
    ]


@pytest.mark.parametrize(
    ("ended", "seen"),
    [
        ("update redrive.workers set lost_at = now() where name = 'other'", True),
        (
            "update redrive.workers set seen_at = now() - interval '3 min' where name = 'other'",
            True,
        ),
        (
            "select redrive.retire_v1(id, '{}') from redrive.workers where name = 'other'",
            True,
        ),
        ("select 1", False),
    ],
    ids=["lost", "silent", "stopped", "alive"],
)
def test_only_living_workers_handle_anything(
    database: Database, ended: LiteralString, seen: bool
) -> None:
    conn = database.session().conn
    register(conn, "mail")
    register(conn, "report", name="other")
    make_jobs(conn, 1, "report")
    conn.execute(ended)

    assert bool(unhandled(conn)) is seen


def test_a_queue_without_a_worker_is_another_alerts_matter(database: Database) -> None:
    conn = database.session().conn
    register(conn, "mail", queues=["mail"])
    make_jobs(conn, 1, "report")

    assert unhandled(conn) == {}


def test_a_worker_that_names_no_kinds_may_know_any_kind(database: Database) -> None:
    conn = database.session().conn
    register(conn, "mail")
    conn.execute(
        "select redrive.register_v1('any', '1', '30 s', null, null, null, null)"
    )
    make_jobs(conn, 1, "report")

    assert unhandled(conn) == {}


def test_only_due_jobs_count(database: Database) -> None:
    conn = database.session().conn
    register(conn, "mail")
    make_jobs(conn, 3, "report")
    make_job(conn, "report", run_at=LATER)

    assert unhandled(conn) == {("default", "report"): 3}


def test_what_is_scheduled_is_not_waited_for(database: Database) -> None:
    conn = database.session().conn
    register(conn, "mail")
    make_job(conn, "report", run_at=LATER)

    assert unhandled(conn) == {}


def test_behind_a_long_backlog_they_are_counted_without_a_look(
    database: Database,
) -> None:
    conn = database.session().conn
    register(conn, "mail")
    make_jobs(conn, 1500, "mail")
    make_jobs(conn, 2, "report")

    assert unhandled(conn) == {("default", "report"): 2}


def test_any_number_of_them_is_seen_at_one_price(database: Database) -> None:
    """20 times the jobs, and no page more is read of their table or of its index."""
    conn = database.session().conn
    register(conn, "mail")
    make_jobs(conn, 10_000, "report")
    few = pages_read(conn)
    make_jobs(conn, 190_000, "report")
    conn.execute("select redrive.fold_v1()")
    conn.execute("vacuum analyze redrive.jobs")

    many = pages_read(conn)

    assert unhandled(conn) == {("default", "report"): 200_000}
    assert many <= few + 50


def test_nothing_of_the_jobs_is_read_while_all_are_handled(database: Database) -> None:
    conn = database.session().conn
    register(conn, "report")
    make_jobs(conn, 10_000, "report")

    assert pages_read(conn) == 0
