"""claim_v1 and the lanes it is given."""

import re
from dataclasses import asdict, replace
from datetime import timedelta
from secrets import token_hex

import psycopg
import pytest

from redrive.worker import store
from redrive.worker.exchange import EPOCH, START, ClaimRequest, Lane, Place, Settlements
from redrive.worker.exchange import exchange as exchange_of_worker
from redrive.worker.supervisor.claiming.lanes import LaneBook
from tests.factories import (
    Claimed,
    bury,
    claim,
    claim_one,
    complete,
    exchange,
    failure,
    holders,
    lanes_of,
    last_claim,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle,
    totals,
)
from tests.postgres import Database

LANE = [Lane(0, "default", 0)]
NEIGHBOURS = [Lane(0, "other", 0), Lane(1, "default", 0), Lane(0, "default", 1)]
"""Each differs in one thing alone."""


def test_a_claim_counts_the_delivery_and_the_attempt(database: Database) -> None:
    job_id = make_job(database.conn, payload={"n": 1})
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)

    assert (job.id, job.deliveries, job.attempt, job.kind, job.payload) == (
        job_id,
        1,
        1,
        "invoice.charge",
        '{"n": 1}',
    )
    assert job.extras is None
    assert holders(database.conn) == {job_id: worker}
    assert database.rows("select deliveries, attempt from redrive.jobs") == [(0, 0)]
    assert totals(database.conn) == {"enqueued": 1, "claimed": 1}


def test_what_few_jobs_have_comes_as_rest(database: Database) -> None:
    make_job(
        database.conn,
        max_attempts=3,
        tenant="acme",
        headers={"traceparent": "00-1"},
        idempotency_key="ik",
        ordering_key="ok",
        expires_in=3600,
    )
    worker = make_worker(database.conn)
    assert settle(
        database.conn,
        worker,
        claim_one(database.conn, worker),
        "retry",
        failure=failure(),
        losses=1,
    )
    more = claim_one(database.conn, worker).more
    expires_in = more.pop("expires_in")

    assert 3000 < expires_in <= 3600
    assert more == {
        "max_attempts": 3,
        "losses": 1,
        "refunds": None,
        "streak": 1,
        "fingerprint": "f1",
        "redrives": 0,
        "tenant": "acme",
        "headers": {"traceparent": "00-1"},
        "idempotency_key": "ik",
        "ordering_key": "ok",
        "checkpoint": None,
        "retried_for": None,
    }


@pytest.mark.parametrize(
    "option",
    [
        {"max_attempts": 3},
        {"tenant": "t"},
        {"headers": {"a": "b"}},
        {"idempotency_key": "k"},
        {"ordering_key": "k"},
        {"expires_in": 5},
    ],
    ids=lambda option: next(iter(option)),
)
def test_rest_is_there_as_soon_as_one_of_it_is_not_the_default(
    database: Database, option: dict[str, object]
) -> None:
    make_job(database.conn, **option)

    assert claim_one(database.conn, make_worker(database.conn)).extras is not None


def test_jobs_come_by_priority_and_then_by_when_they_are_due(
    database: Database,
) -> None:
    ids = {
        (priority, n): make_job(database.conn, priority=priority)
        for n in range(3)
        for priority in (5, -5, 0)
    }
    worker = make_worker(database.conn)
    claimed = [job.id for _ in range(9) for job in claim(database.conn, worker, 1)]

    assert claimed == [ids[priority, n] for priority in (-5, 0, 5) for n in range(3)]


def test_a_claim_takes_no_more_than_it_wants(database: Database) -> None:
    make_jobs(database.conn, 5)
    make_jobs(database.conn, 5, priority=1)
    worker = make_worker(database.conn)

    assert [len(claim(database.conn, worker, 7)) for _ in range(3)] == [7, 3, 0]


def test_a_job_is_claimed_once(database: Database) -> None:
    make_jobs(database.conn, 50)
    workers = [make_worker(database.conn, f"w{n}") for n in range(4)]
    taken = [claim(database.conn, worker, 20) for worker in workers]

    assert [len(jobs) for jobs in taken] == [20, 20, 10, 0]
    assert len({job.id for jobs in taken for job in jobs}) == 50


def test_a_job_of_the_future_is_left(database: Database) -> None:
    (soon,) = database.row("select clock_timestamp() + interval '1 minute'")
    make_job(database.conn, run_at=soon)

    assert claim(database.conn, make_worker(database.conn)) == []


