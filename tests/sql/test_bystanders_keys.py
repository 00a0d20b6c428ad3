"""What an ordering key holds up are its own jobs, and what wakes them wakes no neighbour."""

import pytest

from redrive.worker import store
from tests.factories import (
    claim,
    claim_one,
    complete,
    let_die,
    make_dead_letter,
    make_job,
    make_worker,
)
from tests.postgres import Database
from tests.sql.bystanders import touched


def test_a_parked_job_keeps_no_younger_one_of_its_key_waiting(
    database: Database,
) -> None:
    """Nobody would wake it as long as the younger one was not claimed."""
    ids = [make_job(database.conn, ordering_key="k") for _ in range(2)]
    parked = "update redrive.jobs set run_at = case id when %s then 'infinity' else now() end"
    database.rows(parked, ids[0])

    assert claim_one(database.conn, make_worker(database.conn)).id == ids[1]


def test_a_dead_letter_holds_no_older_job_of_its_key(database: Database) -> None:
    older = make_job(database.conn, ordering_key="k")
    younger = make_dead_letter(database.conn)
    database.rows(
        "update redrive.dead_letters set holds_key = true, ordering_key = 'k' where id = %s",
        younger,
    )

    assert claim_one(database.conn, make_worker(database.conn)).id == older


def test_a_key_is_held_by_an_older_dead_letter_that_is_open_and_says_so(
    database: Database,
) -> None:
    dead = make_dead_letter(database.conn, ordering_key="k")
    held = "select redrive.is_key_held_v1('default', 'k', %s)"
    assert not database.value(held, dead + 1), "it says nothing"
    database.rows("update redrive.dead_letters set holds_key = true")

    assert database.value(held, dead + 1)
    assert not database.value(held, dead)


def test_a_key_is_woken_alone_and_nobody_is_told_of_nothing(database: Database) -> None:
    """Beside the same key of another queue and another key of this one, both of them older."""
    conn, listening = database.conn, database.session()
    others = [
        make_job(conn, ordering_key=key, queue=queue)
        for queue, key in (("b", "k"), ("a", "l"))
        for _ in range(2)
    ]
    ran, one, last = (make_job(conn, ordering_key="k", queue="a") for _ in range(3))
    make_dead_letter(conn, queue="c")
    listening.rows("listen redrive")
    wake = "select redrive.wake_keys_v1('{a}', '{k}')"
    database.rows("insert into redrive.running_keys values ('a', 'k', 0)")
    database.rows("delete from redrive.jobs where id = %s", ran)

    assert touched(database, lambda: database.rows(wake)) == set(), "it runs"
    database.rows("delete from redrive.running_keys")
    database.rows(
        "update redrive.dead_letters set id = 0, queue = 'a', ordering_key = 'k', holds_key = true"
    )
    assert touched(database, lambda: database.rows(wake)) == set(), "it is held"
    assert list(listening.conn.notifies(timeout=0)) == []
    database.rows("delete from redrive.dead_letters")
    database.rows(
        "insert into redrive.running_keys values ('a', 'l', 0), ('b', 'k', 0)"
    )
    assert touched(database, lambda: database.rows(wake)) == {("jobs", one, 0)}
    assert list(listening.conn.notifies(timeout=60, stop_after=1)), (
        "whoever could claim it"
    )
    parked = "select id from redrive.jobs where run_at = 'infinity' order by id"
    assert database.column(parked) == [others[1], others[3], last]


def test_what_is_not_parked_is_not_woken(database: Database) -> None:
    make_job(database.conn, ordering_key="k")
    database.rows("update redrive.jobs set run_at = now() + interval '1 h'")
    wake = "select redrive.wake_keys_v1('{default}', '{k}')"

    assert touched(database, lambda: database.rows(wake)) == set()


def test_a_job_that_somebody_has_is_waited_for_by_no_waking(database: Database) -> None:
    make_job(database.conn, ordering_key="k")
    hasty = database.session(lock_timeout="1ms")
    database.transaction("select from redrive.jobs for update")

    hasty.rows("select redrive.wake_keys_v1('{default}', '{k}')")


def test_unpark_wakes_a_key_beside_others_that_wait(database: Database) -> None:
    """The same key of another queue, another key of this one, both running; and its own place."""
    conn, worker = database.conn, make_worker(database.conn)
    for queue, key in (("b", "k"), ("a", "l")):
        make_job(conn, ordering_key=key, queue=queue)
    claim(conn, worker)
    ran, one, last = (make_job(conn, ordering_key="k", queue="a") for _ in range(3))
    database.rows("delete from redrive.jobs where id = %s", ran)
    database.rows(
        "insert into redrive.limit_waits values (%s, 'n', 'a', 'b', 0, now())", last
    )
    database.rows("update redrive.chores set last_key = '{z,z}' where name <> 'unpark'")
    database.rows("update redrive.chores set last_key = null where name = 'unpark'")

    here = {("chores", "unpark", None)}
    assert touched(database, lambda: store.unpark(conn)) - here == {("jobs", one, 0)}


@pytest.mark.parametrize("how", ["completes", "gives back"])
def test_the_next_of_its_own_key_goes_on(database: Database, how: str) -> None:
    """Not an older one, of another key of the queue."""
    conn, worker = database.conn, make_worker(database.conn)
    keys = ["l", "k", "l", "k"]
    ids = [make_job(conn, ordering_key=key) for key in keys]
    _, job = claim(conn, worker)
    if how == "completes":
        complete(conn, worker, job)
    else:
        let_die(conn, worker, job)

    assert database.column("select id from redrive.jobs where run_at = 'infinity'") == [
        ids[2]
    ]


@pytest.mark.parametrize("how", ["completes", "dead-letters"])
def test_the_next_of_a_key_that_a_dead_letter_holds_does_not(
    database: Database, how: str
) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    make_dead_letter(conn)
    ids = [make_job(conn, ordering_key="k") for _ in range(2)]
    job = claim_one(conn, worker)
    database.rows(
        "update redrive.dead_letters set ordering_key = 'k', holds_key = true"
    )
    if how == "completes":
        complete(conn, worker, job)
    else:
        let_die(conn, worker, job)

    assert (
        database.column("select id from redrive.jobs where run_at = 'infinity'")
        == ids[1:]
    )


def test_what_is_parked_no_more_is_not_woken(database: Database) -> None:
    """It may have got a time of its own; and whoever has it keeps no other key waiting."""
    for key in "kkll":
        make_job(database.conn, ordering_key=key)
    database.rows("delete from redrive.jobs where isfinite(run_at)")
    waking = database.session(lock_timeout="1ms")
    other = database.transaction(
        "update redrive.jobs set run_at = now() + interval '1 h' where ordering_key = 'k'"
    )
    assert store.unpark(waking.conn) == 1
    other.rows("commit")

    assert store.unpark(waking.conn) == 0
    assert database.rows(
        "select ordering_key, run_at > now() from redrive.jobs order by ordering_key"
    ) == [("k", True), ("l", False)]
