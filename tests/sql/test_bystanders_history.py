"""What is kept of jobs that end, and what they left while they ran; see bystanders."""

from typing import LiteralString

from redrive.worker import store
from tests.factories import claim, make_jobs, make_worker
from tests.postgres import Database
from tests.sql.bystanders import changed, touched
from tests.sql.test_long_work import noted

KEPT: LiteralString = (
    "insert into redrive.history (drop_on, id, state, queue, kind, attempt, deliveries, redrives,"
    " priority, created_at, run_at, ended_at, headers, payload)"
    " select 'infinity', id, 'completed', 'q', 'k', 1, 1, 0, 0, now(), now(), at, '{}', '{}'"
    " from (values (1, '2020-01-01Z'::timestamptz), (2, '2020-01-01Z'), (3, '2020-01-01Z'),"
    " (2, '2020-01-02Z')) v(id, at)"
)


def test_a_copy_of_what_was_not_ours_to_end_is_dropped_alone(
    database: Database,
) -> None:
    """Of jobs 1 and 2 somebody else ended 2, and copied it, too; another batch copied 3."""
    database.rows(KEPT)
    drop = "select redrive.drop_from_history_v1('{1,2}', '{1}', '2020-01-01Z')"
    rows = changed(database, lambda: database.rows(drop))

    assert [(row["id"], row["ended_at"][:10]) for _, row in rows] == [(2, "2020-01-01")]


def test_the_history_of_a_queue_is_set_alone(database: Database) -> None:
    database.rows("insert into redrive.history_queues values ('a', 1), ('b', 1)")
    for days, queues in ((2, [("a", 2), ("b", 1)]), (None, [("b", 1)])):
        database.rows("select redrive.set_history_v1('a', %s, 'ada', 'x')", days)
        assert (
            database.rows("select * from redrive.history_queues order by 1") == queues
        )


def test_the_history_turns_alone_and_one_turns_it_at_a_time(database: Database) -> None:
    """Beside another table that has days, and what is to stay and has no day of its own yet."""
    database.rows("insert into redrive.history_queues values ('a', 1)")
    database.rows(KEPT)
    database.rows(
        "create table redrive.others (drop_on date) partition by list (drop_on);"
        "create table redrive.history_20200101 partition of redrive.others"
        " for values in ('2020-01-01')"
    )
    other, hasty = database.session(), database.session(lock_timeout="1ms")
    turn: LiteralString = "select redrive.turn_history_v1('2020-01-02')"
    other.rows("begin")
    other.rows("select from redrive.chores where name = 'history' for update")
    assert hasty.value(turn) == 0
    other.rows("rollback")

    assert hasty.value(turn) == 2, "what is needed today and tomorrow"
    assert hasty.value(turn) == 0
    assert database.value("select to_regclass('redrive.history_20200101') is not null")
    assert database.value("select count(*) from redrive.history") == 4


def test_a_cancelled_job_ends_alone_and_under_its_lock(database: Database) -> None:
    """Of a batch: one that its holder cancels, and of it what a worker before says, too late; one
    that is retried; and three that somebody else holds, or another claim, or another delivery.
    """
    conn = database.conn
    workers = [make_worker(database.conn, name) for name in ("w", "v")]
    database.rows("insert into redrive.history_queues values ('default', 1)")
    make_jobs(conn, 6)
    jobs = claim(conn, workers[0], 5)
    store.keep_checkpoints(conn, [noted(workers[0], job) for job in jobs])
    (beside,) = claim(conn, workers[1])
    one, retried, *others = jobs
    said = [
        (workers[0], one.claim, one.id, 1, "cancel"),
        (workers[1], one.claim, one.id, 0, "retry"),
        (workers[0], one.claim, retried.id, 1, "retry"),
        *zip(
            (workers[1], workers[0], workers[0]),
            (one.claim, beside.claim + 1, one.claim),
            (job.id for job in others),
            (1, 1, 2),
            ("cancel",) * 3,
            strict=True,
        ),
    ]
    end: LiteralString = "select redrive.end_cancelled_v1(%s::int[], %s, %s, %s, %s)"
    columns = list(map(list, zip(*said, strict=True)))
    ending = database.session()
    holder = database.transaction(
        "select from redrive.jobs where id = %s for update", beside.id
    )
    ending.rows("set lock_timeout = '1ms'; begin")
    ending.rows(end, *columns)
    ending.rows("rollback; set lock_timeout = 0")
    holder.rows("select from redrive.jobs where id = %s for update", retried.id)
    waiting = ending.start(lambda: ending.rows(end, *columns))
    assert database.wait_until_blocked(ending) == [holder.pid], "as settle does next"
    holder.rows("rollback")
    waiting.result(60)

    assert database.column("select job from redrive.results") == [one.id]
    assert database.rows("select id, deliveries from redrive.history") == [(one.id, 1)]
    left = database.column("select job from redrive.checkpoints order by job")
    assert left == [job.id for job in (retried, *others)]


def test_what_is_noted_of_jobs_is_of_these_alone(database: Database) -> None:
    """While somebody has another of the worker's, and the row of one of these is let go later."""
    conn, worker = database.conn, make_worker(database.conn)
    make_jobs(conn, 3)
    one, held, other = claim(conn, worker)
    hasty = database.session(lock_timeout="1ms")
    database.transaction(
        "select from redrive.jobs where id = any (%s) for update", [held.id, other.id]
    )
    batch = [noted(worker, job) for job in (one, held)]

    for table, keep in (
        ("progress", store.keep_progress),
        ("checkpoints", store.keep_checkpoints),
    ):
        database.rows("update redrive.jobs set noted = false where id = %s", one.id)
        rows = touched(database, lambda keep=keep: keep(hasty.conn, batch))
        assert rows == {("jobs", one.id, 0)}
        assert database.column(f"select job from redrive.{table}") == [one.id]