def test_only_the_given_lanes_are_looked_at_in_their_order(database: Database) -> None:
    for queue in ("a", "b", "c"):
        make_jobs(database.conn, 2, queue=queue)
    make_jobs(database.conn, 2, queue="a", lane=3)
    worker = make_worker(database.conn)
    jobs = claim(
        database.conn,
        worker,
        lanes=[Lane(0, "c", 0), Lane(0, "a", 3), Lane(0, "nothing", 0)],
    )

    queue_of = dict(database.rows("select id, queue || lane from redrive.jobs"))
    assert [queue_of[job.id] for job in jobs] == ["c0", "c0", "a3", "a3"]


def make_neighbours(database: Database) -> None:
    """Due jobs in every lane that could be taken for ours."""
    for lane in NEIGHBOURS:
        make_jobs(database.conn, 2, **asdict(lane))


def test_a_claim_heeds_and_holds_its_own_lane_alone(database: Database) -> None:
    """Others are claimed from meanwhile, and how far they were claimed is no place in this one."""
    ids = make_jobs(database.conn, 2)
    make_neighbours(database)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    for lane in NEIGHBOURS:
        assert len(claim(database.conn, two, 1, lanes=[lane])) == 1
    mine, other = database.session(), database.session(lock_timeout="1ms")
    mine.rows("begin")
    taken = claim(mine.conn, one, lanes=LANE, places=[START])
    beside = [
        claim(other.conn, two, lanes=[lane], places=[START]) for lane in NEIGHBOURS
    ]
    mine.rows("commit")

    assert [job.id for job in taken] == ids
    assert [len(jobs) for jobs in beside] == [1, 1, 1]


def test_a_few_small_jobs_come_with_their_claim_and_others_are_read_later(
    database: Database,
) -> None:
    worker, found = make_worker(database.conn), []
    for count, size in ((8, 1), (9, 1), (1, 5000)):
        for _ in range(count):
            make_job(database.conn, payload={"n": token_hex(size)})
        rows = database.column(
            "select id from redrive.claim_v1(%s, '{default}', '{0}', '{0}', '{-infinity}', '{0}',"
            " '{0}', true, 100) where id is not null",
            worker,
        )
        found.append(len(rows))

    assert found == [8, 0, 0]


def test_what_is_read_of_claims_is_the_workers_own_and_new(database: Database) -> None:
    make_jobs(database.conn, 4)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    old, other, new, another = (
        claim_one(database.conn, w) for w in (one, two, one, two)
    )
    read = "select id from redrive.claimed_v1(%s, %s) order by id"

    assert database.column(read, one, old.claim) == [new.id]
    assert database.column(read, two, 0) == [other.id, another.id]


@pytest.mark.every_version
def test_what_is_read_of_large_payloads_waits_compressed(database: Database) -> None:
    """As text they are 38 MB, more than may wait in memory: they would go by a file."""
    worker, jobs = make_worker(database.conn), make_jobs(database.conn, 600)
    database.rows(
        "update redrive.jobs set payload = jsonb_build_object('s', repeat('x', 64000))"
    )
    assert [job.id for job in claim(database.conn, worker, 600)] == jobs
    plan = database.value(
        "explain (analyze, buffers, format json)"
        " select payload::text from redrive.claimed_v1(%s, 0)",
        worker,
    )[0]["Plan"]

    assert (plan["Actual Rows"], plan["Temp Written Blocks"]) == (600, 0)


def test_tenants_of_a_fair_queue_take_turns(database: Database) -> None:
    """A loud one keeps nobody waiting; without lanes the quiet one comes last."""
    for queue, lanes in (("fair", 16), ("plain", 1)):
        database.rows("select redrive.set_lanes_v1(%s, %s, 'ada', 'x')", queue, lanes)
        for tenant in ("loud", "loud", "loud", "quiet", "quiet"):
            make_job(database.conn, queue=queue, tenant=tenant)
    worker = make_worker(database.conn)

    assert (
        sorted(tenants_in_turn(database, worker, "fair")[:4])
        == ["loud"] * 2 + ["quiet"] * 2
    )
    assert tenants_in_turn(database, worker, "plain") == ["loud"] * 3 + ["quiet"] * 2


