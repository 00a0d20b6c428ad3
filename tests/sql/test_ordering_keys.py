"""Ordering keys that hold after a death: every road that a job of the key can take."""

from typing import LiteralString

import pytest

from redrive.worker import store
from tests.factories import (
    Claimed,
    claim,
    claim_one,
    complete,
    failure,
    let_die,
    let_next_die,
    make_dead_letters,
    make_job,
    make_worker,
    redrive,
    settle,
    silence,
)
from tests.postgres import Connection, Database

KIND = "invoice.charge"
STATE = "select redrive.job_state_v1(run_at, failed_at, null) from redrive.jobs where id = %s"
DISMISS = "select redrive.dismiss_v1(%s, 'ada', 'not wanted')"
REOPEN = "select redrive.reopen_v1(%s, 'ada', 'wanted')"
CANCEL = "select redrive.cancel_v1(%s, 'ada', 'not wanted')"
PURGE = "select redrive.purge_v1(null, %s, %s, '{open,redriven,resolved,dismissed}')"


def holding_worker(
    conn: Connection, kinds: tuple[str, ...] = ("*",), holds: tuple[str, ...] = ("*",)
) -> int:
    """One whose handlers have `on_death="hold"`."""
    said = store.Registration("holding", "test", 60.0, kinds, None, holds=holds)
    return store.register(conn, said)


def make_key(conn: Connection, count: int = 3, **options: str) -> list[int]:
    """So many jobs of one ordering key."""
    return [make_job(conn, ordering_key="k", **options) for _ in range(count)]


def claimed(conn: Connection, worker: int) -> list[int]:
    """What is claimed now."""
    return [job.id for job in claim(conn, worker)]


def held_key(conn: Connection, count: int = 3) -> tuple[int, list[int]]:
    """A worker, and the jobs of a key whose first one died and holds it."""
    worker, ids = holding_worker(conn), make_key(conn, count)
    let_next_die(conn, worker)
    return worker, ids


def redriven(database: Database, ids: list[int], worker: int) -> Claimed:
    """The first one, back at work and claimed."""
    assert redrive(database.conn, ids[:1]) == {ids[0]: None}
    job = claim_one(database.conn, worker)
    assert job.id == ids[0]
    assert claimed(database.conn, worker) == []
    return job


def test_a_key_goes_on_after_a_death_unless_the_handler_says_hold(
    database: Database,
) -> None:
    for holds in ((), ("*",)):
        worker = holding_worker(database.conn, holds=holds)
        _, second = make_key(database.conn, 2)
        let_next_die(database.conn, worker)

        assert claimed(database.conn, worker) == ([] if holds else [second])
        assert database.value(STATE, second) == ("blocked" if holds else "ready")
        database.rows("truncate redrive.jobs, redrive.claims, redrive.running_keys")
        store.retire(database.conn, worker)


def test_the_longest_handler_that_fits_the_kind_decides(database: Database) -> None:
    holding_worker(database.conn, ("a.*", "a.b", "a.b.*", "c", "d"), ("a.*", "c"))
    holding_worker(database.conn, ("d",), ("d",))
    asked = ("a.b", "a.c", "a.b.c", "c", "d", "e")

    assert [
        k for k in asked if database.value("select redrive.holds_key_v1(%s)", k)
    ] == ["a.c", "c", "d"]


def test_a_job_without_a_key_holds_nothing(database: Database) -> None:
    worker = holding_worker(database.conn)
    make_job(database.conn)
    let_next_die(database.conn, worker)

    assert database.column("select holds_key from redrive.dead_letters") == [None]


def test_what_comes_to_a_held_key_waits_and_other_keys_do_not(
    database: Database,
) -> None:
    worker, _ = held_key(database.conn, 1)
    late = make_job(database.conn, ordering_key="k")
    other = [
        make_job(database.conn, ordering_key="l"),
        make_job(database.conn, ordering_key="k", queue="other"),
    ]

    assert database.value(STATE, late) == "blocked"
    assert claimed(database.conn, worker) == other
    database.value(DISMISS, database.column("select id from redrive.dead_letters"))
    assert claimed(database.conn, worker) == [late]


@pytest.mark.parametrize("road", ["dismiss", "purge"])
def test_a_dead_letter_that_is_given_up_lets_its_key_go_on(
    database: Database, road: str
) -> None:
    worker, ids = held_key(database.conn)
    assert store.unpark(database.conn) == 0
    if road == "dismiss":
        database.value(DISMISS, ids[:1])
    else:
        database.value(PURGE, ids[:1], [0])

    assert claimed(database.conn, worker) == [ids[1]]


