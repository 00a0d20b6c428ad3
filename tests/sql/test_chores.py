"""take_chore_v1, fold_v1, totals and depths_v1; pause and resume."""

from concurrent.futures import wait
from datetime import timedelta
from threading import Barrier, Event

import psycopg
import pytest

from redrive.worker import store
from tests.factories import (
    Depth,
    claim,
    complete,
    depths,
    failure,
    make_dead_letters,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    settle,
    totals,
)
from tests.postgres import Database

COUNTED_BY_HAND = """
    select queue,
           count(*) filter (where not claimed and run_at <= now()),
           count(*) filter (where not claimed and run_at > now() and failed_at is null),
           count(*) filter (where not claimed and run_at > now() and failed_at is not null),
           count(*) filter (where claimed)
    from redrive.jobs j,
    lateral (select exists (select from redrive.claims k where j.id = any (k.ids)) as claimed) c
    group by queue
"""

TOTALS = "select queue, kind, event, reason, n from redrive.totals order by 1, 2, 3, 4"
STEP_BLOCKS = 128
"""What one step of the fold looks at."""


def test_a_chore_is_done_once_per_interval(database: Database) -> None:
    assert store.take_chore(database.conn, "fold", 60)
    assert not store.take_chore(database.conn, "fold", 60)
    assert store.take_chore(database.conn, "rescue", 60), "each has its own clock"
    database.rows(
        "update redrive.chores set ran_at = ran_at - interval '61 seconds' where name = 'fold'"
    )
    assert store.take_chore(database.conn, "fold", 60)


def test_a_chore_nobody_knows_is_not_done(database: Database) -> None:
    assert not store.take_chore(database.conn, "dishes", 0)


def test_of_eight_that_ask_at_once_one_does_the_chore(database: Database) -> None:
    sessions, start = [database.session() for _ in range(8)], Barrier(8)

    def act(n: int) -> list[bool]:
        start.wait()
        return [store.take_chore(sessions[n].conn, "fold", 60) for _ in range(20)]

    done = [session.start(lambda n=n: act(n)) for n, session in enumerate(sessions)]

    assert sum(sum(d.result(60)) for d in done) == 1


def test_a_chore_that_somebody_is_taking_is_not_waited_for(database: Database) -> None:
    first, second = database.transaction(), database.session(lock_timeout="1ms")
    assert store.take_chore(first.conn, "fold", 60)
    assert not store.take_chore(second.conn, "fold", 60)
    first.rows("rollback")
    assert store.take_chore(second.conn, "fold", 60)


# Counters


def test_folding_changes_no_total(database: Database) -> None:
    make_jobs(database.conn, 10)
    make_jobs(database.conn, 5, queue="q")
    worker = make_worker(database.conn)
    for job in claim(database.conn, worker, 8):
        settle(database.conn, worker, job, "dead", reason="gave_up", failure=failure())
    by_hand = (
        "select queue, kind, event, reason, n from redrive.totals"
        " where event <> 'new_group'"  # which the first fold of a group counts
        " order by queue, kind, event, reason"
    )
    before = database.rows(by_hand)

    assert store.fold(database.conn) > 0
    store.fold(database.conn)
    assert database.value("select count(*) from redrive.deltas") == 0
    assert database.rows(by_hand) == before
    assert store.fold(database.conn) == 0
    make_jobs(database.conn, 1)
    store.fold(database.conn)
    assert totals(database.conn)["enqueued"] == 16


