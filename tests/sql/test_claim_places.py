"""claim_v1: the places up to which lanes are read, and full scans of a lane."""

import re

from redrive.worker import store
from redrive.worker.round_trip import EPOCH, START, ClaimRequest, Lane, Place
from tests.factories import (
    Claimed,
    claim,
    complete,
    exchange,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle,
)
from tests.postgres import Database
from tests.sql.test_claim import LANE


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


def test_a_worker_that_is_behind_reads_no_job_that_others_have_completed(
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


def buffers_of_claim(
    database: Database, worker: int, lane: Lane = LANE[0], place: Place = START
) -> int:
    """Count the buffers of a claim of ten jobs after a place, and take it back."""
    with database.conn.transaction(force_rollback=True):
        plan = database.column(
            "explain (analyze, buffers) select from redrive.claim_v1(%s, '{default}', '{0}',"
            " array[%s::smallint], array[%s::timestamptz], array[%s::bigint], array[%s::bigint],"
            " false, 10)",
            worker,
            lane.lane,
            *place,
        )
    (hits,) = {int(n) for n in re.findall(r"Buffers: shared hit=(\d+)", plan[1])}
    return hits


def test_workers_with_the_same_kinds_share_sweeps(database: Database) -> None:
    """Each of a hundred workers swept as often as one alone, and held the lane for it."""
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
    database.rows("update redrive.full_scans set next_at = next_at - interval '1 hour'")
    (again,) = sweep(database, two, 1)
    make_late(database)
    database.rows("update redrive.full_scans set next_at = now() + interval '1 day'")
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
    database.rows("update redrive.full_scans set next_at = '-infinity'")
    found = [sweep(database, worker, 2) for worker in (one, two, one, two)]

    assert found == [
        [{"late"}],
        [{"late"}],
        [{"late", "invoice.charge"}],
        [{"invoice.charge"}],
    ]
    assert database.value("select isfinite(next_at) from redrive.full_scans")


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
    """Claims that a crash took back left their ids to others, and jobs were claimed twice."""
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
    lanes = [LANE[0].front, *LANE]
    back = claim(database.conn, worker, lanes=lanes, places=place * 2)

    assert {job.id for job in back} == {jobs[0].id, jobs[1].id, dead, new}