@pytest.mark.parametrize("end", ["complete", "cancel"])
def test_what_is_redriven_goes_first_and_its_end_lets_the_key_go_on(
    database: Database, end: str
) -> None:
    worker, ids = held_key(database.conn)
    job = redriven(database, ids, worker)
    if end == "complete":
        complete(database.conn, worker, job)
    else:
        settle(database.conn, worker, job, "cancel")

    assert claimed(database.conn, worker) == [ids[1]]


def test_what_is_redriven_and_waits_keeps_its_place(database: Database) -> None:
    """It is due later than the others could be; and it lets them go on when it is cancelled."""
    worker, ids = held_key(database.conn)
    redrive(database.conn, ids[:1], rate=0.01, first=1)
    late = make_job(database.conn, ordering_key="k")

    assert store.unpark(database.conn) == 0
    assert claimed(database.conn, worker) == []
    database.rows(CANCEL, ids[:1])
    assert claimed(database.conn, worker) == [ids[1]]
    assert database.value(STATE, late) == "blocked"


def test_one_that_dies_again_holds_again(database: Database) -> None:
    worker, ids = held_key(database.conn)
    let_die(database.conn, worker, redriven(database, ids, worker))

    assert claimed(database.conn, worker) == []
    assert store.unpark(database.conn) == 0
    # what is left of its first death holds nothing
    database.value(PURGE, ids[:1], [0])
    assert claimed(database.conn, worker) == []
    database.value(DISMISS, ids[:1])
    assert claimed(database.conn, worker) == [ids[1]]


@pytest.mark.parametrize(
    "end", ["complete", "retry", "release", "cancel", "dead", "retire"]
)
def test_one_that_is_opened_again_holds_what_has_not_begun(
    database: Database, end: str
) -> None:
    worker, ids = held_key(database.conn)
    database.value(DISMISS, ids[:1])
    job = claim_one(database.conn, worker)
    assert database.value(REOPEN, ids[:1]) == ids[0]
    if end == "complete":
        complete(database.conn, worker, job)
    elif end == "retire":
        store.retire(database.conn, worker)
        worker = holding_worker(database.conn)
    else:
        settle(database.conn, worker, job, end, reason="r", failure=failure())

    assert claimed(database.conn, worker) == []
    assert store.unpark(database.conn) == 0
    database.value(DISMISS, ids[:1])
    goes_on = {"retry": ids[1:2], "release": ids[1:2], "retire": ids[1:2], "dead": []}
    assert claimed(database.conn, worker) == goes_on.get(end, ids[2:])


def test_the_cancellation_of_one_that_waits_wakes_nobody(database: Database) -> None:
    worker, ids = held_key(database.conn)
    database.rows(CANCEL, ids[1:2])

    assert claimed(database.conn, worker) == []
    database.value(DISMISS, ids[:1])
    assert claimed(database.conn, worker) == [ids[2]]


def test_one_that_is_made_due_at_once_waits_for_its_key(database: Database) -> None:
    worker, ids = held_key(database.conn)
    assert database.column("select redrive.run_now_v1(%s, 'ada', 'now')", ids) == []

    assert claimed(database.conn, worker) == []


def test_a_lost_worker_whose_job_is_dead_holds_the_key(database: Database) -> None:
    """Whoever rescues knows no handlers; another worker has said what they do."""
    ids = make_key(database.conn)
    lost, worker = make_worker(database.conn), holding_worker(database.conn)
    claim_one(database.conn, lost)
    database.value("select redrive.run_alone_v1(%s, %s)", lost, ids[0])
    silence(database.conn, lost)

    assert store.rescue(database.conn, 60) == (1, 0, 1)
    assert database.column("select holds_key from redrive.dead_letters") == [True]
    assert claimed(database.conn, worker) == []
    complete(database.conn, worker, redriven(database, ids, worker))
    assert claimed(database.conn, worker) == [ids[1]]


def test_one_that_was_not_parked_when_the_death_came_is_not_claimed(
    database: Database,
) -> None:
    """It could not see the older one, which was not committed."""
    worker, slow = holding_worker(database.conn), database.transaction()
    older = make_job(slow.conn, ordering_key="k")
    younger = make_job(database.conn, ordering_key="k")
    slow.rows("commit")
    job = claim_one(database.conn, worker)
    assert job.id == older
    let_die(database.conn, worker, job)

    assert database.value(STATE, younger) == "ready"
    assert claimed(database.conn, worker) == []
    database.value(DISMISS, [older])
    assert claimed(database.conn, worker) == [younger]


