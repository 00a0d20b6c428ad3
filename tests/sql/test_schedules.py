"""Schedules: each slot is fired once, for any live workers and any clocks."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import psycopg
import pytest

from redrive.rules.slots import Declaration
from redrive.worker import store
from redrive.worker.upkeep.schedules import Schedules
from tests.factories import complete_next, make_worker, silence
from tests.postgres import Database, Session, connect

SECOND = timedelta(seconds=1)
DAILY = Declaration(
    "report.daily", "report", "reports", "0 7 * * *", "UTC", "one", '{"days": 1}'
)
EVERY_SECOND = replace(DAILY, cron="@every 1s", catch_up="all")
PLANNED = ("next_at", "planned_at")
STATE = "select state, versions from redrive.schedules_v1() where name = 'report.daily'"


def declare(
    database: Database,
    *declared: Declaration,
    version: str = "1",
    worker: int | None = None,
) -> int:
    """A worker that says so."""
    worker = worker or make_worker(database.conn)
    assert store.declare_schedules(database.conn, worker, version, declared)
    return worker


def fire(session: Session, *declared: Declaration) -> None:
    """What the chore of a worker that declares something does."""
    schedules = Schedules("")
    schedules.learn(declared or [DAILY])
    schedules.fire(session.conn)


def move(database: Database, ago: timedelta, name: str = "report.daily") -> datetime:
    """Put the next slot of a schedule there."""
    return database.value(
        "update redrive.schedules set next_at = date_trunc('second', clock_timestamp()) - %s,"
        " planned_at = clock_timestamp() where name = %s returning next_at",
        ago,
        name,
    )


def jobs(database: Database) -> list[dict[str, Any]]:
    """The headers of the jobs that were enqueued, in order."""
    return database.column("select headers from redrive.jobs order by id")


def slots(database: Database) -> list[datetime]:
    return [
        datetime.fromisoformat(headers["scheduled_for"]) for headers in jobs(database)
    ]


def of_schedule(database: Database, columns: str = "next_at") -> tuple[Any, ...]:
    return database.row(
        f"select {columns} from redrive.schedules where name = 'report.daily'"
    )  # type: ignore[arg-type] # ours


# ---------------------------------------------------------------------- declared, due, fired


def test_a_new_schedule_fires_first_at_its_next_slot(database: Database) -> None:
    declare(database, DAILY)
    fire(database)
    now = database.value("select clock_timestamp()").astimezone(UTC)
    (next_at,) = of_schedule(database)

    assert now < next_at <= now + timedelta(days=1)
    assert (next_at.astimezone(UTC).hour, next_at.minute, jobs(database)) == (7, 0, [])


def test_a_slot_that_has_come_is_a_job_with_its_time(database: Database) -> None:
    """And its key is the slot's own, so that no other way leads to a second one."""
    declare(database, DAILY)
    fire(database)
    due = datetime(2026, 3, 1, 7, tzinfo=UTC)
    database.rows("update redrive.schedules set next_at = %s", due)
    fire(database)
    fire(database)

    found = database.row(
        "select kind, queue, payload, idempotency_key, (headers ->> 'schedule') from redrive.jobs"
    )
    (fired,) = slots(database)  # one for all that were missed since
    assert found == (
        "report",
        "reports",
        {"days": 1},
        f"schedule:report.daily:{fired.timestamp():.0f}",
        "report.daily",
    )
    assert fired.hour == 7
    assert database.value("select clock_timestamp()") - fired < timedelta(days=1)
    assert of_schedule(database, "last_at, last_job") == database.row(
        "select %s::timestamptz, id from redrive.jobs", fired
    )


def test_nothing_is_written_while_nothing_is_due(database: Database) -> None:
    declare(database, DAILY)
    fire(database)
    before = database.value("select xmin::text from redrive.schedules")
    fire(database)

    assert database.value("select xmin::text from redrive.schedules") == before


