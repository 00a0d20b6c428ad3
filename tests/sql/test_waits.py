"""No function of a worker waits for a lock that somebody else's open transaction holds.

What such a lock prevents is set aside, and done when the lock is released. Everything else is done.
"""

import re
import time
from concurrent.futures import TimeoutError as NotYet
from typing import Any, LiteralString

import psycopg
import pytest

from redrive.worker import store
from tests.factories import make_dead_letter, make_dead_letters, make_job, make_worker
from tests.flow.held_open import GRANTED, LOCKED, RECIPES, make_objects
from tests.postgres import Database, Session

HANDLERS = {"complete_in_transaction_v1", "first_time_v1"}
"""Functions of workers that only their handlers call, in transactions of their own."""

READERS = {
    *("advance_floors_v1", "claimed_v1", "end_left_open_v1", "health_v1", "lanes_v1"),
    *("lanes_v2", "new_lanes_v1"),
}
"""Volatile functions whose recipes lock nothing."""

LONG = 30.0
"""Seconds of waiting that are a fault.

This is far longer than every lock_timeout that a function sets: a busy machine may stop
the server's process for seconds while it waits.
"""

VOLATILE: LiteralString = """
    select distinct proname::text from pg_proc
    where pronamespace = 'redrive'::regnamespace and provolatile = 'v'"""


def granted_to(database: Database, *roles: str) -> set[str]:
    """Return the names of the functions that these roles may call."""
    return set(database.column(GRANTED, [f"redrive_{role}" for role in roles]))


def functions_of(name: str) -> set[str]:
    """Return the functions that a recipe calls."""
    return set(re.findall(r"redrive\.(\w+)\(", RECIPES[name]))


def is_of_same_job(one: str, other: str) -> bool:
    """Whether two recipes are about the same running job, whose settlement waits."""
    jobs = [set(re.findall(r"%\((mine\d)\)", RECIPES[name])) for name in (one, other)]
    return bool(jobs[0] & jobs[1])


def is_kept_waiting(
    database: Database, waiter: Session, holder: Session, call: Any
) -> bool:
    """Return True if a call waits for the holder for long, and end it then."""
    free_at = time.monotonic()
    while True:
        try:
            call.result(0.2)
        except psycopg.errors.LockNotAvailable:
            return False  # it says so at once, and its caller comes again
        except NotYet:
            if holder.pid not in database.value(
                "select pg_blocking_pids(%s)", waiter.pid
            ):
                free_at = time.monotonic()
            elif time.monotonic() - free_at > LONG:
                waiter.conn.cancel_safe()
                call.exception(60)
                return True
        else:
            return False


def test_every_recipe_locks_what_its_function_locks(database: Database) -> None:
    """A call whose arguments find nothing would test nothing."""
    objects, volatile = make_objects(database), set(database.column(VOLATILE)) - READERS
    session = database.session()
    wrong: list[str] = []
    for name in RECIPES:
        session.rows("begin")
        session.conn.execute(RECIPES[name], objects)
        is_expected = bool(functions_of(name) & volatile) or not functions_of(name)
        if session.value(LOCKED) != is_expected:
            wrong.append(name)
        session.rows("rollback")

    assert wrong == [], (
        "mend these recipes in tests/flow/held_open.py, or name a reader here"
    )