def tenants_in_turn(database: Database, worker: int, queue: str) -> list[str]:
    """Whose jobs are claimed, one at a time, by a worker that knows where to look."""
    book, found = LaneBook([queue]), []
    book.replace(store.lanes(database.conn, [queue]), 0.0, 0.0)
    for _ in range(5):
        request = book.request(worker, 1, 0.0)
        assert request is not None
        answer = exchange(
            database.conn, claim=replace(request, after=last_claim(database.conn))
        )
        book.learn(request, answer.lanes, 0.0)
        found.append(Claimed(*answer.rows()[0]).more["tenant"])
    return found


def test_what_waited_before_a_queue_was_fair_delays_nobody_after(
    database: Database,
) -> None:
    """U14: the loud one's jobs, and a tenant of any share: one claim for each lane at most."""
    make_jobs(database.conn, 2000, queue="q", tenant="loud")
    database.rows("select redrive.set_lanes_v1('q', 16, 'ada', 'x')")
    others = [f"t{n}" for n in range(60)]
    for tenant in others:
        make_job(database.conn, queue="q", tenant=tenant)
    lanes = database.column("select distinct lane from redrive.jobs order by 1")
    found = [
        job.more["tenant"] for jobs in in_turn(database, len(lanes), 50) for job in jobs
    ]

    assert lanes[0] == 0
    assert sorted(tenant for tenant in found if tenant != "loud") == sorted(others)


def test_a_low_priority_runs_within_sixteen_claims_of_a_flood(
    database: Database,
) -> None:
    """Before there were shares, no claim of a worker came to it while urgent jobs were due."""
    late = make_job(database.conn, queue="q", priority=5)
    make_jobs(database.conn, 1000, queue="q")
    claims = [{job.id for job in jobs} for jobs in in_turn(database, 17, 10)]

    assert [late in ids for ids in claims] == [False] * 15 + [True, False]
    assert {len(ids) for ids in claims} == {10}


def in_turn(database: Database, claims: int, want: int) -> list[list[Claimed]]:
    """What so many claims take, of a worker that knows where to look."""
    worker, book, found = make_worker(database.conn), LaneBook(["q"]), []
    book.replace(store.lanes(database.conn, ["q"]), 0.0, 0.0)
    for _ in range(claims):
        request = book.request(worker, want, 0.0)
        assert request is not None
        answer = exchange(
            database.conn, claim=replace(request, after=last_claim(database.conn))
        )
        book.learn(request, answer.lanes, 0.0)
        found.append([Claimed(*row) for row in answer.rows()])
    return found


def test_a_queue_gets_lanes_and_loses_them_again(database: Database) -> None:
    for lanes in (16, 1):
        database.rows(
            "select redrive.set_lanes_v1('q', %s, 'ada', 'a loud tenant')", lanes
        )
        assert database.rows("select queue, lanes, paused_at from redrive.queues") == [
            ("q", lanes, None)
        ]
    with pytest.raises(psycopg.errors.CheckViolation):
        database.rows("select redrive.set_lanes_v1('q', 257, 'ada', 'x')")

    assert database.rows(
        "select action, why, detail from redrive.audit order by id"
    ) == [
        ("set lanes", "a loud tenant", {"queue": "q", "lanes": lanes})
        for lanes in (16, 1)
    ]


def test_nothing_before_its_place_is_claimed_but_by_a_sweep(database: Database) -> None:
    make_jobs(database.conn, 10)
    worker = make_worker(database.conn)
    rows = database.rows("select run_at, id from redrive.jobs order by run_at, id")
    lane, place = [Lane(0, "default", 0)], Place(*rows[4], as_of=0)

    above = claim(database.conn, worker, lanes=lane, places=[place])
    assert [(job.run_at, job.id) for job in above] == rows[5:]
    assert claim(database.conn, worker, lanes=lane, places=[place]) == []
    assert len(claim(database.conn, worker, lanes=lane)) == 5


def test_jobs_of_one_instant_are_claimed_once_each_in_order(database: Database) -> None:
    database.rows(
        "insert into redrive.jobs (kind, run_at) select 'a', now() from generate_series(1, 25)"
    )
    worker = make_worker(database.conn)
    lane = [Lane(0, "default", 0)]
    claimed = [
        job.id
        for _ in range(4)
        for job in claim(database.conn, worker, 10, lanes=lane, places=[START])
    ]

    assert claimed == database.column("select id from redrive.jobs order by id")


