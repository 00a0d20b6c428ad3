"""claim_v1: lanes and jobs that other transactions hold, and claims that fail."""

import psycopg
import pytest

from redrive.worker.round_trip import EPOCH, START, ClaimRequest, Lane, Settlements
from redrive.worker.round_trip import exchange as exchange_of_worker
from tests.factories import (
    Claimed,
    claim,
    complete,
    exchange,
    holders,
    make_job,
    make_jobs,
    make_worker,
)
from tests.postgres import Database
from tests.sql.test_claim import LANE, NEIGHBOURS, make_neighbours


def test_a_lane_that_somebody_claims_from_is_left_to_them_and_said_to_be_busy(
    database: Database,
) -> None:
    make_jobs(database.conn, 3)
    make_jobs(database.conn, 1, queue="other")
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    claim(database.conn, one, 1)
    first, second = database.transaction(), database.session(lock_timeout="1ms")
    claim(first.conn, one, 1, lanes=LANE)
    request = ClaimRequest(two, [*LANE, Lane(0, "other", 0)], [START, START], 10)
    busy, other = exchange(second.conn, claim=request).lanes

    assert (busy.lane_no, busy.claim, busy.upto) == (1, None, None)
    assert (other.lane_no, other.jobs) == (2, 1)
    first.rows("rollback")


HANGS = 600_000
"""Milliseconds that no statement may last."""


def test_who_waits_for_a_lane_gets_what_is_left_and_what_came_meanwhile(
    database: Database,
) -> None:
    *taken, left = make_jobs(database.conn, 3)
    taken += make_jobs(database.conn, 2, queue="other")
    make_jobs(database.conn, 1, queue="other")
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    later = Lane(0, "other", 0)
    first, second = database.transaction(), database.session()
    for conn in (database.conn, first.conn):
        for lane in (*LANE, later):
            claim(conn, one, 1, lanes=[lane])
    empty = Lane(-1, "default", 0)
    request = ClaimRequest(
        two, [empty, *LANE, later], [START] * 3, 10, lane_wait_ms=HANGS
    )
    waiting = database.start_blocked(
        second, lambda: exchange(second.conn, claim=request), by=first
    )
    new = make_job(database.conn)
    first.rows("commit")
    *busy, ours, mine = (answer := waiting.result(60)).lanes

    assert [Claimed(*row).id for row in answer.rows()] == [left, new]
    assert [(lane.lane_no, lane.upto) for lane in busy] == [(2, None), (3, None)]
    assert ours == (2, 0, EPOCH, 0, 0, None)
    assert (mine.lane_no, mine.jobs) == (2, 2)
    assert holders(database.conn) == dict.fromkeys(taken, one) | {left: two, new: two}


def test_who_holds_a_lane_waits_for_no_other(database: Database) -> None:
    """Of two that do, each could wait for the other's."""
    make_jobs(database.conn, 1)
    make_jobs(database.conn, 2, queue="other")
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    claim(database.conn, one, 2)
    first = database.transaction()
    other = Lane(0, "other", 0)
    claim(first.conn, one, 1, lanes=[other])
    request = ClaimRequest(two, [other, *LANE], [START, START], 10, lane_wait_ms=HANGS)
    busy, mine = exchange(database.conn, claim=request).lanes
    first.rows("rollback")

    assert (busy.lane_no, busy.upto) == (1, None)
    assert (mine.lane_no, mine.jobs) == (2, 0), (
        "others have what is due, and the lane is ours"
    )


def test_who_waited_for_a_lane_holds_no_other(database: Database) -> None:
    make_jobs(database.conn, 2)
    make_neighbours(database)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    for lane in [*LANE, *NEIGHBOURS]:
        claim(database.conn, one, 1, lanes=[lane])
    first, second = database.session(), database.session()
    for session in (first, second):
        session.rows("begin")
    claim(first.conn, one, lanes=LANE)
    request = ClaimRequest(two, LANE, [START], 10, lane_wait_ms=HANGS)
    waiting = database.start_blocked(
        second, lambda: exchange(second.conn, claim=request), by=first
    )
    first.rows("rollback")
    waiting.result(60)
    beside = [claim(database.conn, one, lanes=[lane]) for lane in NEIGHBOURS]
    second.rows("rollback")

    assert [len(jobs) for jobs in beside] == [1, 1, 1]