def test_no_function_of_a_worker_waits_for_what_somebody_else_holds(
    database: Database,
) -> None:
    """One operator's open transaction kept all chores waiting, and the loop, for a breaker."""
    objects = make_objects(database)
    theirs = granted_to(database, "producer", "operator") | HANDLERS
    ours = granted_to(database, "worker") - granted_to(database, "producer") - HANDLERS
    holders = [name for name in RECIPES if functions_of(name) <= theirs]
    waiters = [name for name in RECIPES if functions_of(name) & ours]
    holder = database.session()
    # to plan each call anew takes longer than to run it
    waiter = database.session(lock_timeout="0", plan_cache_mode="force_generic_plan")
    found: dict[str, list[str]] = {}
    for held in holders:
        holder.rows("begin")
        holder.conn.execute(RECIPES[held], objects)
        tried = waiters if holder.value(LOCKED) else []
        for name in tried:
            if is_of_same_job(name, held):
                continue
            waiter.rows("begin")
            call = waiter.start(
                lambda name=name: waiter.conn.execute(RECIPES[name], objects)
            )
            if is_kept_waiting(database, waiter, holder, call):
                found.setdefault(name, []).append(held)
            waiter.rows("rollback")
        holder.rows("rollback")

    assert found == {}, "each function of a worker waits for these calls of others"


@pytest.fixture
def operator(database: Database) -> Session:
    """Return a session whose transaction stays open, and has written to the audit log."""
    return database.transaction(
        "select redrive.set_objective_v1('q', 'dlq_added_5m', 9, 'ada', 'why')"
    )


def actions(database: Database) -> list[str]:
    """Return the actions of the audit log."""
    return database.column("select action from redrive.audit order by id")


def test_a_cancelled_job_ends_while_somebody_writes_to_the_audit_log(
    database: Database, operator: Session
) -> None:
    job = make_job(database.conn, delay=3600)
    database.rows(
        "insert into redrive.cancellations (job, redrives, actor, why) values (%s, 0, 'ada', 'x')",
        job,
    )
    for _ in range(2):
        store.end_cancellations(database.conn)
    assert database.column("select id from redrive.jobs") == []
    assert actions(database) == []

    operator.rows("rollback")
    for _ in range(2):
        store.end_cancellations(database.conn)
    assert actions(database) == ["end cancel"]
    assert database.column("select job from redrive.cancellations") == []


def test_cancellations_that_wait_for_the_audit_log_keep_no_other_from_ending(
    database: Database, operator: Session
) -> None:
    """The first step ends as many as a step looks at; each needs a line of the log."""
    first = make_job(database.conn, "a.b", delay=3600)
    then = make_job(database.conn, "a.b", delay=3600)
    database.rows(
        "insert into redrive.cancellations (job, redrives, actor, why)"
        " select id, 0, 'ada', 'x' from unnest(%s::bigint[]) id",
        [first, then],
    )
    for _ in range(2):
        database.rows("select redrive.end_cancellations_v1(1)")

    assert database.column("select id from redrive.jobs") == []
    operator.rows("rollback")


def make_campaign_of(database: Database, ids: list[int]) -> int:
    """Start a campaign without canaries, and return its id."""
    plan = database.value(
        "select redrive.plan_campaign_v1(jsonb_build_object('ids', %s::bigint[]), 5, 'a')"
        " ->> 'plan'",
        ids,
    )
    database.rows(
        "select redrive.start_campaign_v1(%s, 'ada', 'why', null, 0, 0.1, null, '{}')",
        plan,
    )
    return int(plan)


STEP = "select redrive.step_campaign_v1(%s, %s, 'running', 10, null, null)"


def test_a_step_of_a_campaign_ends_before_a_dead_letter_that_is_locked(
    database: Database,
) -> None:
    """It waited, and no other campaign had its turn."""
    ids = make_dead_letters(database.conn, 4)
    campaign = make_campaign_of(database, ids)
    operator = database.transaction("select redrive.note_v1(%s, 'ada', 'seen')", ids[2])

    assert database.value(STEP, campaign, 0) == 2
    assert database.column("select id from redrive.jobs order by id") == ids[:2]
    assert database.value(STEP, campaign, 1) is None, "the next is locked"
    operator.rows("commit")

    assert database.value(STEP, campaign, 1) == 2
    assert database.column("select id from redrive.jobs order by id") == ids
    assert database.rows(
        "select matched, place, redriven, blocked from redrive.campaigns"
    ) == [(4, 4, 4, {})]