def test_by_the_clock_of_the_database_alone(database: Database) -> None:
    """A worker that takes a slot for come that has not, is not heeded; one that dawdles is late."""
    declare(database, DAILY)
    move(database, -60 * SECOND)
    assert store.due_schedules(database.conn) == []

    expected = move(database, 3 * SECOND)
    (due,) = store.due_schedules(database.conn)
    early = due.as_of + timedelta(hours=1)
    assert store.fire_schedule(database.conn, due, [early], early + SECOND) is None
    assert of_schedule(database) == (expected,)
    assert jobs(database) == []


@pytest.mark.parametrize(("slot", "following"), [(-1, 60), (1, 1), (1, 0)])
def test_slots_that_could_come_twice_are_refused(
    database: Database, slot: int, following: int
) -> None:
    """Those before the one that is expected, and those that would still be ahead."""
    declare(database, DAILY)
    expected = move(database, 30 * SECOND)
    (due,) = store.due_schedules(database.conn)

    with pytest.raises(psycopg.Error, match="slots: must ascend"):
        store.fire_schedule(
            database.conn,
            due,
            [expected + slot * SECOND],
            expected + following * SECOND,
        )
    assert jobs(database) == []


# ---------------------------------------------------------------------- exactly once


def test_of_eight_that_fire_at_once_one_does(database: Database) -> None:
    """Each with what it saw: the others find that the schedule has moved on."""
    declare(database, DAILY)
    expected = move(database, SECOND)
    sessions, start = [database.session() for _ in range(8)], Barrier(8)

    def act(session: Session) -> list[int] | None:
        (due,) = store.due_schedules(session.conn)
        start.wait()
        return store.fire_schedule(
            session.conn, due, [expected], expected + 60 * SECOND
        )

    futures = [session.start(lambda s=session: act(s)) for session in sessions]
    wait(futures)

    assert sum(future.result() is not None for future in futures) == 1
    assert slots(database) == [expected]


def test_sixty_slots_by_eight_workers_of_which_some_die_are_sixty_jobs(
    database: Database,
) -> None:
    """Their sessions are ended wherever they are, between any two statements and within one."""
    declare(database, EVERY_SECOND)
    first = move(database, 59 * SECOND)
    # a slot at a time, as if each had come just now: the later ones still lie ahead
    last = first + 59 * SECOND
    start = Barrier(9)

    def act(session: Session) -> int:
        start.wait()
        died = 0
        while True:
            try:
                if session.conn.closed:
                    session.conn = connect(database.url)
                found = store.due_schedules(session.conn)
                if not found or found[0].expected is None or found[0].expected > last:
                    return died
                slot = found[0].expected
                store.fire_schedule(session.conn, found[0], [slot], slot + SECOND)
            except psycopg.OperationalError:
                died += 1

    sessions = [database.session() for _ in range(8)]
    futures = [session.start(lambda s=session: act(s)) for session in sessions]
    database.rows("begin")
    database.rows(
        "select from redrive.schedules for update"
    )  # until two of them have died
    start.wait()
    for _ in range(50):
        database.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'test' and datname = current_database()"
            " and pid <> pg_backend_pid() order by random() limit 2"
        )
        database.conn.commit()
    wait(futures)
    died = sum(future.result() for future in futures)

    assert died > 0
    assert Counter(slots(database)) == {first + n * SECOND: 1 for n in range(60)}


def test_a_slot_comes_once_even_when_its_job_is_done_and_gone(
    database: Database,
) -> None:
    """Where the row was put back, by hand or from a backup, the key still knows."""
    worker = declare(database, DAILY)
    move(database, SECOND)
    (due,) = store.due_schedules(database.conn)
    assert due.expected is not None
    fired = store.fire_schedule(
        database.conn, due, [due.expected], due.expected + 60 * SECOND
    )
    assert complete_next(database.conn, worker) == set(fired or [])
    database.rows(
        "update redrive.schedules set next_at = %s, last_at = null", due.expected
    )

    assert (
        store.fire_schedule(
            database.conn, due, [due.expected], due.expected + 60 * SECOND
        )
        == fired
    )
    assert jobs(database) == []