def test_a_claim_goes_on_where_that_of_another_worker_ended(database: Database) -> None:
    """Also when a sweep between them took one that had become visible late."""
    make_jobs(database.conn, 10)
    one, two, three = (
        make_worker(database.conn, name) for name in ("one", "two", "three")
    )
    first = claim(database.conn, one, 5, lanes=LANE, places=[START])
    database.rows(
        "insert into redrive.jobs (kind, run_at) values ('late', '2020-01-01')"
    )
    (late,) = claim(database.conn, two, 1, lanes=LANE)
    rest = claim(database.conn, three, 100, lanes=LANE, places=[START])

    assert late.kind == "late"
    assert len(rest) == 5
    assert not {job.id for job in first} & {job.id for job in rest}


def test_c38_a_worker_that_is_behind_reads_no_job_that_others_have_completed(
    database: Database,
) -> None:
    """Among many workers, each is far behind whenever its turn comes."""
    make_jobs(database.conn, 3_000)
    ahead, behind = make_worker(database.conn, "1"), make_worker(database.conn, "2")
    _, at_once = (buffers_of_claim(database, behind) for _ in range(2))
    database.session().rows("begin isolation level repeatable read; select 1")
    done = claim(database.conn, ahead, 2_000, lanes=LANE, places=[START])
    claim(database.conn, ahead, 10, lanes=LANE, places=[START])
    complete(database.conn, ahead, *done)

    assert buffers_of_claim(database, behind) <= at_once + 10


def buffers_of_claim(database: Database, worker: int) -> int:
    """Count the buffers of a claim of ten jobs from the first place, and take it back."""
    with database.conn.transaction(force_rollback=True):
        plan = database.column(
            "explain (analyze, buffers) select from redrive.claim_v1(%s, '{default}', '{0}', '{0}',"
            " '{epoch}', '{0}', '{0}', false, 10)",
            worker,
        )
    (hits,) = {int(n) for n in re.findall(r"Buffers: shared hit=(\d+)", plan[1])}
    return hits


def test_workers_with_the_same_kinds_share_sweeps(database: Database) -> None:
    """C38: each of a hundred workers swept as often as one alone, and held the lane for it."""
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    other = store.register(
        database.conn, store.Registration("other", "test", 60, ["late"], None)
    )
    make_jobs(database.conn, 10)
    (before,) = sweep(database, one, 2)
    make_late(database)
    (shared,) = sweep(database, two, 2)
    (own,) = sweep(database, other, 1)
    make_late(database)
    database.rows(
        "update redrive.lanes set full_scan_at = full_scan_at - interval '1 hour'"
    )
    (again,) = sweep(database, two, 1)
    make_late(database)
    database.rows("update redrive.lanes set full_scan_at = now() + interval '1 day'")
    (after_a_clock,) = sweep(database, one, 1)

    assert before == shared == {"invoice.charge"}
    assert own == again == after_a_clock == {"late"}


def test_a_sweep_whose_jobs_were_all_late_leaves_the_next_one_due(
    database: Database,
) -> None:
    """Else many jobs of one late transaction would come by one claim in five seconds."""
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    make_jobs(database.conn, 10)
    sweep(database, one, 2)
    for _ in range(5):
        make_late(database)
    database.rows("update redrive.lanes set full_scan_at = '-infinity'")
    found = [sweep(database, worker, 2) for worker in (one, two, one, two)]

    assert found == [
        [{"late"}],
        [{"late"}],
        [{"late", "invoice.charge"}],
        [{"invoice.charge"}],
    ]
    assert database.value("select isfinite(full_scan_at) from redrive.lanes")


def make_late(database: Database) -> None:
    """Insert a job behind the places of all workers."""
    database.rows(
        "insert into redrive.jobs (kind, run_at) values ('late', '2020-01-01')"
    )


def sweep(database: Database, worker: int, want: int) -> list[set[str]]:
    """Claim as a worker whose sweep is due. Returns the kinds of its jobs."""
    request = ClaimRequest(worker, LANE, [START], want, from_start=None)
    rows = exchange(database.conn, claim=request).rows()
    return [{Claimed(*row).kind for row in rows}]


def test_a_place_from_before_a_crash_is_not_trusted(database: Database) -> None:
    """C17: claims that a crash took back left their ids to others, and jobs were claimed twice."""
    make_jobs(database.conn, 10)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    request = ClaimRequest(one, LANE, [START], 5, from_start=False)
    (before,) = exchange(database.conn, claim=request).lanes
    place = Place(before.upto or EPOCH, before.upto_id or 0, before.as_of or 0)
    # what the server finds after a crash that came before the log was flushed
    database.rows("truncate redrive.epoch")
    database.rows("truncate redrive.claims restart identity")
    again = claim(database.conn, two, 100, lanes=LANE)
    request = ClaimRequest(one, LANE, [place], 100, from_start=False)

    assert len(again) == 10
    assert again[0].claim > 1_000_000
    assert exchange(database.conn, claim=request).rows() == []