def test_totals_are_exact_in_every_snapshot_while_folds_and_enqueues_race(
    database: Database,
) -> None:
    folders = [database.session() for _ in range(2)]
    producer = database.session()
    reader = database.session()
    stop, seen = Event(), []

    def fold(n: int) -> None:
        while not stop.is_set():
            store.fold(folders[n].conn)

    def produce() -> None:
        for _ in range(200):
            make_jobs(producer.conn, 3)

    folding = [session.start(lambda n=n: fold(n)) for n, session in enumerate(folders)]
    producing = producer.start(produce)
    while not producing.done():
        seen.append(
            reader.row(
                "select (select count(*) from redrive.jobs), (select coalesce(sum(n), 0)::bigint"
                " from redrive.totals)"
            )
        )
    stop.set()
    wait([*folding, producing])

    assert all(f.exception() is None for f in [*folding, producing])
    assert all(jobs == counted for jobs, counted in seen)
    assert totals(database.conn) == {"enqueued": 600}


def test_folding_goes_on_by_steps_of_one_size_and_changes_no_total_on_the_way(
    database: Database,
) -> None:
    """A million deltas are folded in several statements."""
    reader, steps = database.session(), []
    for n in range(2):
        database.rows(
            "insert into redrive.deltas (queue, kind, event, n)"
            " select 'q' || i % 7, 'invoice.charge', 'enqueued', 1 from generate_series(1, 30000) i"
        )
        before = reader.rows(TOTALS)
        while True:
            moved, more = database.row("select moved, more from redrive.fold_v1()")
            steps.append((n, moved))
            assert reader.rows(TOTALS) == before
            if not more:
                break

    assert database.value("select count(*) from redrive.deltas") == 0
    (size,) = database.row("select pg_relation_size('redrive.deltas') / 8192")
    assert len(steps) == sum(-(-blocks // STEP_BLOCKS) for blocks in (size // 2, size))
    assert sum(moved for _, moved in steps) == 60_000
    # a page holds no more rows than its size says; what was deleted before costs a look at a block
    assert max(moved for _, moved in steps) <= STEP_BLOCKS * 130


def test_folding_goes_on_where_the_last_step_ended_whoever_took_it(
    database: Database,
) -> None:
    """A fold that is cancelled keeps what it has done."""
    database.rows(
        "insert into redrive.deltas (queue, kind, event, n)"
        " select 'q', 'invoice.charge', 'enqueued', 1 from generate_series(1, 30000)"
    )
    first, more = database.row("select moved, more from redrive.fold_v1()")
    assert more
    assert database.value("select count(*) from redrive.deltas") == 30_000 - first

    (second, _) = database.session().row("select moved, more from redrive.fold_v1()")
    assert 0 < second <= 30_000 - first
    assert totals(database.conn) == {"enqueued": 30_000}


def test_while_somebody_folds_the_others_have_nothing_to_do(database: Database) -> None:
    make_jobs(database.conn, 3)
    first, second = database.transaction(), database.session(lock_timeout="1ms")
    assert store.fold(first.conn) > 0

    assert store.fold(second.conn) == 0
    first.rows("rollback")
    assert store.fold(second.conn) > 0
    assert totals(database.conn) == {"enqueued": 3}


def test_nothing_is_lost_between_enqueue_and_end(database: Database) -> None:
    """enqueued + redriven = completed + dead + cancelled + live."""
    make_jobs(database.conn, 100)
    worker = make_worker(database.conn)
    jobs = claim(database.conn, worker, 90)
    complete(database.conn, worker, *jobs[:30])
    for n, job in enumerate(jobs[30:80]):
        settle(
            database.conn,
            worker,
            job,
            ("retry", "release", "dead", "cancel", "dead")[n % 5],
            failure=failure(),
            reason="r",
        )
    redrive(database.conn, [job.id for n, job in enumerate(jobs[30:80]) if n % 5 == 2])
    database.rows("select redrive.dismiss_v1(%s, 'ada', 'x')", [jobs[34].id])
    found = totals(database.conn)

    live, open_letters = database.row(
        "select (select count(*) from redrive.jobs), (select count(*) from redrive.dead_letters"
        " where state = 'open')"
    )
    assert found == {
        "enqueued": 100,
        "claimed": 90,
        "completed": 30,
        "retried": 10,
        "released": 10,
        "dead": 20,
        "cancelled": 10,
        "redriven": 10,
        "dismissed": 1,
    }
    assert (
        found["enqueued"]
        + found["redriven"]
        - found["completed"]
        - found["dead"]
        - found["cancelled"]
        == live
    )
    assert found["dead"] - found["redriven"] - found["dismissed"] == open_letters
    assert depths(database.conn) == {"default": Depth(ready=40, running=10, dead=9)}


# Depths


def test_an_empty_database_has_no_depths(database: Database) -> None:
    assert depths(database.conn) == {}


def test_each_job_is_in_exactly_one_column(database: Database) -> None:
    (soon,) = database.row("select clock_timestamp() + interval '1 hour'")
    make_jobs(database.conn, 20)
    make_jobs(database.conn, 3, priority=5)
    make_jobs(database.conn, 4, queue="q", lane=2)
    make_dead_letters(database.conn, 2, queue="dead")
    worker = make_worker(database.conn)
    jobs = claim(database.conn, worker, 12)
    for job in jobs[:5]:
        settle(database.conn, worker, job, "retry", run_at=soon, failure=failure())
    settle(database.conn, worker, jobs[5], "retry", failure=failure())
    settle(database.conn, worker, jobs[6], "release", run_at=soon, refund=True)
    complete(database.conn, worker, jobs[7])
    for _ in range(3):
        make_job(database.conn, run_at=soon)
    for _ in range(2):
        make_job(database.conn, ordering_key="k")

    expected = {
        "dead": Depth(dead=2),
        "default": Depth(
            ready=8 + 3 + 1 + 1, scheduled=1 + 3 + 1, retrying=5, running=4
        ),
        "q": Depth(ready=4),
    }
    assert depths(database.conn) == expected
    by_hand = {
        queue: tuple(figures) for queue, *figures in database.rows(COUNTED_BY_HAND)
    }
    assert {
        queue: found[:4]
        for queue, found in depths(database.conn).items()
        if queue in by_hand
    } == by_hand
    store.fold(database.conn)
    assert depths(database.conn) == expected, "folded or not"


@pytest.mark.parametrize(
    ("ready", "scheduled"),
    [(12_000, 3), (3, 12_000), (3_300, 9_999), (10_001, 0), (0, 10_001)],
)
def test_depths_are_exact_beyond_what_is_counted(
    database: Database, ready: int, scheduled: int
) -> None:
    make_jobs(database.conn, ready)
    worker = make_worker(database.conn)
    running = claim(database.conn, worker, 2)
    for job in running[:1]:
        settle(database.conn, worker, job, "retry", delay=3600.0, failure=failure())
    with database.conn.transaction():
        database.conn.execute("set local session_replication_role = replica")
        database.conn.execute(
            "insert into redrive.jobs (kind, run_at, priority)"
            " select 'a', now() + interval '1 hour', n / 4000"
            " from generate_series(1, %s) n",
            (scheduled,),
        )
        database.conn.execute(
            "insert into redrive.deltas (queue, kind, event, n)"
            " values ('default', 'a', 'enqueued', %s)",
            (scheduled,),
        )
    taken = len(running)

    assert depths(database.conn)["default"] == Depth(
        ready=ready - taken,
        scheduled=scheduled,
        retrying=min(taken, 1),
        running=max(taken - 1, 0),
    )


def test_a_queue_that_only_has_a_row_is_shown(database: Database) -> None:
    database.rows("select redrive.pause_v1('quiet', 'ada', 'x')")

    assert depths(database.conn) == {"quiet": Depth(paused=True)}


def test_the_oldest_ready_job_has_its_age(database: Database) -> None:
    make_jobs(database.conn, 2)
    database.rows(
        "update redrive.jobs set run_at = run_at - interval '1 hour' where id = (select max(id)"
        " from redrive.jobs)"
    )

    age = database.value("select oldest_ready_seconds from redrive.depths_v1()")
    assert 3600 <= age < 3660


# Pause and resume


def test_a_paused_queue_remembers_who_why_and_since_when(database: Database) -> None:
    database.rows("select redrive.pause_v1('q', 'ada', 'bank is down')")
    (since,) = database.row("select paused_at from redrive.queues")
    database.rows("select redrive.pause_v1('q', 'bob', 'still down')")

    assert database.rows(
        "select queue, paused_by, paused_why, paused_at = %s from redrive.queues", since
    ) == [("q", "bob", "still down", True)]
    assert (
        database.value("select redrive.resume_v1('q', 'ada', 'bank is back')") is True
    )
    assert (
        database.value("select redrive.resume_v1('q', 'ada', 'bank is back')") is False
    )
    assert database.row(
        "select paused_at, paused_by, paused_why from redrive.queues"
    ) == (None, None, None)
    assert database.rows(
        "select action, actor, why, detail ->> 'queue' from redrive.audit order by id"
    ) == [
        ("pause", "ada", "bank is down", "q"),
        ("pause", "bob", "still down", "q"),
        ("resume", "ada", "bank is back", "q"),
    ]


def test_pausing_keeps_the_lanes_of_the_queue(database: Database) -> None:
    database.rows("insert into redrive.queues (queue, lanes) values ('q', 8)")
    database.rows("select redrive.pause_v1('q', 'ada', 'x')")

    assert database.value("select lanes from redrive.queues") == 8


def test_a_queue_that_could_not_exist_cannot_be_paused(database: Database) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        database.rows("select redrive.pause_v1('No Queue', 'ada', 'x')")

    assert database.value("select count(*) from redrive.audit") == 0


# Completions past their retention


def test_old_keys_are_forgotten_in_batches_oldest_first(database: Database) -> None:
    database.rows(
        "insert into redrive.completions (kind, key, job, at)"
        " select 'a', n::text, n, now() - n * interval '1 day' from generate_series(1, 10) n"
    )
    forget = "select redrive.forget_completions_v1(%s, 3)"
    age = timedelta(days=5, hours=1)

    assert database.value(forget, age) == 3
    assert sorted(database.column("select job from redrive.completions")) == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    assert database.value(forget, age) == 2
    assert database.value(forget, age) == 0
    assert sorted(database.column("select job from redrive.completions")) == [
        1,
        2,
        3,
        4,
        5,
    ]


EXPECTED = """
    select extract(epoch from every)::int, expected_at, ran_at = '-infinity'
    from redrive.chores where name = 'purge'
"""


def test_what_is_expected_keeps_its_time_until_it_is_expected_otherwise(
    database: Database,
):
    """A task that never ran had nothing to be late against."""
    expect = "select redrive.expect_chore_v1('purge', %s)"
    assert database.row(EXPECTED) == (None, None, True)

    database.rows(expect, timedelta(days=1))
    every, since, has_never_run = database.row(EXPECTED)
    assert (every, has_never_run) == (86_400, True)
    assert since is not None

    database.rows(expect, timedelta(days=1))  # an upgrade
    assert database.row(EXPECTED) == (86_400, since, True)

    database.rows(expect, timedelta(hours=1))  # else it would be late at once
    every, later, _ = database.row(EXPECTED)
    assert (every, later > since) == (3_600, True)

    database.rows(expect, None)
    assert database.row(EXPECTED) == (None, None, True)


def test_a_run_that_says_how_often_leaves_what_is_expected(database: Database):
    database.rows("select redrive.expect_chore_v1('purge', interval '1 day')")
    before = database.value(
        "select expected_at from redrive.chores where name = 'purge'"
    )
    database.rows("select redrive.done_chore_v1('purge', null)")
    database.rows("select redrive.done_chore_v1('purge', interval '7 days')")

    assert database.row(EXPECTED) == (604_800, before, False)
