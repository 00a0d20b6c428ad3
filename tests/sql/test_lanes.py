"""The lanes that hold jobs, and the jobs that are pending in them."""

from datetime import timedelta

import pytest

from redrive.worker import store
from redrive.worker.round_trip import Lane
from tests.factories import claim_one, lanes_of, make_job, make_jobs, make_worker
from tests.postgres import Database
from tests.sql.test_claim import LANE, NEIGHBOURS, make_neighbours


def test_lanes_are_those_that_hold_jobs(database: Database) -> None:
    make_jobs(database.conn, 3, queue="b", priority=-1)
    make_jobs(database.conn, 3, queue="a", priority=1)
    make_jobs(database.conn, 3, queue="a", priority=1, lane=2)

    assert lanes_of(database.conn) == [
        Lane(1, "a", 0),
        Lane(1, "a", 2),
        Lane(-1, "b", 0),
    ]
    assert [lane for lane, _ in store.lanes(database.conn, ["a"])[0]] == [
        Lane(1, "a", 0),
        Lane(1, "a", 2),
    ]
    assert store.lanes(database.conn, ["none"])[0] == []


def test_a_lane_says_when_its_next_job_is_due(database: Database) -> None:
    (now,) = database.row("select clock_timestamp()")
    for minutes in (3, 2):
        make_job(database.conn, run_at=now + timedelta(minutes=minutes))
    make_job(database.conn, "a", queue="now")
    for _ in range(2):
        make_job(database.conn, "a", queue="parked", ordering_key="k")
    found = {lane.queue: due_in for lane, due_in in store.lanes(database.conn, None)[0]}

    assert 0 < found.pop("default") < 120
    assert found == {"now": None, "parked": None}


def test_the_next_job_of_a_lane_is_its_own(database: Database) -> None:
    make_jobs(database.conn, 1)
    make_neighbours(database)
    later = "update redrive.jobs set run_at = now() + interval '1 h' where id <> 1"
    database.rows(later)

    found = dict(store.lanes(database.conn, None)[0])
    assert found.pop(LANE[0]) is None
    assert sorted(found) == sorted(NEIGHBOURS)
    assert all(found.values())


def test_the_lanes_of_the_newest_jobs_are_found_among_any_number(
    database: Database,
) -> None:
    """Among 10,000 queues with a job each, a new one waited for the walk: up to a minute."""
    make_jobs(database.conn, 3, queue="old")
    make_jobs(database.conn, 1000, queue="dead")
    make_job(database.conn, queue="new")
    make_job(database.conn, queue="soon", delay=30)
    make_job(database.conn, queue="later", delay=90)
    database.rows("delete from redrive.jobs where queue = 'dead'")

    found = {lane.queue: wait for lane, wait in store.new_lanes(database.conn, None)}
    assert found["new"] <= 0 < found["soon"] <= 30
    assert set(found) == {"new", "soon"}
    assert [lane for lane, _ in store.new_lanes(database.conn, ["new"])] == [
        Lane(0, "new", 0)
    ]


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
    """Kinds by prefix, as HTTP targets have them, too."""
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
