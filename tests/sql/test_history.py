"""The history: what ends is kept where its queue says so, for days that are dropped as a whole."""

import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from redrive.jobs.filter import JobFilter
from redrive.jobs.history import find_ended
from redrive.jobs.show import show
from redrive.worker import store
from tests.factories import (
    claim,
    claim_one,
    complete,
    make_full_job,
    make_job,
    make_jobs,
    make_worker,
    outcome,
    settle,
    settle_next,
    silence,
)
from tests.postgres import Connection, Database

SET = "select redrive.set_history_v1(%s, %s, 'ada', 'support asks')"
ALL = JobFilter(state=("completed", "cancelled"))


def keep(database: Database, queue: str = "default", days: int | None = 7) -> None:
    database.rows(SET, queue, days)


def kept(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("select id, state from redrive.history order by id")


def partitions(database: Database) -> list[str]:
    return database.column(
        "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = 'redrive.history'::regclass order by 1"
    )


def named(*days: date) -> list[str]:
    """The partitions of jobs that go on these days."""
    return [f"history_{day:%Y%m%d}" for day in days]


def turn(database: Database, today: date) -> int:
    return database.value("select redrive.turn_history_v1(%s)", today)


@pytest.fixture(autouse=True)
def _day(database: Database) -> None:
    """Let a midnight pass that is near: jobs are kept by UTC days."""
    near = "extract(epoch from date_trunc('day', now(), 'UTC') + interval '1 day' - now()) < 10"
    database.rows(f"select pg_sleep(11) where {near}")  # type: ignore[arg-type] # ours


def today() -> date:
    return datetime.now(UTC).date()


def finish(conn: Connection, count: int = 1) -> list[int]:
    worker = make_worker(conn)
    jobs = claim(conn, worker, count)
    assert len(jobs) == count
    complete(conn, worker, *jobs)
    return [job.id for job in jobs]


def test_a_job_is_kept_with_all_that_is_known_of_it(database: Database) -> None:
    conn = database.conn
    keep(database, "q")
    job = make_full_job(conn)
    worker = make_worker(conn, "worker-7")
    claimed = claim_one(conn, worker)
    complete(conn, worker, claimed)

    (row,) = database.rows("select row_to_json(h) from redrive.history h")
    found = row[0]
    day = today() + timedelta(days=8)
    assert (found.pop("drop_on"), found.pop("payload")) == (f"{day:%Y-%m-%d}", {"n": 1})
    assert found.pop("headers") == {"traceparent": "00-1"}
    for name in ("created_at", "run_at", "ended_at"):
        assert found.pop(name)
    assert found == {
        "id": job,
        "state": "completed",
        "queue": "q",
        "kind": "a.b",
        "attempt": 1,
        "deliveries": 1,
        "redrives": 0,
        "priority": -3,
        "worker": "worker-7",
        "idempotency_key": "ik",
        "ordering_key": "ok",
        "tenant": "acme",
    }
    assert partitions(database) == [
        *named(day, day + timedelta(days=1)),
        "history_default",
    ]


@pytest.mark.parametrize("how", ["by its handler", "while it waits"])
def test_a_cancelled_job_is_kept_as_such(database: Database, how: str) -> None:
    conn = database.conn
    keep(database)
    job = make_job(conn)
    if how == "while it waits":
        conn.execute(
            "select redrive.cancel_v1(array[%s::bigint], 'ada', 'why')", (job,)
        )
    else:
        worker = make_worker(conn)
        settle_next(conn, worker, "cancel")

    assert kept(database) == [(job, "cancelled")]
    assert outcome(conn, job) == "cancelled"


def test_it_is_off_unless_the_queue_says_so_and_on_from_then(
    database: Database,
) -> None:
    conn = database.conn
    make_jobs(conn, 2)
    make_jobs(conn, 1, queue="other")
    finish(conn, 3)
    assert kept(database) == []
    keep(database)
    (job,) = make_jobs(conn, 1)
    make_jobs(conn, 1, queue="other")
    finish(conn, 2)
    keep(database, days=None)
    make_jobs(conn, 1)
    finish(conn)

    assert kept(database) == [(job, "completed")], "what is kept stays until its day"
    assert database.column("select detail from redrive.audit order by id") == [
        {"queue": "default", "days": 7},
        {"queue": "default", "days": None},
    ]


def test_whoever_was_fenced_off_leaves_nothing_behind(database: Database) -> None:
    """A stale worker completes or cancels beside the holder: one row, the holder's."""
    conn = database.conn
    keep(database)
    make_job(conn)
    stale, worker = make_worker(conn), make_worker(conn)
    old = claim_one(conn, stale)
    silence(conn, stale)
    store.rescue(conn, 60)
    job = claim_one(conn, worker)
    assert complete(conn, stale, old) == set()
    assert not settle(conn, stale, old, "cancel")
    assert kept(database) == []
    complete(conn, worker, job)
    assert complete(conn, stale, old) == set()
    assert complete(conn, worker, job) == set(), "sent again, after an unknown commit"

    assert kept(database) == [(job.id, "completed")]


def test_two_sessions_that_complete_a_job_keep_it_once(database: Database) -> None:
    conn = database.conn
    keep(database)
    make_job(conn)
    worker, other = make_worker(conn), database.session()
    job = claim_one(conn, worker)
    done: list[set[int]] = []
    first = database.session()
    with first.conn.transaction():
        complete(first.conn, worker, job)
        thread = threading.Thread(
            target=lambda: done.append(complete(other.conn, worker, job))
        )
        thread.start()
        while not database.value(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            " and datname = current_database()"
        ):
            pass
    thread.join()

    assert done == [set()]
    assert kept(database) == [(job.id, "completed")]


# Days


def test_each_queue_keeps_its_own_for_as_long_as_it_says(database: Database) -> None:
    """Across midnight, by UTC days: a partition goes with the last job that is due to go."""
    conn = database.conn
    keep(database, days=1)
    keep(database, "long", 3)
    day = timedelta(days=1)
    (short,) = make_jobs(conn, 1)
    (long,) = make_jobs(conn, 1, queue="long")
    finish(conn, 2)
    assert sorted(partitions(database)) == sorted(
        ["history_default", *named(*(today() + n * day for n in (2, 3, 4, 5)))]
    )
    assert turn(database, today()) == 0, "as often as you like"
    assert turn(database, today() + day) == 1, "the next day's, made ahead"
    assert kept(database) == [(short, "completed"), (long, "completed")]
    turn(database, today() + 2 * day)
    assert kept(database) == [(long, "completed")]
    turn(database, today() + 3 * day)
    assert kept(database) == [(long, "completed")]
    turn(database, today() + 4 * day)

    assert kept(database) == []
    assert named(today() + 4 * day)[0] not in partitions(database)


def test_without_its_partition_a_job_is_kept_all_the_same(database: Database) -> None:
    """Nobody has turned it: the default takes it, and hands it over when the partition is made."""
    conn = database.conn
    database.rows("insert into redrive.history_queues values ('default', 2)")
    (job,) = make_jobs(conn, 1)
    finish(conn)
    assert partitions(database) == ["history_default"]
    assert database.column("select id from redrive.history_default") == [job]
    turn(database, today())

    assert database.column("select id from redrive.history_default") == []
    assert kept(database) == [(job, "completed")]
    day = today() + timedelta(days=3)
    assert database.column(f"select id from redrive.history_{day:%Y%m%d}") == [job]  # type: ignore[arg-type]
    turn(database, day)
    assert kept(database) == []


def test_a_reader_puts_a_drop_off_and_stops_nobody(database: Database) -> None:
    """A dump holds the history for hours: the turn gives up in time, completions go on."""
    conn = database.conn
    keep(database, days=1)
    make_jobs(conn, 1)
    finish(conn)
    reader = database.session()
    with reader.conn.transaction():
        reader.rows("select count(*) from redrive.history")
        turn(database, today() + timedelta(days=2))
        assert len(kept(database)) == 1
        make_jobs(conn, 1)
        finish(conn)
    turn(database, today() + timedelta(days=2))

    assert kept(database) == []


def test_a_worker_turns_by_the_servers_clock_alone(database: Database) -> None:
    worker = database.session("redrive_worker")
    keep(database)
    worker.rows("select redrive.tend_history_v1()")
    with pytest.raises(Exception, match="permission denied"):
        worker.rows("select redrive.turn_history_v1('9999-01-01')")
    with pytest.raises(Exception, match="permission denied"):
        worker.rows("select * from redrive.history")


# Looking at it


def test_it_is_listed_newest_first_and_found_by_its_keys(database: Database) -> None:
    conn = database.conn
    keep(database)
    keep(database, "q")
    plain = make_jobs(conn, 3)
    full = make_full_job(conn)
    finish(conn, 4)

    def ids(**chosen: Any) -> list[int]:
        return [
            row["id"]
            for row in find_ended(conn, JobFilter(**{"state": ALL.state} | chosen))
        ]

    assert ids() == [full, *reversed(plain)]
    assert ids(limit=2) == [full, plain[2]]
    for chosen in ({"key": ("ik",)}, {"ordering_key": ("ok",)}, {"tenant": ("acme",)}):
        assert ids(**chosen) == [full]
        assert ids(**chosen, kind=("nothing",)) == []
    assert ids(ids=(plain[0], full)) == [full, plain[0]]
    assert ids(queue=("q",)) == [full]
    assert ids(state=("cancelled",)) == []
    assert ids(reason=("expired",)) == []
    after = next(find_ended(conn, JobFilter(state=ALL.state)))["place"]
    assert [row["id"] for row in find_ended(conn, ALL, after)] == [*reversed(plain)]


def test_show_tells_its_story_without_secrets(database: Database) -> None:
    conn = database.conn
    keep(database)
    job = make_job(conn, payload={"password": "hunter2hunter2"})
    finish(conn)
    found = show(conn, job) or {}

    assert (found["state"], found["payload"]) == (
        "completed",
        {"password": "[redacted]"},
    )
    assert [
        (step["what"].partition(" in ")[0], step["by"]) for step in found["story"]
    ] == [("enqueued", None), ("completed", "worker-1")]
    assert found["why"] == {"code": "ended", "text": "it has ended: completed"}


@pytest.mark.every_version
def test_a_page_of_it_is_found_by_an_index_in_every_day(database: Database) -> None:
    """Ten thousand jobs: a page reads what it looks at."""
    conn = database.conn
    keep(database)
    make_jobs(conn, 10_000)
    for _ in range(10):
        finish(conn, 1_000)
    conn.execute("set enable_seqscan = off")
    plan = database.value(
        "explain (analyze, buffers, format json) select id from redrive.history h"
        " where h.id < 9000 order by h.id desc limit 100"
    )[0]["Plan"]

    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 60


def test_its_payloads_are_sealed_anew_like_others(database: Database) -> None:
    conn = database.conn
    keep(database)
    job = make_job(conn, payload={"n": 1})
    finish(conn)
    new = '{"$redrive": {"k": "new"}}'
    seal = (
        "select redrive.reencrypt_v1(null, 'history', %s, '{1}', array['{\"n\": 1}'::jsonb],"
        " array[%s::jsonb], '{salt}')"
    )

    assert database.column(seal, [job], new) == [1]
    assert database.rows(
        "select payload::text, headers::text from redrive.history"
    ) == [(new, '{"$redrive": "salt"}')]


# What it costs


def wal_of_completions(database: Database) -> int:
    """WAL bytes of completing 100 jobs, of the second of two rounds."""
    conn, worker = database.conn, make_worker(database.conn)
    lsn = "select pg_current_wal_insert_lsn()"
    spent = 0
    for _ in range(2):
        conn.execute(
            "insert into redrive.jobs (kind, payload)"
            " select 'a', jsonb_build_object('text', repeat('x', 185)) from generate_series(1, 100)"
        )
        jobs = claim(conn, worker, 100)
        start = database.value(lsn)
        complete(conn, worker, *jobs)
        spent = int(
            database.value("select pg_current_wal_insert_lsn() - %s::pg_lsn", start)
        )
    return spent


def test_the_wal_of_a_kept_job_is_bounded_and_of_any_other_what_it_was(
    database: Database,
) -> None:
    """Another queue's history costs a job nothing; its own costs what is kept, and an index."""
    if database.value("show full_page_writes") == "on":
        pytest.skip("full page images would be counted")
    off = wal_of_completions(database)
    keep(database, "other")
    beside = wal_of_completions(database)
    keep(database)
    on = wal_of_completions(database)

    assert abs(beside - off) < 800, "some bytes for pages and the like, of 100 jobs"
    assert 300 < (on - off) / 100 < 700, (off, on)