def test_jobs_whose_claim_a_crash_took_back_are_found_behind_the_place(
    database: Database,
) -> None:
    ids, worker = make_jobs(database.conn, 3), make_worker(database.conn)
    request = ClaimRequest(worker, LANE, [START], 3, from_start=False)
    (before,) = exchange(database.conn, claim=request).lanes
    place = Place(before.upto or EPOCH, before.upto_id or 0, before.as_of or 0)
    database.rows("truncate redrive.epoch")
    database.rows("truncate redrive.claims restart identity")
    ids += make_jobs(database.conn, 1)

    assert [
        job.id for job in claim(database.conn, worker, lanes=LANE, places=[place])
    ] == ids


def test_a_lane_that_somebody_claims_from_is_left_to_them_and_said_to_be_busy(
    database: Database,
) -> None:
    make_jobs(database.conn, 3)
    make_jobs(database.conn, 1, queue="other")
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    claim(database.conn, one, 1)
    first, second = database.session(), database.session(lock_timeout="1ms")
    first.rows("begin")
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
    first, second = database.session(), database.session()
    first.rows("begin")
    for conn in (database.conn, first.conn):
        for lane in (*LANE, later):
            claim(conn, one, 1, lanes=[lane])
    empty = Lane(-1, "default", 0)
    request = ClaimRequest(
        two, [empty, *LANE, later], [START] * 3, 10, lane_wait_ms=HANGS
    )
    waiting = second.start(lambda: exchange(second.conn, claim=request))
    assert database.wait_until_blocked(second) == [first.pid]
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
    first = database.session()
    first.rows("begin")
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
    waiting = second.start(lambda: exchange(second.conn, claim=request))
    assert database.wait_until_blocked(second) == [first.pid]
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
    first, second = database.session(), database.session()
    first.rows("begin")
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
    """C9: a claim that timed out rolled back the settlements that it travelled with."""
    done = make_job(database.conn)
    make_job(database.conn, queue="new")
    one = make_worker(database.conn, "one")
    (job,) = claim(database.conn, one, 1, lanes=LANE)
    first, second = database.session(), database.session(lock_timeout="1ms")
    first.rows("begin")
    first.rows("select from redrive.workers where id = %s for update", one)
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
    """C13: both ran when the older one committed while the younger was being claimed."""
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    late, first, second = (database.session() for _ in range(3))
    late.rows("begin")
    make_job(late.conn, ordering_key="k", priority=5)
    make_job(database.conn, ordering_key="k")
    first.rows("begin")
    (younger,) = claim(first.conn, one, 1, lanes=LANE)
    late.rows("commit")
    waiting = second.start(
        lambda: claim(second.conn, two, 1, lanes=[Lane(5, "default", 0)])
    )
    assert database.wait_until_blocked(second) == [first.pid]
    first.rows("commit")

    assert waiting.result(60) == []
    complete(database.conn, one, younger)
    assert len(claim(database.conn, two, 1, lanes=[Lane(5, "default", 0)])) == 1


def test_a_worker_with_other_kinds_in_the_lane_takes_its_own_and_no_other(
    database: Database,
) -> None:
    """C11: each bounced the other's jobs for ever."""
    for kind in ("a.one", "b.one", "b.two", "c.one", "c.ones") * 5:
        make_job(database.conn, kind)
    everything = make_worker(database.conn, "old")
    kinds = {"a": ["a.*", "c.one"], "b": ["b.one", "b.two", "c.one"]}
    workers = {name: make_worker(database.conn, name) for name in kinds}
    for name, worker in workers.items():
        database.rows(
            "update redrive.workers set kinds = %s where id = %s", kinds[name], worker
        )
    claimed: list[Claimed] = []
    for _ in range(4):
        a = claim(database.conn, workers["a"], 2, lanes=LANE, places=[START])
        b = claim(database.conn, workers["b"], 2, lanes=LANE, places=[START])
        assert {job.kind for job in a} == {"a.one", "c.one"}
        assert {job.kind for job in b} <= {"b.one", "b.two", "c.one"}
        claimed += a + b
    claimed += claim(database.conn, everything, 100, lanes=LANE, places=[START])

    assert sorted(job.id for job in claimed) == database.column(
        "select id from redrive.jobs order by id"
    )


