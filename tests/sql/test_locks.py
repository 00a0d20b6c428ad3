"""Who waits for whom, as the server sees it; and that nobody ever waits in a circle."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import LiteralString

import psycopg
import pytest

from redrive.enqueue import enqueue_reporting
from redrive.worker import store
from tests.factories import (
    claim,
    complete,
    failure,
    make_campaign,
    make_dead_letters,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle,
    silence,
    totals,
)
from tests.flow.harness import wait_for
from tests.postgres import Database, Session

pytestmark = pytest.mark.every_version

SECONDS = 4
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


def test_a_settlement_waits_for_a_handler_that_completes_in_its_own_transaction(
    database: Database,
) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    jobs = claim(database.conn, worker)
    handler, supervisor = database.transaction(), database.session()
    complete(handler.conn, worker, *jobs)
    waiting = database.start_blocked(
        supervisor,
        lambda: settle(supervisor.conn, worker, jobs[0], "retry", failure=failure()),
        by=handler,
    )
    handler.rows("rollback")

    assert waiting.result(60) is True, (
        "the handler's transaction was rolled back, so the verdict counts"
    )


def test_nobody_waits_for_an_enqueue_that_is_not_committed(database: Database) -> None:
    make_jobs(database.conn, 3)
    producer = database.transaction()
    make_jobs(producer.conn, 3)
    make_job(producer.conn, ordering_key="k", idempotency_key="i", tenant="t")
    worker = make_worker(database.conn)
    other = database.session(lock_timeout="1ms")

    jobs = claim(other.conn, worker)
    assert len(jobs) == 3
    complete(other.conn, worker, *jobs)
    make_job(other.conn, ordering_key="k")
    store.fold(other.conn)
    assert store.unpark(other.conn) == 0
    other.rows("select redrive.depths_v1()")


def test_an_open_snapshot_blocks_nothing(database: Database) -> None:
    ids = make_dead_letters(database.conn, 2)
    make_jobs(database.conn, 3)
    reader = database.session()
    reader.rows("begin isolation level repeatable read")
    reader.rows("select count(*) from redrive.jobs")
    worker = make_worker(database.conn)
    other = database.session(lock_timeout="1ms")

    complete(other.conn, worker, *claim(other.conn, worker))
    assert redrive(other.conn, ids[:1]) == {ids[0]: None}
    assert (
        other.value("select redrive.purge_v1(null, %s, '{0}', '{open}')", ids[1:]) == 1
    )


def test_batches_that_overlap_are_settled_in_the_same_order(database: Database) -> None:
    """Ascending by id, whatever the caller's order: the second waits for the first before it holds
    anything.
    """
    make_jobs(database.conn, 2)
    worker = make_worker(database.conn)
    low, high = sorted(claim(database.conn, worker))
    first, second = database.transaction(), database.session()
    complete(first.conn, worker, low)
    waiting = database.start_blocked(
        second, lambda: complete(second.conn, worker, high, low), by=first
    )
    assert complete(first.conn, worker, high) == {high.id}, (
        "which the second does not hold"
    )
    first.rows("commit")

    assert waiting.result(60) == set()


def open_in_reverse(database: Database) -> list[int]:
    """Two dead letters that lie in the table in the other order than their ids."""
    low, high = make_dead_letters(database.conn, 2)
    database.rows("update redrive.dead_letters set owner = 'moved' where id = %s", low)
    # so few rows are then read in the order they lie in
    database.rows("vacuum analyze redrive.dead_letters")
    assert database.column("select id from redrive.dead_letters order by ctid") == [
        high,
        low,
    ]
    return [low, high]


def test_a_dismissal_and_a_redrive_of_the_same_take_them_in_the_same_order(
    database: Database,
) -> None:
    low, high = open_in_reverse(database)
    operator, other = database.transaction(), database.session()
    redrive(operator.conn, [low])
    waiting = database.start_blocked(
        other,
        lambda: other.column("select redrive.dismiss_v1(%s, 'ada', 'x')", [high, low]),
        by=operator,
    )
    assert redrive(operator.conn, [high]) == {high: None}
    operator.rows("commit")

    assert waiting.result(60) == []


def test_two_redrives_of_the_same_take_them_in_the_same_order(
    database: Database,
) -> None:
    low, high = open_in_reverse(database)
    operator, other = database.session(), database.session()
    campaign = make_campaign(database.conn)
    operator.rows("begin")
    redrive(operator.conn, [low], campaign=campaign)
    waiting = database.start_blocked(
        other, lambda: redrive(other.conn, [high, low], campaign=campaign), by=operator
    )
    assert redrive(operator.conn, [high], campaign=campaign) == {high: None}
    operator.rows("commit")

    assert waiting.result(60) == {low: "not_open", high: "not_open"}


SETTINGS: dict[str, tuple[LiteralString, str, str]] = {
    "retention": (
        "select redrive.set_retention_v1(%s, '90 days', 'ada', 'why')",
        "audit",
        "keys",
    ),
    "objective": (
        "select redrive.set_objective_v1(%s, 'dead_ratio', 0.1, 'ada', 'why')",
        "a",
        "b",
    ),
    "owner": (
        "select redrive.set_owner_v1(%s, '*', 'payments', null, 'ada', 'why')",
        "a",
        "b",
    ),
    "limit": ("select redrive.limit_names_v1(%s, 9, 'ada', 'why')", "kinds", "queues"),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_two_who_set_several_things_wait_in_line(database: Database, what: str) -> None:
    """Each had a setting and wanted the end of the audit log, or the other way round."""
    statement, one, another = SETTINGS[what]
    ada, bo = database.session(), database.session()
    for name in (one, another):
        database.rows(statement, name)
    ada.rows("begin")
    ada.rows(statement, one)
    waiting = database.start_blocked(bo, lambda: bo.rows(statement, another), by=ada)
    ada.rows(statement, another)
    ada.rows("commit")

    assert waiting.result(60)
    assert database.value("select count(*) from redrive.audit") == 5


def test_eight_sessions_at_everything_at_once_never_deadlock_and_lose_nothing(
    database: Database,
) -> None:
    """Claims, settlements, rescues, retirements, redrives, dismissals, purges and folds over the
    same few jobs.
    """
    stop, sessions, turns = Event(), [database.session() for _ in range(8)], [-1] * 8

    def turn(n: int) -> bool:
        turns[n] += 1
        return not stop.is_set()

    # it runs nothing; what dies holds its ordering key, and what is dismissed wakes it
    said = store.Registration("holding", "test", 3600, ["a"], None, holds=["a"])
    store.register(database.conn, said)
    roles = [work, work, work, work, operate, operate, keep_house, keep_house]
    make_jobs(database.conn, 500)
    done = [
        s.start(lambda s=s, r=role, n=n: r(s, partial(turn, n), random.Random(n)))
        for n, (s, role) in enumerate(zip(sessions, roles, strict=True))
    ]
    stop.wait(SECONDS)

    def is_enough() -> bool:
        """However busy the machine, each has had its turns."""
        return (
            min(turns) > 1 and {"redriven", "rescued"} <= totals(database.conn).keys()
        )

    wait_for(lambda: is_enough() or any(each.done() for each in done))
    stop.set()
    for each in done:
        each.result(60)
    for session in sessions:  # counters of a session are reported when it ends
        session.close()

    assert database.value(DEADLOCKS) == 0
    count = Counter(totals(database.conn))
    live, running, open_letters = database.row(
        "select (select count(*) from redrive.jobs), (select count(*) from redrive.claims k,"
        " unnest(k.ids) as c(id) join redrive.jobs j on j.id = c.id),"
        " (select count(*) from redrive.dead_letters where state = 'open')"
    )
    assert (
        count["enqueued"]
        + count["redriven"]
        - count["completed"]
        - count["dead"]
        - count["cancelled"]
        == live
    )
    assert (
        count["dead"] - count["redriven"] - count["dismissed"] - count["purged"]
        == open_letters
    )
    assert is_enough()
    ended = ("completed", "dead", "cancelled", "retried", "released", "rescued")
    assert count["claimed"] - sum(count[event] for event in ended) == running
    assert (
        database.value(
            "select count(*) from redrive.dead_letters d join redrive.jobs j using (id)"
            " where d.state = 'open'"
        )
        == 0
    ), "in one place only"


def work(session: Session, turn: Callable[[], bool], dice: random.Random) -> None:
    conn = session.conn
    worker = make_worker(conn)
    while turn():
        for n in range(5):
            options = {} if n else {"idempotency_key": f"k{dice.randrange(50)}"}
            enqueue_reporting(
                conn, "a", ordering_key=dice.choice([None, "o1", "o2"]), **options
            )
        jobs = claim(conn, worker, 40)
        cut = dice.randrange(len(jobs) + 1)
        complete(conn, worker, *jobs[:cut])
        for job in jobs[cut:]:
            if dice.random() < 0.9:
                settle(
                    conn,
                    worker,
                    job,
                    dice.choice(["retry", "release", "dead", "cancel"]),
                    failure=failure(),
                    reason="r",
                )
        if dice.random() < 0.1:
            store.retire(conn, worker)
            worker = make_worker(conn)
        elif dice.random() < 0.1:  # it goes silent, and what it holds is rescued
            silence(conn, worker)
            worker = make_worker(conn)
    store.retire(conn, worker)


def operate(session: Session, turn: Callable[[], bool], dice: random.Random) -> None:
    conn = session.conn
    campaign = make_campaign(conn)
    while turn():
        ids = session.column(
            "select id from redrive.dead_letters where state = 'open' order by random() limit 30"
        )
        redrive(conn, ids, campaign=campaign)
        if dice.random() < 0.3:
            session.rows("select redrive.dismiss_v1(%s, 'ada', 'x')", ids[:2])
            chosen = session.rows(
                "select id, redrives from redrive.dead_letters order by random() limit 10"
            )
            session.rows(
                "select redrive.purge_v1(null, %s, %s, '{open,resolved,dismissed}')",
                [job_id for job_id, _ in chosen],
                [generation for _, generation in chosen],
            )


def keep_house(session: Session, turn: Callable[[], bool], _: random.Random) -> None:
    while turn():
        store.rescue(session.conn, 60 if uptime_is_over(session, 60) else 0.1)
        store.unpark(session.conn)
        store.fold(session.conn)
        session.rows("select redrive.fold_groups_v1()")
        session.rows("select redrive.depths_v1()")


def uptime_is_over(session: Session, seconds: int) -> bool:
    return session.value(
        "select clock_timestamp() - pg_postmaster_start_time() > %s * interval '1 second'",
        seconds,
    )


def test_a_deadlock_is_seen_in_this_counter(database: Database) -> None:
    """So that the zero above means something."""
    first, second = make_jobs(database.conn, 2)
    one = database.session(deadlock_timeout="10ms")
    two = database.session(deadlock_timeout="10ms")
    lock = "select from redrive.jobs where id = %s for update"
    for session, mine in ((one, first), (two, second)):
        session.rows("begin")
        session.rows(lock, mine)
    waiting = one.start(lambda: one.rows(lock, second))
    database.wait_until_blocked(one)
    errors = []
    try:
        two.rows(lock, first)
    except psycopg.errors.DeadlockDetected as error:
        errors.append(error)
    two.rows("rollback")
    if waiting.exception(60) is not None:
        errors.append(waiting.exception())
    for session in (one, two):
        session.rows("rollback")
        session.rows("select pg_stat_force_next_flush()")

    assert len(errors) == 1
    assert database.value(DEADLOCKS) == 1
