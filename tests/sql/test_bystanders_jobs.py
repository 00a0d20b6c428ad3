"""Verbs of live jobs: what one of them does to a job, it does to no neighbour."""

from typing import Any, LiteralString

import psycopg
import pytest

from redrive.worker.round_trip import Lane
from tests.factories import (
    claim,
    claim_one,
    complete,
    failure,
    let_die,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    outcome,
    redrive,
    settle,
    totals,
)
from tests.postgres import Database, Session
from tests.sql.bystanders import LETTERS, NOTES, make_past, touched

CANCEL = "select id, outcome from redrive.cancel_v1(%s, %s, 'x')"
CANCELLED = "select redrive.cancelled_v1(array[%s])"
ON_RECORD = (
    "select detail -> 'ids' from redrive.audit where action = 'end cancel' order by id"
)
ASKED = "select job from redrive.cancellations order by job"
RUN_NOW = "select redrive.run_now_v1(%s, 'ada', 'x')"


def end_cancellations(session: Session, batch: int = 9) -> Any:
    return session.value("select redrive.end_cancellations_v1(%s)", batch)


def test_jobs_are_cancelled_beside_others_that_are(database: Database) -> None:
    """A worker is told of its own jobs; the first to ask stays on record; nothing is no line."""
    conn = database.conn
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    ids = make_jobs(conn, 4)
    claim(conn, workers[0], 2)
    claim(conn, workers[1], 1)
    database.rows(CANCEL, [ids[0], ids[2]], "ada")
    audit = "select actor, n, detail -> 'asked' from redrive.audit order by id"
    before = database.rows(audit)

    assert [database.column(CANCELLED, worker) for worker in workers] == [
        [ids[0]],
        [ids[2]],
    ]
    assert database.rows(CANCEL, [10**9], "bo") == []
    assert database.rows(audit) == before == [("ada", 2, [ids[0], ids[2]])]
    assert database.rows(CANCEL, ids[:2] + ids[3:], "bo") == [
        (ids[3], "cancelled"),
        (ids[0], "asked"),
        (ids[1], "asked"),
    ]
    assert database.rows("select job, actor from redrive.cancellations order by 1") == [
        (ids[0], "ada"),
        (ids[1], "bo"),
        (ids[2], "ada"),
    ]


def test_cancellations_end_beside_others(database: Database) -> None:
    """As many as were asked for, whose jobs have ended; and nobody waits for anybody."""
    conn, worker = database.conn, make_worker(database.conn)
    ids = make_jobs(conn, 4)
    jobs = claim(conn, worker, 4)
    database.rows(CANCEL, ids[:3], "ada")
    assert end_cancellations(database) == 0, "they run"
    for job in jobs[:2]:
        settle(conn, worker, job, "cancel")
    hasty = database.session(lock_timeout="1ms")
    other = database.transaction(
        "select from redrive.cancellations where job = %s for update", ids[0]
    )
    assert end_cancellations(hasty) == 1
    other.rows("commit")
    assert database.column(ON_RECORD) == [[ids[1]]]
    assert database.column(ASKED) == [ids[0], ids[2]]

    settle(conn, worker, jobs[2], "cancel")
    assert end_cancellations(database, 1) == 1
    assert database.column(ON_RECORD) == [[ids[1]], [ids[0]]]
    assert database.column(ASKED) == [ids[2]]


def test_a_job_is_cancelled_with_what_is_its_own(database: Database) -> None:
    """What is on record of a redrive stays, and so does what waits beside it."""
    conn = database.conn
    dead = make_dead_letter(conn)
    redrive(conn, [dead])
    database.rows("update redrive.dead_letters set state = 'dismissed'")
    ids = [dead, *make_jobs(conn, 2)]
    database.rows("update redrive.jobs set noted = true, failed_at = now()")
    database.rows(
        "insert into redrive.limit_waits"
        " select id, 'n', queue, kind, priority, now() from redrive.jobs"
    )
    database.rows(
        "insert into redrive.side_effects (job, deliveries, what, detail)"
        " select id, 1, 'x', '{}' from redrive.jobs"
    )
    before = totals(conn)
    database.rows(CANCEL, ids[:2], "ada")

    left = {
        "dead_letters": "select id from redrive.dead_letters where state = 'dismissed'",
        "failures": "select job from redrive.failures",
        "side_effects": "select job from redrive.side_effects order by 1",
        "limit_waits": "select job from redrive.limit_waits",
    }
    assert {table: database.column(query) for table, query in left.items()} == {  # type: ignore[arg-type]
        "dead_letters": [dead],
        "failures": [dead],
        "side_effects": [dead, ids[2]],
        "limit_waits": [ids[2]],
    }
    after = totals(conn)
    assert {
        event: n - before.get(event, 0) for event, n in after.items()
    } == dict.fromkeys(after, 0) | {"claimed": 2, "cancelled": 2, "outcome": 1}


