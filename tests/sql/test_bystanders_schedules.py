"""What is done for one schedule is done for no other: see bystanders."""

from typing import Any, LiteralString

import psycopg
import pytest

from redrive.rules.slots import Declaration
from redrive.worker import store
from tests.factories import make_schedule, make_worker, silence
from tests.postgres import Database
from tests.sql.bystanders import touched
from tests.sql.test_bystanders_limits import hasty, holding

DUE = "2026-01-01T07:00:00Z"
FIRE = f"select redrive.fire_schedule_v1(%s, %s, '{DUE}', '{{{DUE}}}', now() + interval '1 h')"


def declaration(name: str, kind: str = "report") -> Declaration:
    return Declaration(name, kind, "default", "0 7 * * *", "UTC", "one", "{}")


def declare(database: Database, *names: str, version: str = "1") -> int:
    """A worker that declares them, each of which is due. Returns it."""
    worker = make_worker(database.conn)
    declared = [declaration(name) for name in names]
    assert store.declare_schedules(database.conn, worker, version, declared)
    database.rows("update redrive.schedules set next_at = %s", DUE)
    return worker


def declarations(database: Database) -> dict[str, int]:
    return dict(database.rows("select schedule, id from redrive.schedule_declarations"))


def test_a_worker_that_is_lost_declares_nothing(database: Database) -> None:
    """Nor one that goes at this moment, whoever else lives."""
    make_worker(database.conn)
    lost, going = make_worker(database.conn), make_worker(database.conn)
    database.rows("update redrive.workers set lost_at = now() where id = %s", lost)
    declaring = database.session()
    retiring = database.transaction("delete from redrive.workers where id = %s", going)
    said = [declaration("a")]
    waiting = database.start_blocked(
        declaring,
        lambda: store.declare_schedules(declaring.conn, going, "1", said),
        by=retiring,
    )
    retiring.rows("commit")

    assert waiting.result(60) is False
    assert not store.declare_schedules(database.conn, lost, "1", said)
    assert declarations(database) == {}


def test_what_a_live_worker_declares_is_in_force_and_due(database: Database) -> None:
    """Not what a lost one does alone, or a silent one, or nobody; nor what is paused or later."""
    live = declare(database, "due", "paused", "later", version="1")
    lost, silent, gone = (
        declare(database, name, version="2") for name in ("l", "s", "g")
    )
    unnamed = declare(database, "due", version="")
    database.rows("update redrive.workers set lost_at = now() where id = %s", lost)
    silence(database.conn, silent)
    database.rows("delete from redrive.workers where id = %s", gone)
    database.rows(
        "insert into redrive.schedule_declarers select %s, declaration, '3' from"
        " redrive.schedule_declarers where worker = %s",
        lost,
        live,
    )
    database.rows(
        "insert into redrive.schedule_declarers select %s, declaration, '4' from"
        " redrive.schedule_declarers where worker = %s",
        silent,
        live,
    )
    database.rows("select redrive.pause_schedule_v1('paused', 'ada', 'x')")
    database.rows(
        "update redrive.schedules set next_at = now() + '1 h', planned_at = now()"
        " where name = 'later'"
    )

    in_force = "select schedule from redrive.declared_schedules_v1() order by 1"
    assert database.column(in_force) == ["due", "later", "paused"]
    assert database.column("select name from redrive.due_schedules_v1()") == ["due"]
    assert database.rows(
        "select name, state, versions from redrive.schedules_v1()"
    ) == [
        ("due", "active", ["1"]),
        ("g", "undeclared", []),
        ("l", "undeclared", []),
        ("later", "active", ["1"]),
        ("paused", "paused", ["1"]),
        ("s", "undeclared", []),
    ]
    assert unnamed


def test_a_schedule_is_fired_alone_and_kept_as_its_job_is(database: Database) -> None:
    declare(database, "a", "b", "c")
    ids = declarations(database)
    firing = database.transaction(synchronous_commit="off")

    def fire() -> None:
        assert len(firing.value(FIRE, "b", ids["b"])) == 1
        assert firing.value("show synchronous_commit") == "on"
        firing.rows("commit")

    assert touched(database, fire) == {("schedules", "b", None)}
    assert database.column("select headers ->> 'schedule' from redrive.jobs") == ["b"]


