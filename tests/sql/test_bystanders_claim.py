"""A claim takes what is its own; a queue is paused, and names are limited, one by one."""

import pytest

from redrive.worker import store
from redrive.worker.round_trip import Lane
from tests.factories import (
    claim,
    complete,
    make_job,
    make_jobs,
    make_limited_worker,
    make_worker,
)
from tests.postgres import Database


@pytest.mark.parametrize("claimed", [(), (0,), (1, 2), (3, 4), (0, 1, 2, 3, 4)])
def test_lanes_are_gone_through_from_a_place(
    database: Database, claimed: tuple[int, ...]
) -> None:
    """Those with a claim bring their front lanes, which they do not search."""
    lanes = [("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", -1, 0), ("c", 0, 0)]
    for queue, priority, lane in lanes:
        make_jobs(database.conn, 2, queue=queue, priority=priority, lane=lane)
    worker = make_worker(database.conn)
    for queue, priority, lane in (lanes[n] for n in claimed):
        assert claim(database.conn, worker, 1, lanes=[Lane(priority, queue, lane)])
    after = "select * from redrive.next_lanes_v1(%s, %s, %s, %s, 99)"
    fronts = [(queue, priority, ~lane) for queue, priority, lane in lanes]
    lanes = sorted(lanes + [fronts[n] for n in claimed])

    for n, place in enumerate(lanes, 1):
        assert database.rows(after, None, *place) == lanes[n:]
        assert database.rows(after, ["c", "b", "a"], *place) == lanes[n:]
        assert database.rows(after, ["c"], *place) == [
            lane for lane in lanes[n:] if "c" in lane
        ]
    assert database.rows(after, ["a"], "", 0, 0) == [
        lane for lane in lanes if "a" in lane
    ]


def test_a_claim_says_whether_it_has_looked_at_all(database: Database) -> None:
    worker = make_worker(database.conn)
    make_jobs(database.conn, 2)
    query = (
        "select count(*) from redrive.claim_v1("
        "%s, '{default}', '{0}', '{0}', '{epoch}', '{0}', '{0}', true, %s)"
        " where lane_no is null and jobs = 0"
    )

    assert [database.value(query, worker, want) for want in (1, 9)] == [0, 1]


def test_slots_are_taken_from_one_lane_at_a_time(database: Database) -> None:
    """Two claims that take jobs of two lanes could wait for each other."""
    worker = make_limited_worker(database.conn, "emails")
    database.rows("select redrive.set_limit_v1('emails', 9, null, 'ada', 'x')")
    ids = [make_job(database.conn, "a.b", queue=queue) for queue in ("a", "b")]

    assert [[job.id for job in claim(database.conn, worker)] for _ in range(2)] == [
        [id_] for id_ in ids
    ]


def test_a_job_behind_a_limit_is_pending_for_its_kind_and_queue(
    database: Database,
) -> None:
    worker = make_limited_worker(database.conn, "emails")
    database.rows("select redrive.set_limit_v1('emails', 1, null, 'ada', 'x')")
    for _ in range(2):
        make_job(database.conn, "a.b")
    complete(
        database.conn, make_worker(database.conn), *claim(database.conn, worker)[1:]
    )
    database.rows("delete from redrive.jobs where isfinite(run_at)")
    pause = "select redrive.pause_v1(%s, 'ada', 'x')"

    assert store.is_pending(database.conn, None, ["a.b"], 0)
    assert store.is_pending(database.conn, ["default"], ["a.b"], 0)
    assert not store.is_pending(database.conn, ["other"], ["a.b"], 0)
    assert not store.is_pending(database.conn, None, ["b"], 0)
    database.rows(pause, "other")
    database.rows("select redrive.set_lanes_v1('default', 1, 'ada', 'x')")
    assert store.is_pending(database.conn, None, ["a.b"], 0), "another one is paused"
    database.rows(pause, "default")
    assert not store.is_pending(database.conn, None, ["a.b"], 0)


def test_a_queue_is_resumed_alone_and_once(database: Database) -> None:
    for queue in ("a", "b"):
        database.rows("select redrive.pause_v1(%s, 'ada', 'x')", queue)
    resume = "select redrive.resume_v1('a', 'ada', 'x')"

    assert [database.value(resume), database.value(resume)] == [True, False]
    assert database.column(
        "select queue from redrive.queues where paused_at is not null"
    ) == ["b"]


def test_names_are_limited_alone(database: Database) -> None:
    database.rows("select redrive.limit_names_v1('queues', 7, 'ada', 'x')")

    assert database.column(
        "select what from redrive.name_limits where at_most = 7"
    ) == ["queues"]