def test_what_comes_or_comes_back_is_in_front_of_every_floor(
    database: Database,
) -> None:
    dead = make_dead_letter(database.conn)
    worker = make_worker(database.conn)
    make_jobs(database.conn, 3)
    jobs = claim(database.conn, worker)
    place = [max(Place(job.run_at, job.id, job.claim) for job in jobs)]

    settle(database.conn, worker, jobs[0], "release", run_at=EPOCH)
    settle(database.conn, worker, jobs[1], "retry", delay=0.0)
    redrive(database.conn, [dead])
    new = make_job(database.conn)
    back = claim(database.conn, worker, lanes=LANE, places=place)

    assert {job.id for job in back} == {jobs[0].id, jobs[1].id, dead, new}


def test_a_claim_waits_for_no_lock_on_a_job_and_writes_none(database: Database) -> None:
    ids = make_jobs(database.conn, 3)
    other = database.session()
    other.rows("begin")
    other.rows("select from redrive.jobs where id = %s for update", ids[1])
    worker = make_worker(database.conn)
    session = database.session(lock_timeout="1ms")

    assert [job.id for job in claim(session.conn, worker)] == ids
    assert database.value("select count(distinct xmin::text) from redrive.jobs") == 1


def test_a_claim_that_is_not_committed_is_skipped_by_others(database: Database) -> None:
    make_jobs(database.conn, 10)
    one, two = make_worker(database.conn, "one"), make_worker(database.conn, "two")
    before = claim(database.conn, one, 1)
    first, second = database.session(), database.session(lock_timeout="1ms")
    first.rows("begin")
    mine = {job.id for job in claim(first.conn, one, 5)}
    assert len(mine) == 5
    assert claim(second.conn, two, 10) == []
    first.rows("rollback")

    theirs = {job.id for job in claim(second.conn, two, 10)}
    assert len(theirs) == 9, "a claim that was rolled back never happened"
    assert not theirs & {job.id for job in before}


def test_expired_jobs_are_claimed_and_say_so(database: Database) -> None:
    """What to do with them is policy, and policy is the worker's."""
    make_job(database.conn, expires_in=0.001)
    database.rows("select pg_sleep(0.002)")

    assert claim_one(database.conn, make_worker(database.conn)).more["expires_in"] <= 0


@pytest.mark.parametrize(
    "why", ["never registered", "lost", "retired", "being retired"]
)
def test_a_worker_that_is_not_alive_claims_nothing(
    database: Database, why: str
) -> None:
    make_jobs(database.conn, 3)
    worker = make_worker(database.conn)
    if why == "never registered":
        worker += 1
    elif why == "lost":
        database.rows("update redrive.workers set lost_at = now()")
    elif why == "being retired":
        database.rows("update redrive.workers set is_closed = true")
    else:
        store.retire(database.conn, worker)

    assert claim(database.conn, worker) == []
    assert holders(database.conn) == {}
    assert totals(database.conn) == {"enqueued": 3}


def test_an_empty_claim_takes_no_transaction_id_and_locks_no_row(
    database: Database,
) -> None:
    (later,) = database.row("select now() + interval '1 hour'")
    make_job(database.conn, run_at=later)
    make_neighbours(database)
    worker = make_worker(database.conn)
    session = database.session()
    session.rows("begin")

    assert claim(session.conn, worker, lanes=[*LANE, Lane(0, "nothing", 0)]) == []
    assert session.value("select pg_current_xact_id_if_assigned()") is None
    assert (
        session.value(
            "select count(*) from pg_locks where pid = pg_backend_pid() and mode = 'RowShareLock'"
            " and granted and locktype = 'tuple'"
        )
        == 0
    )

    make_job(database.conn)
    session.rows("commit")
    session.rows("begin")
    assert len(claim(session.conn, worker, lanes=LANE)) == 1
    assert session.value("select pg_current_xact_id_if_assigned()") is not None, (
        "and this is how one would be seen"
    )
    session.rows("commit")
    (place,) = database.rows("select upto, upto_id, id from redrive.claims")
    session.rows("begin")
    assert claim(session.conn, worker, lanes=LANE, places=[Place(*place)]) == []
    assert session.value("select pg_current_xact_id_if_assigned()") is None, (
        "nor where nothing is due after its place"
    )


