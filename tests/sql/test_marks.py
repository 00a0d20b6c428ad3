"""Marks: what changed when, for the axes of charts."""

from datetime import timedelta
from typing import Any, LiteralString

import pytest

from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.observability.marks import MOST, read_marks
from redrive.observability.series import now_of
from redrive.rules.marks import Mark, sentence
from redrive.worker import store
from redrive.worker.protocol import Dependency
from redrive.worker.store import Registration
from tests.factories import make_dead_letter, make_schedule, make_worker, silence
from tests.postgres import Connection, Database

HOUR = timedelta(hours=1)


def marks(
    conn: Connection, queue: str | None = None, kind: str | None = None
) -> list[Mark]:
    """Return the marks, without the worker of the factories."""
    now = now_of(conn)
    found = read_marks(conn, now - HOUR, now + HOUR, queue, kind)
    return [mark for mark in found if mark.name != "test"]


def actions(database: Database, **chosen: str) -> list[str]:
    return [mark.action for mark in marks(database.conn, **chosen)]


def register(conn: Connection, version: str, *kinds: str) -> int:
    return store.register(conn, Registration("w", version, 30, kinds or ("a.b",), None))


def test_a_pause_is_a_mark_of_its_queue_and_its_reason_stays_in_the_audit_log(
    database: Database,
) -> None:
    database.rows("select redrive.pause_v1('mail', 'ada', 'a secret reason')")

    (mark,) = marks(database.conn, "mail")
    assert mark[1:5] == ("pause", "pause", "mail", "ada")
    assert mark.queues == ["mail"]
    assert sentence(mark) == "ada paused queue mail"
    assert marks(database.conn, "bills") == []
    assert "secret" not in repr(mark)


@pytest.mark.every_version
@pytest.mark.parametrize(
    ("role", "actor"),
    [
        ("redrive_viewer", None),
        ("redrive_worker", None),
        ("redrive_operator", "ada"),
        ("redrive_agent", "ada"),
        (None, "ada"),
    ],
)
def test_only_a_role_that_may_read_the_audit_log_sees_who_did_it(
    database: Database, role: str | None, actor: str | None
) -> None:
    database.rows("select redrive.pause_v1('mail', 'ada', 'why')")

    (mark,) = marks(database.connect(role))
    assert (mark.name, mark.actor) == ("mail", actor)


def test_the_first_worker_of_a_version_is_a_deploy(database: Database) -> None:
    """Neither a second worker of it is one, nor a restart, nor the worker of another app."""
    conn = database.conn
    first = register(conn, "1.0")
    register(conn, "1.0")
    register(conn, "7.0", "other.app")
    register(conn, "1.1")
    store.retire(conn, first)
    database.rows("delete from redrive.workers")
    register(conn, "1.1")
    register(conn, "7.0", "other.app")
    register(conn, "1.0")

    found = [(mark.action, mark.name) for mark in marks(conn)]
    assert found == [("deploy", v) for v in ("1.0", "7.0", "1.1", "1.0")]
    assert [m.name for m in marks(conn, kind="other.app")] == ["7.0"]


def test_a_worker_without_a_version_is_no_deploy(database: Database) -> None:
    register(database.conn, "")
    assert marks(database.conn) == []


def test_a_lost_worker_is_a_mark_once(database: Database) -> None:
    conn = database.conn
    silence(conn, make_worker(conn, "pod-7"))
    assert store.mark_lost(conn, 5) == 1
    assert store.mark_lost(conn, 5) == 0

    assert [(m.what, m.name) for m in marks(conn)] == [("worker", "pod-7")]


def test_a_breaker_that_opens_and_closes_is_marked_for_the_kinds_behind_it(
    database: Database,
) -> None:
    conn = database.conn
    store.register(
        conn,
        Registration("w", "", 30, ("a.b", "a.c"), None, depends_on={"a.b": ["psp"]}),
    )
    settings = [Dependency("psp", 2, 60.0, 0.0)]
    store.breakers(conn, settings, {"psp": 9}, {})
    store.breakers(conn, settings, {}, {})
    store.breakers(conn, settings, {}, {"psp": 1})

    passed = [f"breaker {state}" for state in ("open", "half-open", "closed")]
    assert actions(database) == passed
    assert actions(database, kind="a.b") == passed
    assert actions(database, kind="a.c") == []
    database.rows("select redrive.force_breaker_v1('psp', 'closed', 'ada', 'x')")
    assert actions(database, kind="a.b") == [*passed, "force breaker"]
    assert actions(database, kind="a.c") == []


def test_what_people_do_with_a_schedule_is_about_its_kind(database: Database) -> None:
    make_schedule(database.conn, "nightly")
    database.rows("select redrive.run_schedule_v1('nightly', 'ada', 'x')")

    assert actions(database, kind="report") == ["run schedule"]
    assert actions(database, kind="mail.send") == []
    assert actions(database, queue="elsewhere") == []


def test_a_schedule_that_is_declared_anew_is_a_mark(database: Database) -> None:
    make_schedule(database.conn, "nightly", "0 1 * * *")
    make_schedule(database.conn, "nightly", "0 1 * * *")
    assert actions(database) == []
    make_schedule(database.conn, "nightly", "0 2 * * *")
    assert actions(database) == ["schedule changed"]