@pytest.mark.parametrize("ends", [True, False])
def test_the_patience_of_a_claim_ends_with_its_wait(
    database: Database, *, ends: bool
) -> None:
    _, job = make_jobs(database.conn, 2)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    claim(database.conn, one, 1)
    first, second = database.transaction(), database.session()
    claim(first.conn, one, 1, lanes=LANE)
    request = ClaimRequest(two, LANE, [START], 10, lane_wait_ms=HANGS if ends else 1)
    second.rows("begin")
    second.rows("set local lock_timeout = '7s'")
    waiting = second.start(lambda: exchange(second.conn, claim=request))
    if ends:
        assert database.wait_until_blocked(second) == [first.pid]
        first.rows("rollback")
    answer = waiting.result(60)

    assert [row[1] for row in answer.rows()] == [job] * ends
    assert [lane.upto is None for lane in answer.lanes] == [True] + [
        False,
        False,
    ] * ends
    assert second.value("show lock_timeout") == "7s"
    first.rows("rollback")


def test_what_was_settled_stays_settled_when_the_claim_beside_it_fails(
    database: Database,
) -> None:
    """A claim that times out does not roll back the settlements that it travels with."""
    done = make_job(database.conn)
    make_job(database.conn, queue="new")
    one = make_worker(database.conn, "one")
    (job,) = claim(database.conn, one, 1, lanes=LANE)
    second = database.session(lock_timeout="1ms")
    database.transaction("select from redrive.workers where id = %s for update", one)
    request = ClaimRequest(one, [Lane(0, "new", 0)], [START], 1)
    settlements = Settlements(
        [(job.id, job.deliveries, job.claim, one)], (), (job.claim,)
    )
    answer = exchange_of_worker(second.conn, settlements, request)

    assert isinstance(answer.claim_error, psycopg.errors.LockNotAvailable)
    assert (answer.completed, answer.rows()) == (None, [])
    assert database.column("select id from redrive.jobs where id = %s", done) == []
    assert database.column("select id from redrive.claims") == []


def test_two_claims_of_one_key_at_once_from_two_lanes_run_one_job(
    database: Database,
) -> None:
    """Both ran when the older one committed while the younger was being claimed."""
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    late, first, second = (database.session() for _ in range(3))
    late.rows("begin")
    make_job(late.conn, ordering_key="k", priority=5)
    make_job(database.conn, ordering_key="k")
    first.rows("begin")
    (younger,) = claim(first.conn, one, 1, lanes=LANE)
    late.rows("commit")
    waiting = database.start_blocked(
        second,
        lambda: claim(second.conn, two, 1, lanes=[Lane(5, "default", 0)]),
        by=first,
    )
    first.rows("commit")

    assert waiting.result(60) == []
    complete(database.conn, one, younger)
    front = [Lane(5, "default", 0).front]
    assert len(claim(database.conn, two, 1, lanes=front)) == 1


def test_a_claim_waits_for_no_lock_on_a_job_and_writes_none(database: Database) -> None:
    ids = make_jobs(database.conn, 3)
    database.transaction("select from redrive.jobs where id = %s for update", ids[1])
    worker = make_worker(database.conn)
    session = database.session(lock_timeout="1ms")

    assert [job.id for job in claim(session.conn, worker)] == ids
    assert database.value("select count(distinct xmin::text) from redrive.jobs") == 1


def test_a_claim_that_is_not_committed_is_skipped_by_others(database: Database) -> None:
    make_jobs(database.conn, 10)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    before = claim(database.conn, one, 1)
    first, second = database.transaction(), database.session(lock_timeout="1ms")
    mine = {job.id for job in claim(first.conn, one, 5)}
    assert len(mine) == 5
    assert claim(second.conn, two, 10) == []
    first.rows("rollback")

    theirs = {job.id for job in claim(second.conn, two, 10)}
    assert len(theirs) == 9, "a claim that was rolled back never happened"
    assert not theirs & {job.id for job in before}


def test_a_claim_that_holds_a_lane_waits_for_nobody_who_makes_another(
    database: Database,
) -> None:
    """Two that made lanes in the opposite order, or one and a cancel, waited for each other."""
    ids = [make_job(database.conn, queue=queue) for queue in ("a", "b")]
    maker = database.transaction("insert into redrive.lanes values ('b', 0, 0)")
    impatient = database.connect(lock_timeout="1s")
    worker = make_worker(impatient)

    assert [job.id for job in claim(impatient, worker)] == ids[:1]
    maker.rows("commit")
    assert [job.id for job in claim(impatient, worker)] == ids[1:]