def test_a_claim_does_not_wait_for_the_disk(database: Database) -> None:
    make_job(database.conn)
    worker = make_worker(database.conn)
    session = database.session()
    session.rows("begin")
    claim_one(session.conn, worker)

    assert session.value("show synchronous_commit") == "off"
    session.rows("commit")
    assert session.value("show synchronous_commit") == "on", "for this transaction only"


# Ordering keys


def test_jobs_of_one_key_run_one_after_the_other(database: Database) -> None:
    ids = [make_job(database.conn, ordering_key="customer-1") for _ in range(3)]
    worker = make_worker(database.conn)

    assert database.column("select isfinite(run_at) from redrive.jobs order by id") == [
        True,
        False,
        False,
    ]
    for job_id in ids:
        job = claim_one(database.conn, worker)
        assert job.id == job_id
        assert claim(database.conn, worker) == []
        complete(database.conn, worker, job)


def test_different_keys_and_queues_do_not_wait_for_each_other(
    database: Database,
) -> None:
    ids = [
        make_job(database.conn, ordering_key=key, queue=queue)
        for key in ("a", "b")
        for queue in ("x", "y")
    ]

    worker = make_worker(database.conn)
    # one at a time: those that run keep nobody else waiting
    found = [job.id for _ in ids for job in claim(database.conn, worker, 1)]

    assert sorted(found) == ids


def test_jobs_with_a_key_and_without_are_claimed_together(database: Database) -> None:
    ids = [make_job(database.conn, ordering_key=key) for key in ("k", None)]

    assert [job.id for job in claim(database.conn, make_worker(database.conn))] == ids


def test_a_retry_keeps_its_place_in_the_key(database: Database) -> None:
    first, second = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    settle(
        database.conn,
        worker,
        claim_one(database.conn, worker),
        "retry",
        failure=failure(),
    )

    job = claim_one(database.conn, worker)
    assert job.id == first
    complete(database.conn, worker, job)
    assert claim_one(database.conn, worker).id == second


@pytest.mark.parametrize("outcome", ["dead", "cancel"])
def test_the_next_of_the_key_runs_when_the_first_ends(
    database: Database, outcome: str
) -> None:
    _, second = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    job = claim_one(database.conn, worker)
    settle(database.conn, worker, job, outcome, reason="gave_up")

    assert claim_one(database.conn, worker).id == second


def test_an_earlier_job_that_commits_late_is_still_seen_by_the_claim(
    database: Database,
) -> None:
    """The later one could not see it when it was inserted, and was not parked."""
    slow = database.session()
    slow.rows("begin")
    first = make_job(slow.conn, ordering_key="k")
    second = make_job(database.conn, ordering_key="k")
    assert database.value("select isfinite(run_at) from redrive.jobs")
    slow.rows("commit")
    worker = make_worker(database.conn)

    job = claim_one(database.conn, worker)
    assert job.id == first
    complete(database.conn, worker, job)
    assert claim_one(database.conn, worker).id == second


def test_an_earlier_job_that_commits_late_waits_for_the_younger_that_runs(
    database: Database,
) -> None:
    slow = database.session()
    slow.rows("begin")
    older = make_job(slow.conn, ordering_key="k")
    younger = make_job(database.conn, ordering_key="k")
    worker = make_worker(database.conn)
    running = claim_one(database.conn, worker)
    slow.rows("commit")

    assert running.id == younger
    assert claim(database.conn, worker) == []
    complete(database.conn, worker, running)
    assert claim_one(database.conn, worker).id == older


def test_a_redriven_head_of_the_key_waits_for_the_one_that_runs(
    database: Database,
) -> None:
    first, second, third = (make_job(database.conn, ordering_key="k") for _ in range(3))
    worker = make_worker(database.conn)
    bury(database.conn, worker, claim_one(database.conn, worker))
    running = claim_one(database.conn, worker)
    assert running.id == second
    assert redrive(database.conn, [first]) == {first: None}

    assert claim(database.conn, worker) == []
    complete(database.conn, worker, running)
    again = claim_one(database.conn, worker)
    assert again.id == first, "it is the oldest again"
    complete(database.conn, worker, again)
    assert claim_one(database.conn, worker).id == third


def test_a_redriven_head_runs_before_a_retry_of_a_younger_job(
    database: Database,
) -> None:
    first, second = (make_job(database.conn, ordering_key="k") for _ in range(2))
    worker = make_worker(database.conn)
    bury(database.conn, worker, claim_one(database.conn, worker))
    running = claim_one(database.conn, worker)
    redrive(database.conn, [first])
    settle(database.conn, worker, running, "retry", failure=failure())

    again = claim_one(database.conn, worker)
    assert again.id == first
    complete(database.conn, worker, again)
    assert claim_one(database.conn, worker).id == second


