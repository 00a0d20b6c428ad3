"""Jobs that wait behind a limit: none waits for ever, and none goes out of turn."""

import time
from typing import LiteralString

import pytest

from redrive.worker import store
from tests.factories import (
    Claimed,
    claim,
    claim_one,
    complete,
    complete_next,
    make_dead_letter,
    make_job,
    make_limited_worker,
    redrive,
)
from tests.postgres import Database
from tests.sql.test_limits import INSERT, set_limit, slots, sound, waits


def test_who_begins_to_wait_while_the_last_one_ends_is_woken_by_the_chore(
    database: Database,
) -> None:
    """The end of the one does not see the other, whose transaction is open still."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    make_job(conn, "a.b")
    running = claim_one(conn, worker)
    producer = database.transaction()
    late = producer.value("select redrive.enqueue('a.b')")
    complete(conn, worker, running)
    producer.rows("commit")
    assert waits(database) == {"emails": 1}
    assert not claim(conn, worker)

    assert store.tend_limits(conn) == 1
    assert claim_one(conn, worker).id == late


def test_who_begins_to_wait_behind_a_name_while_it_is_forgotten_is_woken_by_the_chore(
    database: Database,
) -> None:
    """It waited until somebody enqueued another job of that name."""
    conn = database.conn
    worker = make_limited_worker(conn, "c:{c}")
    set_limit(conn, "c:*", 1)
    make_job(conn, "a.b", {"c": 1})
    running = claim_one(conn, worker)
    producer = database.transaction()
    late = producer.value("""select redrive.enqueue('a.b', '{"c": 1}')""")
    complete(conn, worker, running)
    assert store.tend_limits(conn) == 0
    producer.rows("commit")
    assert waits(database) == {"c:1": 1}
    assert database.column("select name from redrive.limit_keys") == []

    assert store.tend_limits(conn) == 1
    assert claim_one(conn, worker).id == late


def test_who_enqueues_and_does_not_commit_keeps_nobody_waiting_behind_the_same_name(
    database: Database,
) -> None:
    """One that had parked a job made the name's key: claims of its lane waited for the end of that
    transaction, and of two that enqueued the same names in another order one was ended.
    """
    conn = database.conn
    worker = make_limited_worker(conn, "c:{c}")
    set_limit(conn, "c:*", 1)
    producer = database.transaction(INSERT, "a.b", '{"c": 1}', 2)
    conn.execute("set lock_timeout = '1ms'")
    database.rows(INSERT, "a.b", '{"c": 1}', 2)
    running = claim_one(conn, worker)
    producer.rows("commit")
    complete(conn, worker, running)

    claim_one(conn, worker)
    assert waits(database) == {"c:1": 1}
    set_limit(conn, "c:*")
    # A claim takes slots in one lane only.
    assert len(claim(conn, worker)) == len(claim(conn, worker)) == 1


def test_a_slot_that_is_counted_while_its_job_ends_is_given_back(
    database: Database,
) -> None:
    """It was kept for as long as any other job of that claim ran."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    for _ in range(2):
        make_job(conn, "a.b")
    ended, running = claim(conn, worker)
    operator = database.transaction()
    set_limit(operator.conn, "emails", 2)
    complete(conn, worker, ended)
    operator.rows("commit")
    assert slots(database) == {"emails": 2}
    late = make_job(conn, "a.b")
    assert waits(database) == {"emails": 1}

    assert store.tend_limits(conn) == 1
    assert claim_one(conn, worker).id == late
    assert database.column("select job from redrive.limit_slots order by 1") == [
        running.id,
        late,
    ]


@pytest.mark.parametrize(
    "again",
    [
        "select redrive.enqueue('a.b', idempotency_key => 'k')",
        """select redrive.enqueue_many_v1('[{"kind": "a.b", "idempotency_key": "k"}]')""",
    ],
)
def test_one_that_was_enqueued_twice_has_no_place_in_the_line(
    database: Database, again: LiteralString
) -> None:
    """Each end of another job woke one that was not there, and nobody else until the next look."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    make_job(conn, "a.b", idempotency_key="k")
    complete_next(conn, worker)
    set_limit(conn, "emails", 0)
    database.rows(again)
    assert sound(database)
    make_job(conn, "a.b")

    assert waits(database) == {"emails": 1}


def test_a_redrive_that_came_too_late_leaves_no_place_in_the_line(
    database: Database,
) -> None:
    """Its key succeeded while it waited for the job that had it."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    dead = make_dead_letter(conn, "a.b", idempotency_key="k")
    make_job(conn, "a.b", idempotency_key="k")
    set_limit(conn, "emails", 1)
    running = claim_one(conn, worker)
    settling, operator = database.transaction(), database.session()
    complete(settling.conn, worker, running)
    late = database.start_blocked(
        operator, lambda: redrive(operator.conn, [dead]), by=settling
    )
    database.rows("update redrive.limits set concurrency = 0")
    settling.rows("commit")

    assert late.result(60) == {dead: "succeeded"}
    assert waits(database) == {}