def test_the_job_and_the_step_of_the_schedule_are_kept_together_or_not_at_all(
    database: Database,
) -> None:
    """Where the kind is refused, the slot is tried again; another schedule does not wait."""
    known = replace(EVERY_SECOND, name="other", kind="known", queue="default")
    declare(database, EVERY_SECOND, known)
    database.rows("select redrive.enqueue('known')")
    database.rows("select redrive.limit_names_v1('kinds', 1, 'ada', 'why')")
    expected = move(database, SECOND)
    move(database, SECOND, "other")
    database.rows("delete from redrive.jobs")

    with pytest.raises(psycopg.Error, match="kind: all"):
        fire(database)
    assert of_schedule(database) == (expected,)
    assert {headers["schedule"] for headers in jobs(database)} == {"other"}

    database.rows("select redrive.limit_names_v1('kinds', 9, 'ada', 'why')")
    fire(database)
    assert {headers["schedule"] for headers in jobs(database)} == {
        "other",
        "report.daily",
    }
    assert expected in slots(database)


# ---------------------------------------------------------------------- rollouts


def test_the_newest_declaration_holds_whoever_starts_again(database: Database) -> None:
    """During a rollout old and new workers are up: they do not take turns."""
    nightly = replace(DAILY, cron="0 3 * * *")
    old = declare(database, DAILY, version="1")
    fire(database)
    new = declare(database, nightly, version="2")
    fire(database)
    assert of_schedule(database)[0].astimezone(UTC).hour == 3
    assert database.row(STATE) == ("active", ["1", "2"])

    store.retire(database.conn, old)
    again = declare(
        database, DAILY, version="1"
    )  # the old one has crashed and starts again
    fire(database)
    assert of_schedule(database)[0].astimezone(UTC).hour == 3

    store.retire(
        database.conn, new
    )  # rolled back: when the last of the new ones has gone
    fire(database)
    assert of_schedule(database)[0].astimezone(UTC).hour == 7
    assert database.row(STATE) == ("active", ["1"])
    store.retire(database.conn, again)


def test_another_payload_keeps_the_slot_that_is_due(database: Database) -> None:
    """Only another expression or time zone comes at other times."""
    declare(database, DAILY)
    move(database, SECOND)
    declare(database, replace(DAILY, payload='{"days": 7}'))
    (due,) = store.due_schedules(database.conn)
    assert due.expected is not None
    store.fire_schedule(database.conn, due, [due.expected], due.expected + 60 * SECOND)

    assert database.value("select payload from redrive.jobs") == {"days": 7}


def test_what_no_live_worker_declares_is_not_fired_and_stays_on_record(
    database: Database,
) -> None:
    """Neither of a worker that was lost, nor of one that has left; it is made up for later."""
    lost, left = declare(database, DAILY), declare(database, DAILY)
    move(database, SECOND)
    (due,) = store.due_schedules(database.conn)
    silence(database.conn, lost)
    store.mark_lost(database.conn, 30)
    store.retire(database.conn, left)

    assert store.due_schedules(database.conn) == []
    assert store.fire_schedule(database.conn, due, [], due.as_of + SECOND) is None
    assert database.row(STATE) == ("undeclared", [])
    assert not store.declare_schedules(database.conn, lost, "1", [DAILY])

    declare(database, DAILY)
    assert len(store.due_schedules(database.conn)) == 1


def test_eight_workers_that_start_at_once_declare_it_once(database: Database) -> None:
    many = [replace(DAILY, name=f"report-{n}") for n in range(20)]
    sessions, start = [database.session() for _ in range(8)], Barrier(8)

    def act(session: Session, declared: Sequence[Declaration]) -> bool:
        worker = make_worker(session.conn)
        start.wait()
        return store.declare_schedules(session.conn, worker, "1", declared)

    orders = [many, many[::-1]] * 4
    futures = [
        session.start(lambda s=session, d=declared: act(s, d))
        for session, declared in zip(sessions, orders, strict=True)
    ]

    assert all(future.result() for future in futures)
    assert database.value("select count(*) from redrive.schedule_declarations") == 20
    assert database.value("select count(*) from redrive.schedule_declarers") == 160