def test_a_campaign_is_a_mark_of_its_queues_and_kinds(database: Database) -> None:
    conn = database.conn
    make_dead_letter(conn, "a.b", queue="mail")
    plan = campaign.plan(conn, Filter(kind=("a.b",)), actor="ada")
    assert plan.plan is not None
    campaign.start(conn, plan.plan, Terms(), actor="ada", why="fixed")

    assert actions(database, queue="mail", kind="a.b") == ["redrive"]
    assert actions(database, queue="bills") == []
    assert actions(database, kind="a.c") == []
    assert [m.n for m in marks(conn)] == [1]


CHANGES: tuple[tuple[LiteralString, str, str], ...] = (
    ("select redrive.set_limit_v1('psp', 3, null, 'ada', 'why')", "limit", "set limit"),
    (
        "select redrive.set_limit_v1('psp', null, null, 'ada', 'why')",
        "limit",
        "remove limit",
    ),
    (
        "select redrive.force_breaker_v1('psp', 'open', 'ada', 'why')",
        "breaker",
        "force breaker",
    ),
    (
        "select redrive.force_breaker_v1('psp', null, 'ada', 'why')",
        "breaker",
        "reset breaker",
    ),
    ("select redrive.begin_run_v1('purge', 'ada', 'why', 3, '{}')", "purge", "purge"),
    (
        "select redrive.pause_schedule_v1('nightly', 'ada', 'why')",
        "schedule",
        "pause schedule",
    ),
    (
        "select redrive.resume_schedule_v1('nightly', 'ada', 'why')",
        "schedule",
        "resume schedule",
    ),
    ("select redrive.resume_v1('mail', 'ada', 'why')", "pause", "resume"),
)
"""Statements in this order, and what their marks say."""


def test_what_people_do_is_marked(database: Database) -> None:
    make_schedule(database.conn, "nightly")
    database.rows("select redrive.pause_v1('mail', 'ada', 'why')")
    database.rows("insert into redrive.breakers (name) values ('psp')")
    database.rows("delete from redrive.audit")
    for statement, *_ in CHANGES:
        database.rows(statement)

    found = marks(database.conn)
    assert [(m.what, m.action) for m in found] == [tuple(c[1:]) for c in CHANGES]
    assert all(m.actor == "ada" and m.line for m in found)
    assert [m.name for m in found] == [*("psp",) * 4, None, *("nightly",) * 2, "mail"]


def test_only_the_latest_marks_are_read_oldest_first(database: Database) -> None:
    database.rows(
        "insert into redrive.marks (at, what, name)"
        " select now() - n * interval '1 minute', 'deploy', n::text"
        " from generate_series(1, 300) n"
    )
    now = now_of(database.conn)
    found = read_marks(database.conn, now - 10 * HOUR, now)

    assert [mark.name for mark in found] == [str(n) for n in range(200, 0, -1)]


def test_a_quiet_queue_finds_its_marks_among_many_of_others(database: Database) -> None:
    """Marks of the audit log, of workers and of breakers."""
    database.rows("alter table redrive.audit disable trigger audit_chained")
    for queue, n in (("mail", 1), ("bills", 250)):
        database.rows(
            "insert into redrive.audit (at, actor, action, why, n, detail)"
            " select now() - interval '5 min', 'ada', 'pause', 'why', 1,"
            "        jsonb_build_object('queue', %s::text) from generate_series(1, %s)",
            *(queue, n),
        )
        database.rows(
            "insert into redrive.marks (at, what, name, queues)"
            " select now() - interval '4 min', 'breaker open', 'smtp', array[%s::text]"
            " from generate_series(1, %s)",
            *(queue, n),
        )

    assert actions(database, queue="mail") == ["pause", "breaker open"]
    assert len(marks(database.conn, queue="bills")) == MOST
    assert len(marks(database.conn)) == MOST


@pytest.mark.every_version
def test_the_latest_marks_of_a_long_time_are_read_without_the_older_ones(
    database: Database,
) -> None:
    """The filters come first, and still a list ends the read."""
    act_often(database, "pause")

    assert pages(database, "30 days") < 200


@pytest.mark.every_version
def test_a_day_of_a_long_audit_log_is_found_by_its_time(database: Database) -> None:
    act_often(database, "pause")

    assert pages(database, "1 hour") < 40
    assert len(marks(database.conn)) == 59


@pytest.mark.every_version
def test_marks_are_read_without_the_other_lines_of_the_audit_log(
    database: Database,
) -> None:
    """The function and the partial index name the same actions."""
    act_often(database, "dismiss")

    assert pages(database, "30 days") < 100


def act_often(database: Database, action: str) -> None:
    """Fill the audit log with a line of each minute of a month."""
    database.rows("alter table redrive.audit disable trigger audit_chained")
    database.rows(
        "insert into redrive.audit (at, actor, action, why, n)"
        " select now() - n * interval '1 minute', 'ada', %s, 'why', 1"
        " from generate_series(1, 50000) n",
        action,
    )
    database.rows("analyze redrive.audit")


def pages(database: Database, length: str) -> int:
    """Count the pages that a read of this time needs."""
    query: LiteralString = (
        "explain (analyze, buffers, format json) select * from redrive.read_marks_v1("
        "now() - %s::interval, now(), null, null, 200)"
    )
    database.rows(query, length)  # reads the catalog
    explained: Any = database.value(query, length)
    plan = explained[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