def test_what_waits_no_longer_takes_nobodys_turn(database: Database) -> None:
    """However many of them there are in front: their ordering keys woke them, or they are gone."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    make_job(conn, "a.b")
    running = claim_one(conn, worker)
    first = make_job(conn, "a.b")
    make_job(conn, "a.b")
    database.rows(
        "insert into redrive.limit_waits select -n, 'emails', 'default', 'a.b', -1, now()"
        " from generate_series(1, 3) n"
    )
    database.rows(
        "insert into redrive.limit_lines values ('emails', 'default', 'a.b', -1)"
    )
    complete(conn, worker, running)

    assert claim_one(conn, worker).id == first
    assert waits(database) == {"emails": 1}, "no more than one is woken"


def test_the_head_of_a_key_keeps_its_place_in_line_when_the_next_is_cancelled(
    database: Database,
) -> None:
    """It was let go: to be claimed, to find no room, and to be the last in line."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    make_job(conn, "a.b")
    running = claim_one(conn, worker)
    head, after = (make_job(conn, "a.b", ordering_key="k") for _ in range(2))
    free = [make_job(conn, "free", ordering_key="l") for _ in range(2)]
    database.rows(
        "select redrive.cancel_v1(%s::bigint[], 'ada', 'why')", [after, free[0]]
    )
    assert sound(database)
    assert claim_one(conn, worker).id == free[1], "it waits behind no limit"
    complete(conn, worker, running)

    assert claim_one(conn, worker).id == head


@pytest.mark.parametrize("by", ["a rate that was raised", "a clock that went back"])
def test_a_rate_holds_nobody_up_for_longer_than_it_says(
    database: Database, by: str
) -> None:
    """What had begun before was due in an hour at an even pace, and until then nothing began."""
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(
        conn, "emails", rate=100.0 if by == "a clock that went back" else 1 / 3600
    )
    for _ in range(3):
        make_job(conn, "a.b")
    complete_next(conn, worker)
    database.rows(
        "insert into redrive.limit_paces values ('other', 1, 'infinity', 'infinity')"
    )
    if by == "a clock that went back":
        database.rows(
            "update redrive.limit_paces set next_at = now() + '1 h' where name = 'emails'"
        )
    set_limit(conn, "emails", rate=100.0)
    claimed: list[Claimed] = []
    end = time.monotonic() + 60
    while len(claimed) < 2 and time.monotonic() < end:
        claimed += claim(conn, worker)
        store.tend_limits(conn)

    assert len(claimed) == 2
    assert database.value(
        "select next_at = 'infinity' from redrive.limit_paces where name = 'other'"
    )


def test_a_paused_queue_holds_nobody_up_who_waits_behind_the_same_limit(
    database: Database,
) -> None:
    """Nor does a kind that nobody handles; both go on when they can."""
    conn = database.conn
    declared = {"a.b": ("emails",), "lonely": ("emails",)}
    worker = store.register(
        conn,
        store.Registration("w", "test", 30.0, ["a.b", "lonely"], None, limits=declared),
    )
    set_limit(conn, "emails", 1)
    make_job(conn, "a.b")
    running = claim_one(conn, worker)
    paused = make_job(conn, "a.b", queue="paused")
    make_job(conn, "lonely")
    last = make_job(conn, "a.b")
    database.rows("update redrive.workers set kinds = '{a.b}'")
    database.rows("select redrive.pause_v1('paused', 'ada', 'why')")
    complete(conn, worker, running)
    running = claim_one(conn, worker)
    assert running.id == last
    complete(conn, worker, running)
    assert not claim(conn, worker)
    database.rows("select redrive.resume_v1('paused', 'ada', 'why')")
    assert store.tend_limits(conn) == 1

    assert claim_one(conn, worker).id == paused


def test_of_those_that_wait_the_urgent_and_then_the_older_goes_first(
    database: Database,
) -> None:
    conn = database.conn
    worker = make_limited_worker(conn, "emails")
    set_limit(conn, "emails", 1)
    make_job(conn, "a.b")
    running = claim_one(conn, worker)
    low, old, urgent = (make_job(conn, "a.b", priority=p) for p in (5, 0, -5))
    order: list[int] = []
    for _ in range(3):
        complete(conn, worker, running)
        running = claim_one(conn, worker)
        order.append(running.id)

    assert order == [urgent, old, low]