def test_a_job_that_comes_while_the_one_before_it_dies_is_held(
    database: Database,
) -> None:
    worker, ids = holding_worker(database.conn), make_key(database.conn, 1)
    job, dying = claim_one(database.conn, worker), database.transaction()
    let_die(dying.conn, worker, job)
    late = make_job(database.conn, ordering_key="k")
    dying.rows("commit")

    assert database.value(STATE, late) == "blocked"
    assert store.unpark(database.conn) == 0
    database.value(DISMISS, ids)
    assert claimed(database.conn, worker) == [late]


@pytest.mark.parametrize("first", ["dismissal", "enqueue"])
def test_a_job_that_comes_beside_a_dismissal_goes_on_at_the_next_look(
    database: Database, first: str
) -> None:
    """Neither sees the other; then it is the chore that wakes it."""
    worker, ids = held_key(database.conn, 1)
    other = database.transaction()
    if first == "dismissal":
        other.value(DISMISS, ids)
        late = make_job(database.conn, ordering_key="k")
    else:
        late = make_job(other.conn, ordering_key="k")
        database.value(DISMISS, ids)
    other.rows("commit")

    assert claimed(database.conn, worker) == []
    assert store.unpark(database.conn) == 1
    assert claimed(database.conn, worker) == [late]


def test_a_job_that_comes_beside_a_redrive_waits_for_it(database: Database) -> None:
    worker, ids = held_key(database.conn, 1)
    operator = database.transaction()
    redrive(operator.conn, ids)
    late = make_job(database.conn, ordering_key="k")
    operator.rows("commit")

    assert claimed(database.conn, worker) == ids
    assert database.value(STATE, late) == "blocked"


@pytest.mark.parametrize("rate", [None, 0.01, 1000.0])
def test_dead_letters_of_one_key_come_back_in_their_order(
    database: Database, rate: float | None
) -> None:
    """Whatever the order in which they are named, and with it their places in the schedule."""
    worker, ids = make_worker(database.conn), make_key(database.conn, 4)
    for _ in ids[:3]:
        let_next_die(database.conn, worker)
    redrive(database.conn, [ids[2], ids[0], ids[1]], rate=rate)
    # as time passes
    pull = "update redrive.jobs set run_at = now() where run_at < 'infinity'"
    for job_id in ids:
        database.rows(pull)
        job = claim_one(database.conn, worker)
        assert job.id == job_id
        complete(database.conn, worker, job)


def test_dead_letters_that_come_back_by_the_chunk_keep_the_order_of_their_key(
    database: Database,
) -> None:
    """The younger came back first, and had not been claimed: the older one goes before it."""
    worker, ids = make_worker(database.conn), make_key(database.conn, 2)
    for _ in ids:
        let_next_die(database.conn, worker)
    redrive(database.conn, ids[1:])
    redrive(database.conn, ids[:1])

    assert claimed(database.conn, worker) == ids[:1]


READ: LiteralString = """
    select sum(coalesce(idx_tup_fetch, 0) + seq_tup_read)::bigint
    from pg_stat_user_tables where relname = 'dead_letters'"""
CLAIM: LiteralString = """
    select redrive.claim_v1(%s, '{default}', '{0}', '{0}', '{epoch}', '{0}', '{0}', true, 10)"""


def test_a_claim_looks_at_the_dead_letter_that_holds_a_key_alone(
    database: Database,
) -> None:
    """However many others are open, and planned while there were none."""
    worker = holding_worker(database.conn)
    slow = database.transaction()
    session = database.session()
    older = make_job(slow.conn, ordering_key="k")
    make_job(database.conn, ordering_key="k")
    slow.rows("commit")
    session.rows("begin")
    session.rows(CLAIM, worker)
    session.rows("rollback")
    let_next_die(database.conn, worker)
    make_dead_letters(database.conn, 1000)
    database.conn.execute("select pg_stat_force_next_flush()")
    before = database.value(READ)
    session.rows(CLAIM, worker)
    session.rows("select pg_stat_force_next_flush()")
    read = session.value(READ) - before  # before this test reads them itself

    assert read == 1
    assert database.column("select id from redrive.dead_letters where holds_key") == [
        older
    ]