def test_what_waits_is_held_in_its_own_lane_alone(database: Database) -> None:
    """The lane has its mark, and the job itself is locked."""
    job = make_job(database.conn, queue="q")
    make_job(database.conn, queue="other")
    other, hasty = database.transaction(), database.session(lock_timeout="1ms")
    assert other.value("select redrive.hold_waiting_v1(array[%s], true)", job) == [job]

    with pytest.raises(psycopg.errors.LockNotAvailable):
        hasty.rows("select from redrive.jobs where id = %s for update", job)
    take = (
        "select count(*) from (select from redrive.lane_marks where n = redrive.lane_mark_v2("
        "%s, %s::smallint, %s::smallint) for update skip locked) m"
    )
    lanes = [
        ("other", 0, 0),
        ("p", 0, 0),
        ("q", 0, 0),
        ("q", 0, 1),
        ("q", 0, -1),
        ("q", 1, 0),
    ]
    held = [lane for lane in lanes if not database.value(take, *lane)]
    assert held == [("q", 0, 0), ("q", 0, -1)]
    other.rows("commit")
    assert database.value(take, "q", 0, 0)


def test_what_has_got_another_time_meanwhile_is_not_pushed(database: Database) -> None:
    job = make_job(database.conn)
    database.rows("update redrive.jobs set run_at = now() + '1 h'")
    pushing = database.session()
    other = database.transaction("update redrive.jobs set run_at = 'infinity'")
    waiting = database.start_blocked(
        pushing, lambda: pushing.rows(RUN_NOW, [job]), by=other
    )
    other.rows("commit")

    assert waiting.result(60) == []


def test_a_job_is_told_what_became_of_it_and_not_of_another(database: Database) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    heeding, heedless, pushed, plain, dies = (make_job(conn) for _ in range(5))
    jobs = {job.id: job for job in claim(conn, worker)}
    waiting, alive = make_jobs(conn, 2)
    database.rows("update redrive.jobs set run_at = now() + '1 h' where id = %s", alive)
    database.rows(CANCEL, [heeding, heedless, waiting], "ada")
    database.rows(
        "insert into redrive.audit (actor, action, why, n, detail)"
        " values ('ada', 'run now', 'x', 1, jsonb_build_object('ids', array[%s::bigint]))",
        pushed,
    )
    settle(conn, worker, jobs[heeding], "cancel")
    complete(conn, worker, jobs[heedless], jobs[pushed], jobs[plain])
    let_die(conn, worker, jobs[dies], failure=failure())
    database.rows("delete from redrive.results")
    expected = {
        heeding: "cancelled",
        heedless: "succeeded",
        pushed: "succeeded",
        plain: "succeeded",
        dies: "dead",
        waiting: "cancelled",
        alive: "live",
    }

    assert {job: outcome(conn, job) for job in expected} == expected
    end_cancellations(database)
    assert {job: outcome(conn, job) for job in expected} == expected


def test_the_payload_of_one_is_revealed(database: Database) -> None:
    """Wherever it is, beside others that are there."""
    conn = database.conn
    database.rows("select redrive.set_history_v1('default', 7, 'ada', 'x')")
    ended = [make_job(conn, payload={"n": n}) for n in range(2)]
    worker = make_worker(conn)
    complete(conn, worker, *claim(conn, worker))
    dead = [make_dead_letter(conn, payload={"n": n}) for n in range(2)]
    alive = [make_job(conn, payload={"n": n}) for n in range(2)]
    reveal = "select id, payload -> 'n' from redrive.reveal_v1(%s, 'ada', 'x')"

    for ids in (ended, dead, alive):
        assert [database.rows(reveal, job) for job in ids] == [
            [(ids[0], 0)],
            [(ids[1], 1)],
        ]
    assert database.rows(reveal, 10**9) == []


def walked(
    database: Database,
    looks: int,
    queues: list[str] | None = None,
    states: list[str] | None = None,
    after: str | None = None,
) -> list[tuple[int, int | None]]:
    """The jobs that are found by pages of this number of looks, and their workers."""
    found = list[tuple[int, int | None]]()
    for _ in range(40):
        *rows, (job, worker, after) = database.rows(
            "select id, worker, place from redrive.walk_jobs_v1(%s, %s, %s, %s)",
            queues,
            states,
            after,
            looks,
        ) or [(None, None, None)]
        found += [row[:2] for row in rows]
        if job is not None or after is None:
            return found + [(job, worker)] * (job is not None)
    msg = f"it comes to no end at {after}"
    raise AssertionError(msg)