def test_a_schedule_that_is_not_to_be_fired_is_not(database: Database) -> None:
    """It is paused, declared by nobody, moved by somebody, or somebody has it; others are due."""
    declare(database, "due", "paused", "undeclared", "moved", "held")
    ids = declarations(database)
    database.rows("select redrive.pause_schedule_v1('paused', 'ada', 'x')")
    database.rows(
        "delete from redrive.schedule_declarers where declaration = %s",
        ids["undeclared"],
    )
    database.rows("update redrive.schedules set next_at = now() where name = 'moved'")
    holding(database, "schedules", name="held")
    quick = hasty(database)

    for name in ("paused", "undeclared", "moved", "held"):
        assert (
            touched(database, lambda name=name: quick.rows(FIRE, name, ids[name]))
            == set()
        )


def test_what_comes_next_comes_after_the_last(database: Database) -> None:
    """Also where nothing is to be fired."""
    declare(database, "a")
    database.rows("update redrive.schedules set last_at = now()")
    query = "select redrive.fire_schedule_v1('a', %s, next_at, '{}', last_at)"

    with pytest.raises(psycopg.Error, match="next: must come after the last slot"):
        database.rows(query + " from redrive.schedules", declarations(database)["a"])


def test_an_operator_acts_on_one_schedule(database: Database) -> None:
    """One that is not paused is not resumed, and of one that is not there nothing is said."""
    declare(database, "a", "b")
    one = {("schedules", "b", None)}
    acts: list[tuple[LiteralString, Any]] = [
        ("select redrive.run_schedule_v1(%s, 'ada', 'x')", set()),
        ("select redrive.pause_schedule_v1(%s, 'ada', 'x')", one),
        ("select redrive.resume_schedule_v1(%s, 'ada', 'x')", one),
    ]
    database.rows("select redrive.pause_schedule_v1('a', 'ada', 'x')")
    for act, expected in acts:
        assert touched(database, lambda act=act: database.rows(act, "b")) == expected
        assert not database.value(act, "c")

    assert not database.value(acts[-1][0], "b"), "twice"
    told = "select distinct detail ->> 'schedule' from redrive.audit order by 1"
    assert database.column(told) == ["a", "b"]
    paused = "select name from redrive.schedules where paused_at is not null"
    assert database.column(paused) == ["a"]


def test_what_nobody_declares_is_forgotten_alone(database: Database) -> None:
    """Not what is young, or declared, or was fired lately; nor a declaration that is in force."""
    live = declare(database, "declared", "old", "young", "fired", "later")
    ids = declarations(database)
    database.rows(
        "delete from redrive.schedule_declarers where declaration <> %s",
        ids["declared"],
    )
    database.rows(
        "update redrive.schedule_declarations set declared_at = now() - interval '9 d'"
    )
    database.rows("update redrive.schedules set next_at = now() where name = 'later'")
    database.rows("update redrive.schedules set last_at = now() where name = 'fired'")
    unused = database.rows(
        "insert into redrive.schedule_declarations"
        "     (schedule, kind, queue, cron, tz, catch_up, payload, digest, declared_at)"
        " select d.schedule, d.kind, d.queue, d.cron, d.tz, d.catch_up, d.payload, n::bytea,"
        "        case n when 'young' then now() else d.declared_at end"
        " from redrive.schedule_declarations d, unnest('{unused,young,said}'::text[]) n"
        " where d.schedule = 'declared' returning id, convert_from(digest, 'utf8')"
    )
    named = {name: id_ for id_, name in unused}
    database.rows(
        "insert into redrive.schedule_declarers values (%s, %s, '1')",
        live,
        named["said"],
    )
    database.rows(
        "update redrive.schedule_declarations set declared_at = now() where schedule = 'young'"
    )
    rows = touched(
        database, lambda: database.rows("select redrive.forget_schedules_v1('1 d', 9)")
    )

    assert rows == {
        ("schedules", "old", None),
        ("schedule_declarations", ids["old"], None),
        ("schedule_declarations", named["unused"], None),
    }


def test_a_schedule_is_declared_alone(database: Database) -> None:
    """A declaration that somebody made before brings no schedule with it."""
    make_schedule(database.conn, "other")
    database.rows("delete from redrive.schedules where name = 'other'")
    make_schedule(database.conn, "mine")

    assert database.column("select name from redrive.schedules") == ["mine"]


def test_no_worker_waits_for_another_that_declares_the_same(database: Database) -> None:
    make_schedule(database.conn, "a")
    hasty = database.session(lock_timeout="1ms")
    other = database.transaction(
        "select from redrive.schedule_declarations for no key update"
    )
    make_schedule(hasty.conn, "a")
    other.rows("rollback")

    assert database.value("select count(*) from redrive.schedule_declarers") == 2