# Lanes


def test_lanes_are_those_that_hold_jobs_most_urgent_first(database: Database) -> None:
    make_jobs(database.conn, 3, queue="b", priority=-1)
    make_jobs(database.conn, 3, queue="a", priority=1)
    make_jobs(database.conn, 3, queue="a", priority=1, lane=2)

    assert lanes_of(database.conn) == [
        Lane(-1, "b", 0),
        Lane(1, "a", 0),
        Lane(1, "a", 2),
    ]
    assert [lane for lane, _ in store.lanes(database.conn, ["a"])] == [
        Lane(1, "a", 0),
        Lane(1, "a", 2),
    ]
    assert store.lanes(database.conn, ["none"]) == []


def test_a_lane_says_when_its_next_job_is_due(database: Database) -> None:
    (now,) = database.row("select clock_timestamp()")
    for minutes in (3, 2):
        make_job(database.conn, run_at=now + timedelta(minutes=minutes))
    make_job(database.conn, "a", queue="now")
    for _ in range(2):
        make_job(database.conn, "a", queue="parked", ordering_key="k")
    found = {lane.queue: due_in for lane, due_in in store.lanes(database.conn, None)}

    assert 0 < found.pop("default") < 120
    assert found == {"now": None, "parked": None}


def test_the_next_job_of_a_lane_is_its_own(database: Database) -> None:
    make_jobs(database.conn, 1)
    make_neighbours(database)
    later = "update redrive.jobs set run_at = now() + interval '1 h' where id <> 1"
    database.rows(later)

    found = dict(store.lanes(database.conn, None))
    assert found.pop(LANE[0]) is None
    assert list(found) == sorted(NEIGHBOURS)
    assert all(found.values())


def test_a_paused_queue_has_no_lanes(database: Database) -> None:
    make_jobs(database.conn, 1, queue="a")
    make_jobs(database.conn, 1, queue="b")
    database.rows("select redrive.pause_v1('a', 'ada', 'bank is down')")

    assert [lane.queue for lane in lanes_of(database.conn)] == ["b"]


@pytest.mark.parametrize(
    ("options", "pending"),
    [
        ({}, True),
        ({"queue": "other"}, False),
        ({"kind": "other"}, False),
        ({"run_at": timedelta(seconds=5)}, True),
        ({"run_at": timedelta(seconds=60)}, False),
        ({"kind": "mail.send"}, True),
        ({"kind": "mail_send"}, False),
    ],
)
def test_pending_means_runs_or_is_due_within_the_horizon(
    database: Database, options: dict[str, object], pending: bool
) -> None:
    """U8: kinds by prefix, as HTTP targets have them, too."""
    (now,) = database.row("select clock_timestamp()")
    given = {"kind": "a"} | options
    if isinstance(given.get("run_at"), timedelta):
        given["run_at"] = now + given["run_at"]
    make_job(database.conn, **given)

    assert store.is_pending(database.conn, ["default"], ["a", "mail.*"], 30) is pending


def test_a_running_job_is_pending_and_a_paused_one_is_not(database: Database) -> None:
    make_job(database.conn, "a")
    claim_one(database.conn, make_worker(database.conn))
    assert store.is_pending(database.conn, None, ["a"], 0)

    database.rows("select redrive.pause_v1('other', 'ada', 'bank is down')")
    database.rows("select redrive.set_lanes_v1('default', 1, 'ada', 'x')")
    assert store.is_pending(database.conn, None, ["a"], 0), (
        "another one is, and this has a row"
    )

    database.rows("select redrive.pause_v1('default', 'ada', 'bank is down')")
    assert not store.is_pending(database.conn, None, ["a"], 0)


def test_a_claim_that_holds_a_lane_waits_for_nobody_who_makes_another(
    database: Database,
) -> None:
    """Two that made lanes in the opposite order, or one and a cancel, waited for each other."""
    ids = [make_job(database.conn, queue=queue) for queue in ("a", "b")]
    maker = database.session()
    maker.rows("begin")
    maker.rows("insert into redrive.lanes values ('b', 0, 0)")
    impatient = database.connect(lock_timeout="1s")
    worker = make_worker(impatient)

    assert [job.id for job in claim(impatient, worker)] == ids[:1]
    maker.rows("commit")
    assert [job.id for job in claim(impatient, worker)] == ids[1:]
