"""`redrive worker ls`: who works, drains, is silent or lost; `redrive worker` still works."""

from tests.cli.conftest import Redrive
from tests.factories import make_worker, silence
from tests.postgres import Database


def test_workers_are_listed_with_what_they_do(
    redrive: Redrive, database: Database
) -> None:
    """A list of workers was missed."""
    worker = make_worker(database.conn, "host/1", ttl=30)
    database.conn.execute(
        "update redrive.workers set progress = %s, inflight = 2, kinds = %s, queues = %s",
        (
            '{"slots": 16, "asked": 1, "running": {}}',
            ["a.b", "c", "d", "e", "f"],
            ["mail"],
        ),
    )
    (row,) = redrive("worker", "ls", "--json").lines
    age = row.pop("heartbeat_age_seconds")
    instants = {name: row.pop(name) for name in ("started_at", "seen_at")}

    assert row.pop("uptime_seconds") >= age >= 0
    assert all(instant.endswith("Z") for instant in instants.values())
    assert row == {
        "id": worker,
        "name": "host/1",
        "version": "test",
        "queues": ["mail"],
        "kinds": ["a.b", "c", "d", "e", "f"],
        "state": "working",
        "slots": 16,
        "inflight": 2,
    }
    shown = redrive("worker", "ls", COLUMNS="200").out
    assert "a.b, c, d and 2 more" in shown
    assert "working" in shown


def test_a_worker_that_drains_is_silent_or_lost_is_told_so(
    redrive: Redrive, database: Database
) -> None:
    for name in ("drains", "silent", "lost"):
        make_worker(database.conn, name, ttl=30)
    database.conn.execute(
        "update redrive.workers set progress = %s where name = 'drains'",
        ('{"draining": true}',),
    )
    silent = database.value("select id from redrive.workers where name = 'silent'")
    silence(database.conn, silent, 60)
    database.conn.execute(
        "update redrive.workers set lost_at = now() where name = 'lost'"
    )

    rows = {
        row["name"]: row["state"] for row in redrive("worker", "ls", "--json").lines
    }
    assert rows == {"drains": "draining", "silent": "silent", "lost": "lost"}


def test_without_workers_it_says_so_and_worker_still_wants_handlers(
    redrive: Redrive,
) -> None:
    """8.2: the first line of `worker` stays the worker itself."""
    assert redrive("worker", "ls").out == "no worker\n"
    ran = redrive("worker")

    assert ran.code == 64
    assert "REDRIVE_HANDLERS is not set" in ran.err