@pytest.mark.parametrize("looks", [3, 1000])
def test_a_walk_finds_each_job_of_a_state_once(database: Database, looks: int) -> None:
    """In lanes that differ in one thing each, and behind lanes without jobs."""
    conn = database.conn
    held, at = dict[int, int](), dict[str, list[int]]()
    due = {
        "running": "now",
        "ready": "now",
        "scheduled": "9998-01-01",
        "blocked": "infinity",
    }
    for lane in (Lane(0, "p", 0), Lane(0, "q", 0), Lane(0, "q", 1), Lane(1, "q", 0)):
        worker = make_worker(conn)
        for state, when in due.items():
            ids = make_jobs(
                conn, 3, queue=lane.queue, priority=lane.priority, lane=lane.lane
            )
            database.rows(
                "update redrive.jobs set run_at = %s where id = any (%s)", when, ids
            )
            at.setdefault(state, []).extend(ids)
            if state == "running":
                held |= {job.id: worker for job in claim(conn, worker, 3, lanes=[lane])}
    at["ready"] += [job for queue in "rstu" for job in make_jobs(conn, 1, queue=queue)]
    (last,) = make_jobs(conn, 1, queue="v")
    at["blocked"].append(last)
    database.rows("update redrive.jobs set run_at = 'infinity' where id = %s", last)

    for states in (
        ["running"],
        ["ready"],
        ["scheduled"],
        ["blocked"],
        ["ready", "running"],
    ):
        wanted = {job: held.get(job) for state in states for job in at[state]}
        assert sorted(walked(database, looks, states=states)) == sorted(
            wanted.items()
        ), states
    after = "p/0/0/-infinity/0"
    assert walked(database, looks, queues=["v"], after=after) == [(last, None)]


def test_a_walk_looks_at_what_may_be_wanted_alone(database: Database) -> None:
    """Not at what is due where that is not, nor the other way round."""
    for queue in ("a", "b"):
        make_jobs(database.conn, 3, queue=queue)
        database.rows(
            "insert into redrive.jobs (kind, queue, run_at)"
            " select 'k', %s, now() + '1 h' from generate_series(1, 3)",
            queue,
        )
    walk = "select count(id) from redrive.walk_jobs_v1(null, array[%s], null, 8)"

    assert [database.value(walk, state) for state in ("ready", "scheduled")] == [6, 6]


def test_live_jobs_say_who_has_them(database: Database) -> None:
    conn = database.conn
    worker = make_worker(conn)
    ids = make_jobs(conn, 3)
    job = claim_one(conn, worker)

    assert database.rows(
        "select id, worker from redrive.live_jobs_v1(%s) order by 1", ids[:2]
    ) == [(job.id, worker), (ids[1], None)]


@pytest.mark.parametrize("verb", ["cancel", "run_now"])
def test_a_job_that_waits_is_acted_on_alone(database: Database, verb: str) -> None:
    """Beside one of the same key in another queue, whose lane and row somebody has."""
    conn, (one, two) = (
        database.conn,
        [make_past(database, queue) for queue in ("one", "two")],
    )
    redrive(conn, [one, two])
    database.rows(
        "update redrive.jobs set noted = true, failed_at = now(), run_at = now() + '1 h'"
    )
    hasty = database.session(lock_timeout="1ms")
    other = database.transaction(
        "select from redrive.lanes where queue = 'two' for update"
    )
    other.rows("select from redrive.jobs where id = %s for update", two)
    acts: dict[str, LiteralString] = {
        "cancel": "select redrive.cancel_v1(array[%s], 'ada', 'x')",
        "run_now": "select redrive.run_now_v1(array[%s], 'ada', 'x')",
    }
    rows = touched(database, lambda: hasty.rows(acts[verb], one))

    ended = {(table, one, n) for table, n in LETTERS | NOTES}
    assert rows == {("jobs", one, 2)} | (ended if verb == "cancel" else set())


def test_only_a_cancellation_that_ended_its_job_was_heeded(database: Database) -> None:
    """Not that of a job that runs on, nor of one that died instead."""
    conn, worker = database.conn, make_worker(database.conn)
    ids = make_jobs(conn, 3)
    heeding, dying, _ = claim(conn, worker)
    database.rows("select redrive.cancel_v1(%s, 'ada', 'x')", ids)
    settle(conn, worker, heeding, "cancel")
    let_die(conn, worker, dying)

    assert database.column("select job from redrive.cancellations where is_heeded") == [
        heeding.id
    ]