def test_what_nobody_declares_any_more_is_forgotten_in_time(database: Database) -> None:
    worker = declare(database, DAILY, replace(DAILY, name="other"))
    gone = "select redrive.forget_schedules_v1(interval '90 days', 100)"
    for name in ("report.daily", "other"):
        move(database, timedelta(days=100), name)
    database.rows(
        "update redrive.schedule_declarations set declared_at = now() - interval '100 days'"
    )
    assert database.value(gone) == 0, "a worker that is up declares them"

    store.retire(database.conn, worker)
    move(database, timedelta(days=80), "other")
    assert database.value(gone) == 1
    assert database.column("select name from redrive.schedules") == ["other"]
    assert database.column("select schedule from redrive.schedule_declarations") == [
        "other"
    ]


@pytest.mark.parametrize("first", ["declares", "forgets"])
def test_what_is_declared_again_while_it_is_forgotten_is_fired(
    database: Database, first: str
) -> None:
    """A schedule that is declared again while it is forgotten is fired."""
    store.retire(database.conn, declare(database, DAILY))
    move(database, timedelta(days=100))
    database.rows(
        "update redrive.schedule_declarations set declared_at = now() - interval '100 days'"
    )
    worker = make_worker(database.conn)
    declarer, forgetter = database.session(), database.session()

    def declare_again() -> bool:
        return store.declare_schedules(declarer.conn, worker, "1", [DAILY])

    def forget() -> int:
        return forgetter.value(
            "select redrive.forget_schedules_v1(interval '90 days', 100)"
        )

    if first == "declares":
        declarer.rows("begin")
        assert declare_again()
        assert forget() == 0
        declarer.rows("commit")
    else:
        forgetter.rows("begin")
        assert forget() == 1
        waits = declarer.start(declare_again)
        database.wait_until_blocked(declarer)
        forgetter.rows("commit")
        assert waits.result()

    assert [due.name for due in store.due_schedules(database.conn)] == ["report.daily"]


# ---------------------------------------------------------------------- operators


def test_what_comes_while_it_is_paused_is_not_made_up_for(database: Database) -> None:
    declare(database, replace(DAILY, cron="* * * * *", catch_up="all"))
    fire(database)
    assert database.value(
        "select redrive.pause_schedule_v1('report.daily', 'ada', 'why')"
    )
    move(database, timedelta(hours=1))
    fire(database)
    assert (jobs(database), database.row(STATE)) == ([], ("paused", ["1"]))

    assert database.value(
        "select redrive.resume_schedule_v1('report.daily', 'ada', 'why')"
    )
    assert not database.value(
        "select redrive.resume_schedule_v1('report.daily', 'ada', 'why')"
    )
    fire(database)
    assert jobs(database) == []
    assert of_schedule(database)[0] > database.value("select now()")


@pytest.mark.parametrize("fired", [False, True])
def test_a_schedule_goes_on_when_the_clock_that_was_ahead_is_right_again(
    database: Database, *, fired: bool
) -> None:
    """What it had worked out a year ahead was waited for, and `schedule ls` said active."""
    declare(database, DAILY)
    fire(database)
    (right,) = of_schedule(database)
    last_at = "now() + interval '1 year'" if fired else "last_at"
    ahead = ", ".join(f"{column} = {column} + interval '1 year'" for column in PLANNED)
    database.rows(f"update redrive.schedules set {ahead}, last_at = {last_at}")  # type: ignore[arg-type] # ours
    fire(database)

    assert of_schedule(database) == (right,)
    assert of_schedule(database, "planned_at <= clock_timestamp()") == (True,)
    assert store.due_schedules(database.conn) == []