def test_a_campaign_comes_again_to_a_key_that_is_not_committed(
    database: Database,
) -> None:
    job = make_dead_letter(database.conn, idempotency_key="k")
    campaign, producer = make_campaign_of(database, [job]), database.transaction()
    make_job(producer.conn, idempotency_key="k")

    assert database.value(STEP, campaign, 0) is None
    producer.rows("rollback")
    assert database.value(STEP, campaign, 0) == 1


def test_a_campaign_ends_once_its_end_can_be_put_on_record(
    database: Database, operator: Session
) -> None:
    """Until then its last step is not taken, and it feeds nothing."""
    ids = make_dead_letters(database.conn, 1)
    operator.rows("rollback")
    campaign = make_campaign_of(database, ids)
    operator.rows("begin")
    operator.rows(
        "select redrive.set_objective_v1('q', 'dlq_added_5m', 9, 'ada', 'why')"
    )
    abort: LiteralString = (
        "select redrive.step_campaign_v1(%s, 0, 'aborted', 0, null, 'x')"
    )

    assert database.value(abort, campaign) is None
    assert database.column("select state from redrive.campaigns") == ["waiting"]
    operator.rows("rollback")
    assert database.value(abort, campaign) == 0
    assert actions(database)[-1] == "abort redrive"


REPORT: LiteralString = (
    "select name, state, failing from"
    " redrive.breakers_v1('{bank,post}', '{3,3}', '{0,0}', '{2,2}', '{60,60}', '{60,60}')"
)


def test_a_breaker_that_an_operator_holds_is_reported_as_it_stands(
    database: Database,
) -> None:
    """No breaker was reported meanwhile, and each report kept the worker waiting."""
    database.rows("insert into redrive.breakers (name) values ('bank')")
    operator = database.transaction(
        "select redrive.force_breaker_v1('bank', 'closed', 'ada', 'why')"
    )

    assert database.rows(REPORT) == [("bank", "closed", False), ("post", "open", True)]
    operator.rows("rollback")
    assert database.rows(REPORT)[0] == ("bank", "open", True)


def test_a_group_that_is_being_muted_is_folded_later(database: Database) -> None:
    """The figures of all other groups waited for it."""
    fold: LiteralString = "select moved from redrive.fold_groups_v1()"
    make_dead_letters(database.conn, 2)
    database.rows(fold)
    (group,) = database.column("select fingerprint from redrive.groups")
    make_dead_letters(database.conn, 3)
    operator = database.transaction(
        "select redrive.mute_v1(%s, now() + interval '1 h', 'ada', 'why')", group
    )
    figures: LiteralString = "select total, open from redrive.grouped"

    assert database.value(fold) == 0
    assert database.rows(figures) == [(5, 5)]
    operator.rows("commit")
    assert database.value(fold) > 0
    assert database.rows(figures) == [(5, 5)]
    assert database.rows("select total, open from redrive.groups") == [(5, 5)]


def test_others_of_a_lost_worker_come_back_while_a_dead_letter_is_locked(
    database: Database,
) -> None:
    """A rescue waited twice for each such job, until its statement was cancelled."""
    objects = make_objects(database)
    operator = database.session()
    operator.rows("begin")
    operator.rows(RECIPES["note on a redriven job"] % objects)  # type: ignore[arg-type]

    assert store.rescue(database.conn, 60)[1:] == (1, 0)
    operator.rows("rollback")
    assert store.rescue(database.conn, 60)[1:] == (0, 1)


def test_a_worker_declares_its_schedules_while_one_is_being_paused(
    database: Database,
) -> None:
    objects = make_objects(database)
    database.transaction("select redrive.pause_schedule_v1('held', 'ada', 'why')")
    hasty = database.session(lock_timeout="1ms")
    worker = make_worker(database.conn, "new")
    statement: LiteralString = "select redrive.declare_schedules_v1(%s, '1', %s)"

    assert hasty.value(statement, worker, objects["declared"]) is True
