"""Live jobs by the page at a bounded cost, stopped and pushed; none is lost or doubled."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from redrive.jobs import control
from redrive.jobs.filter import JobFilter
from redrive.jobs.find import find, ids, walk
from redrive.worker import store
from tests.factories import (
    claim,
    claim_one,
    complete,
    depths,
    failure,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    outcome,
    redrive,
    settle,
    totals,
)
from tests.postgres import Connection, Database

PAGE_COST = """
    explain (analyze, buffers, format json)
    select * from redrive.walk_jobs_v1(%s::text[], %s::text[], null, 100)
"""


def cancel(conn: Connection, *jobs: int) -> dict[int, str]:
    """Cancel jobs. Returns what came of each."""
    rows = conn.execute(
        "select id, outcome from redrive.cancel_v1(%s::bigint[], 'ada', 'not wanted')",
        (list(jobs),),
    )
    return dict(rows.fetchall())


def audit(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("select action, n, detail from redrive.audit order by id")


def in_each_state(database: Database) -> dict[str, int]:
    """A job in each state."""
    conn = database.conn
    running, retrying, ready, scheduled = (make_job(conn, "a.b") for _ in range(4))
    worker = make_worker(conn)
    first, second = claim(conn, worker, 2)
    settle(conn, worker, second, "retry", delay=300.0, failure=failure())
    make_job(conn, "a.b", ordering_key="k")
    blocked = make_job(conn, "a.b", ordering_key="k")
    database.rows(
        "update redrive.jobs set run_at = now() + interval '1 h' where id = %s",
        scheduled,
    )
    assert (first.id, second.id) == (running, retrying)
    return {
        "running": running,
        "retrying": retrying,
        "ready": ready,
        "scheduled": scheduled,
        "blocked": blocked,
    }


@pytest.mark.parametrize(
    "state", ["running", "retrying", "ready", "scheduled", "blocked"]
)
def test_a_job_is_listed_in_its_state(database: Database, state: str) -> None:
    jobs = in_each_state(database)

    found = {row["id"]: row["state"] for row in find(database.conn, JobFilter())}
    assert len(found) == 6
    assert {name: found[job] for name, job in jobs.items()} == {
        name: name for name in jobs
    }
    assert jobs[state] in ids(database.conn, JobFilter(state=[state]))
    named = find(database.conn, JobFilter(ids=list(jobs.values()), state=[state]))
    assert [row["id"] for row in named] == [jobs[state]]


@pytest.mark.every_version
@pytest.mark.parametrize(
    "states", [None, ["ready"], ["running"], ["blocked"], ["scheduled", "retrying"]]
)
def test_a_page_costs_the_same_at_any_size(
    database: Database, states: list[str] | None
) -> None:
    """Exact, in blocks."""
    conn = database.conn
    costs: list[int] = []
    make_jobs(conn, 300, "a.b")
    claim(conn, make_worker(conn), 50)
    for more in (1700, 18_000):
        make_jobs(conn, more, "a.b")
        database.rows(
            "insert into redrive.jobs (kind, queue, run_at) select 'a.b', 'later',"
            " now() + (%s + n) * interval '1 s' from generate_series(1, %s) n",
            more,
            more,
        )
        database.rows("vacuum (analyze) redrive.jobs")
        database.value(PAGE_COST, None, states)
        plan = database.value(PAGE_COST, None, states)[0]["Plan"]
        costs.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    small, large = costs
    assert large <= small + 30, "a level more of the index for each descent"
    assert large < 500


def test_pages_follow_each_other_without_a_gap(database: Database) -> None:
    """And a filter that is rare is found behind many others."""
    conn = database.conn
    for queue in ("a", "b"):
        for priority in (-1, 0):
            make_jobs(conn, 30, "a.b", queue=queue, priority=priority)
    rare = make_job(conn, "rare", queue="b")
    claim(conn, make_worker(conn), 7)
    place, seen = None, []
    while True:
        page, place = walk(conn, JobFilter(), place, 13)
        seen += [row["id"] for row in page]
        if place is None:
            break

    assert sorted(seen) == database.column("select id from redrive.jobs order by id")
    assert ids(conn, JobFilter(kind=["rare"])) == [rare]
    assert len(list(find(conn, JobFilter(queue=["a"], limit=40)))) == 40
    first = list(find(conn, JobFilter(limit=50)))
    rest = list(find(conn, JobFilter(), first[-1]["place"]))
    assert [row["id"] for row in first + rest] == seen


def test_every_filter_of_jobs_narrows(database: Database) -> None:
    jobs = in_each_state(database)
    nothing = {
        "ids": [10**9],
        "group": "nothing",
        "since": "2999-01-01",
        "until": "2000-01-01",
    }
    for name in JobFilter.criteria().keys() - {"limit", "state"}:
        chosen = JobFilter(**{name: nothing.get(name, ["nothing"])})
        assert ids(database.conn, chosen) == [], name
    assert ids(database.conn, JobFilter(error_class=["ValueError"], group="f1")) == [
        jobs["retrying"]
    ]


def test_what_waits_is_cancelled_at_once_and_what_runs_is_asked(
    database: Database,
) -> None:
    conn = database.conn
    jobs = in_each_state(database)
    before = depths(conn)["default"]

    found = cancel(conn, *jobs.values(), 10**9)

    assert found == {
        job: "asked" if s == "running" else "cancelled" for s, job in jobs.items()
    }
    assert totals(conn)["cancelled"] == 4
    left = depths(conn)["default"]
    assert (left.running, left.scheduled + left.ready + left.retrying) == (1, 1)
    assert (before.running, before.scheduled + before.ready + before.retrying) == (1, 5)
    assert database.value("select count(*) from redrive.failures") == 0
    assert audit(database)[-1][:2] == ("cancel", 5)
    assert audit(database)[-1][2]["asked"] == [jobs["running"]]


def test_the_next_of_a_key_runs_when_the_one_before_it_is_cancelled(
    database: Database,
) -> None:
    conn = database.conn
    first, second, third = (make_job(conn, "a.b", ordering_key="k") for _ in range(3))

    cancel(conn, first)
    (claimed,) = claim(conn, make_worker(conn))
    assert claimed.id == second

    cancel(conn, third)
    assert database.column("select id from redrive.jobs") == [second]


def test_a_cancelled_redrive_has_its_outcome(database: Database) -> None:
    conn = database.conn
    job = make_dead_letter(conn)
    redrive(conn, [job])

    assert cancel(conn, job) == {job: "cancelled"}
    assert database.rows("select state, outcome from redrive.dead_letters") == [
        ("resolved", "cancelled")
    ]
    assert outcome(conn, job) == "cancelled"


def test_a_worker_hears_of_it_and_the_end_is_on_record(database: Database) -> None:
    """Asked, told, settled as cancelled, audited."""
    conn = database.conn
    job, other = make_job(conn, "a.b"), make_job(conn, "a.b")
    worker = make_worker(conn)
    claimed, rest = claim(conn, worker, 2)
    assert store.cancelled(conn, [worker]) == []

    assert cancel(conn, job) == {job: "asked"}
    assert store.cancelled(conn, [worker]) == [job]
    assert store.end_cancellations(conn) == 0, "it runs"
    assert settle(conn, worker, claimed, "cancel")
    assert store.cancelled(conn, [worker]) == []
    assert outcome(conn, job) == "cancelled"
    assert store.end_cancellations(conn) == 1
    assert audit(database)[-1] == ("end cancel", 1, {"ids": [job]})
    assert outcome(conn, job) == "cancelled"
    assert database.value("select count(*) from redrive.cancellations") == 0
    assert complete(conn, worker, rest) == {other}
    assert outcome(conn, other) == "succeeded"
    assert outcome(conn, 10**9) is None


def test_a_job_that_succeeds_before_it_heeds_has_succeeded(database: Database) -> None:
    conn = database.conn
    job, worker = make_job(conn, "a.b"), make_worker(conn)
    claimed = claim_one(conn, worker)
    cancel(conn, job)
    complete(conn, worker, claimed)

    assert outcome(conn, job) == "succeeded"
    store.end_cancellations(conn)
    assert outcome(conn, job) == "succeeded"
    assert [line[0] for line in audit(database)] == ["cancel"]


@pytest.mark.parametrize("ending", ["retry", "lost"])
def test_a_job_that_comes_back_is_cancelled_then(
    database: Database, ending: str
) -> None:
    """Its handler failed, or its worker was killed, before it heard."""
    conn = database.conn
    job, worker = make_job(conn, "a.b"), make_worker(conn, ttl=30.0)
    claimed = claim_one(conn, worker)
    cancel(conn, job)
    if ending == "retry":
        settle(conn, worker, claimed, "retry", failure=failure())
    else:
        store.retire(conn, worker)
    assert store.end_cancellations(conn) == 1

    assert outcome(conn, job) == "cancelled"
    assert claim(conn, make_worker(conn)) == []
    assert settle(conn, worker, claimed, "cancel") is False
    assert audit(database)[-1] == ("end cancel", 1, {"ids": [job]})
    assert totals(conn)["cancelled"] == 1


def test_the_next_life_of_a_job_is_not_cancelled_for_the_one_before(
    database: Database,
) -> None:
    conn = database.conn
    job, worker = make_job(conn, "a.b"), make_worker(conn)
    claimed = claim_one(conn, worker)
    cancel(conn, job)
    settle(conn, worker, claimed, "dead", reason="gave_up", failure=failure())
    redrive(conn, [job])
    store.end_cancellations(conn)

    assert database.column("select id from redrive.jobs") == [job]
    assert store.cancelled(conn, [worker]) == []
    assert database.value("select count(*) from redrive.cancellations") == 0


def test_nobody_claims_a_job_while_it_is_cancelled_and_all_others_are_claimed(
    database: Database,
) -> None:
    """A claim that came between would run a job that is said to be cancelled."""
    conn = database.conn
    job, other, third = (make_job(conn, "a.b") for _ in range(3))
    worker = make_worker(conn)
    claim_one(conn, make_worker(conn, "before"))
    canceller = database.session()
    with canceller.conn.transaction():
        assert cancel(canceller.conn, other) == {other: "cancelled"}
        assert [held.id for held in claim(conn, worker)] == [third]

    assert claim(conn, worker) == []
    assert cancel(conn, job) == {job: "asked"}


def test_a_job_whose_cancellation_is_taken_back_is_claimed(database: Database) -> None:
    conn = database.conn
    jobs = [make_job(conn, "a.b") for _ in range(3)]
    worker, canceller = make_worker(conn), database.transaction()
    assert cancel(canceller.conn, jobs[0]) == {jobs[0]: "cancelled"}
    assert [held.id for held in claim(conn, worker)] == jobs[1:]
    canceller.rows("rollback")

    assert [held.id for held in claim(conn, worker)] == jobs[:1]


def test_a_claim_that_came_first_is_seen(database: Database) -> None:
    """The cancellation waits for the claim, and then finds the job running."""
    conn = database.conn
    job, worker = make_job(conn, "a.b"), make_worker(conn)
    claimer, canceller = database.session(), database.session()
    found: dict[int, str] = {}
    with claimer.conn.transaction():
        claimer.conn.execute(
            "select * from redrive.claim_v1(%s, '{default}', '{0}', '{0}', '{-infinity}', '{0}',"
            " '{0}', true, 10)",
            (worker,),
        )
        thread = threading.Thread(
            target=lambda: found.update(cancel(canceller.conn, job))
        )
        thread.start()
        while not database.value(
            "select exists (select from pg_stat_activity where wait_event_type = 'Lock'"
            " and query like '%%cancel_v1%%' and datname = current_database())"
        ):
            pass
    thread.join()

    assert found == {job: "asked"}


def test_what_waits_for_its_time_runs_now(database: Database) -> None:
    conn = database.conn
    jobs = in_each_state(database)

    due = control.run_now(
        conn, list(jobs.values()), why="the bank is back", actor="ada"
    )

    assert due == 2
    ready = ids(conn, JobFilter(state=["ready"]))
    assert {jobs["scheduled"], jobs["retrying"], jobs["ready"]} <= set(ready)
    assert audit(database)[-1] == (
        "run now",
        2,
        {"ids": [jobs["retrying"], jobs["scheduled"]]},
    )
    assert {job.id for job in claim(conn, make_worker(conn))} >= {
        jobs["scheduled"],
        jobs["retrying"],
    }


def reopen(conn: Connection, jobs: Sequence[int]) -> list[int]:
    rows = conn.execute(
        "select redrive.reopen_v1(%s::bigint[], 'ada', 'after all')", (list(jobs),)
    )
    return [job for (job,) in rows]


def test_a_dismissal_can_be_undone(database: Database) -> None:
    conn = database.conn
    job, never = make_dead_letter(conn), make_dead_letter(conn)
    conn.execute("select redrive.dismiss_v1(%s, 'ada', 'too late')", ([job],))
    assert depths(conn)["default"].dead == 1

    assert reopen(conn, [job, never]) == [job]
    assert reopen(conn, [job]) == []
    assert depths(conn)["default"].dead == 2
    assert database.column("select state from redrive.dead_letters") == ["open", "open"]
    assert database.value("select sum(opened) from redrive.group_deltas") == 2
    assert audit(database)[-1] == ("reopen", 1, {"ids": [job]})
    assert redrive(conn, [job]) == {job: None}
    assert depths(conn)["default"].dead == 1