def test_a_missed_slot_is_fired_though_the_clock_was_set_back(
    database: Database,
) -> None:
    declare(database, EVERY_SECOND)
    expected = move(database, SECOND)
    database.rows("update redrive.schedules set planned_at = now() + interval '1 hour'")
    fire(database, EVERY_SECOND)

    assert expected in slots(database)


def test_a_clock_that_is_set_back_by_moments_fires_no_slot_again(
    database: Database,
) -> None:
    declare(database, EVERY_SECOND)
    soon = database.value(
        "update redrive.schedules set last_at = date_trunc('second', now()) + interval '20 s',"
        " next_at = now() + interval '1 h', planned_at = now() + interval '20 s' returning last_at"
    )
    fire(database, EVERY_SECOND)

    assert of_schedule(database) == (soon + SECOND,)


def test_one_that_was_fired_while_the_clock_was_ahead_goes_on_when_resumed(
    database: Database,
) -> None:
    """It had fired a year ahead, and nobody could have it fire before that year was over."""
    declare(database, DAILY)
    fire(database)
    database.rows(
        "update redrive.schedules set next_at = next_at + interval '1 year',"
        " last_at = now() + interval '1 year'"
    )
    for act in ("pause", "resume"):
        database.rows(f"select redrive.{act}_schedule_v1('report.daily', 'ada', 'why')")  # type: ignore[arg-type] # ours
    fire(database)

    now = database.value("select now()")
    assert now < of_schedule(database)[0] <= now + timedelta(days=1)


def test_a_pause_that_comes_between_looking_and_firing_counts(
    database: Database,
) -> None:
    declare(database, DAILY)
    expected = move(database, SECOND)
    (due,) = store.due_schedules(database.conn)
    database.rows("select redrive.pause_schedule_v1('report.daily', 'ada', 'why')")

    assert (
        store.fire_schedule(database.conn, due, [expected], expected + 60 * SECOND)
        is None
    )
    assert jobs(database) == []


def test_one_more_now_changes_nothing_about_the_slots(database: Database) -> None:
    declare(database, DAILY)
    fire(database)
    before = of_schedule(database, "next_at, last_at")
    job = database.value("select redrive.run_schedule_v1('report.daily', 'ada', 'why')")

    assert database.row("select id, kind, queue, payload from redrive.jobs") == (
        job,
        "report",
        "reports",
        {"days": 1},
    )
    assert of_schedule(database, "next_at, last_at") == before
    assert (
        database.value("select redrive.run_schedule_v1('nothing', 'ada', 'why')")
        is None
    )


def test_how_overdue_the_worst_is_is_a_figure(database: Database) -> None:
    overdue = "select (redrive.stats_v1('0') ->> 'schedule_overdue')::float8"
    assert database.value(overdue) == 0
    worker = declare(database, DAILY)
    move(database, -60 * SECOND)
    assert database.value(overdue) == 0
    move(database, 300 * SECOND)
    assert 300 <= database.value(overdue) < 400

    store.retire(database.conn, worker)
    assert database.value(overdue) == 0, "it is not to be fired"


@pytest.mark.parametrize(
    ("silent", "is_declared"), [("14 minutes", True), ("16 minutes", False)]
)
def test_a_worker_lives_by_its_own_ttl(
    database: Database, silent: str, is_declared: bool
) -> None:
    """With a ttl of 15 minutes it beats every 150 s, and its schedules were off in between."""
    worker = declare(database, DAILY)
    database.rows(
        "update redrive.workers set ttl = '15 minutes', seen_at = clock_timestamp() - %s::interval"
        " where id = %s",
        silent,
        worker,
    )

    assert (
        database.value("select count(*) from redrive.declared_schedules_v1()")
        == is_declared
    )
    assert database.value("select redrive.stats_v1('1 h') ->> 'workers'") == str(
        int(is_declared)
    )
