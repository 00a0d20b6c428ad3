"""What `redrive check` says of workers and of progress."""

from psycopg import sql

from tests.cli.conftest import Redrive
from tests.factories import claim, make_job, make_worker, silence
from tests.postgres import Connection, Database


def found(redrive: Redrive, check: str) -> tuple[bool, str]:
    """Return what one finding says, and whether all is well."""
    done = redrive("check", "--json")
    (line,) = [line for line in done.lines if line["check"] == check]
    assert line["ok"] or done.code == 1
    return line["ok"], line["text"]


def has_slots(conn: Connection, worker: int, slots: int, inflight: int = 0) -> None:
    """Let a worker say how many slots it has, an hour after it was started."""
    conn.execute(
        "update redrive.workers set progress = jsonb_build_object('slots', %s::int),"
        " inflight = %s, started_at = started_at - interval '1 hour' where id = %s",
        (slots, inflight, worker),
    )


def make_old_job(conn: Connection, seconds: float = 300, **options: str) -> int:
    """Make a job that has been due for a while, and forget that it was enqueued."""
    job = make_job(conn, **options)
    conn.execute(
        "update redrive.jobs set run_at = run_at - %s * interval '1 second' where id = %s",
        (seconds, job),
    )
    return job


def test_o24_an_idle_worker_that_was_killed_holds_no_jobs(
    redrive: Redrive, database: Database
) -> None:
    """O24: an idle killed worker was said to hold jobs."""
    silence(database.conn, make_worker(database.conn, ttl=30))

    assert found(redrive, "rescue") == (True, "no lost worker holds jobs")


def test_o24_a_lost_worker_that_holds_a_job_is_reported_at_once(
    redrive: Redrive, database: Database
) -> None:
    """O24: it was not seen for five minutes."""
    worker = make_worker(database.conn, ttl=30)
    make_job(database.conn)
    assert len(claim(database.conn, worker)) == 1
    alive = found(redrive, "rescue")
    silence(database.conn, worker, seconds=31)
    lost = found(redrive, "rescue")

    assert alive[0]
    assert not lost[0]
    assert lost[1].startswith("1 worker lost, and no worker has rescued")


def test_o24_jobs_without_a_live_worker_are_a_finding(
    redrive: Redrive, database: Database
) -> None:
    """O24: no worker at all and jobs ready was "ok"."""
    empty = found(redrive, "workers")
    make_job(database.conn, queue="mail")
    make_job(database.conn, queue="pay")
    without = found(redrive, "workers")
    worker = make_worker(database.conn, ttl=30)
    served = found(redrive, "workers")
    silence(database.conn, worker)
    gone = found(redrive, "workers")

    assert empty == (True, "0 live; each due job has one for its queue")
    told = "jobs are due in queue mail and 1 more queue, and no live worker serves it: start one"
    assert without == gone == (False, told)
    assert served == (True, "1 live; each due job has one for its queue")


def test_a_paused_queue_needs_no_worker(redrive: Redrive, database: Database) -> None:
    make_job(database.conn, queue="mail")
    database.rows("select redrive.pause_v1('mail', 'ada', 'why')")

    assert found(redrive, "workers")[0]


def test_progress_names_the_queue_that_stands_still(
    redrive: Redrive, database: Database
) -> None:
    """C25: check was clean while no worker claimed anything."""
    worker = make_worker(database.conn, ttl=30)
    has_slots(database.conn, worker, slots=4)
    fresh = make_job(database.conn, queue="fresh")
    before = found(redrive, "progress")
    make_old_job(database.conn, queue="mail")
    ok, text = found(redrive, "progress")

    assert fresh
    assert before == (True, "no due job waits beside a free slot")
    assert not ok
    assert text.startswith(
        "queue mail: jobs are due, 1 live worker with free slots, and nothing"
    )
    assert "for 30" in text
    assert text.endswith(
        "no session was seen to block it: see the workers' logs and their /readyz"
    )


def test_progress_is_no_matter_of_busy_slots_nor_of_a_paused_queue_nor_of_a_backlog_that_moves(
    redrive: Redrive, database: Database
) -> None:
    worker = make_worker(database.conn, ttl=30)
    has_slots(database.conn, worker, slots=4, inflight=4)
    make_old_job(database.conn, queue="mail")
    busy = found(redrive, "progress")
    database.rows("update redrive.workers set inflight = 1")
    assert not found(redrive, "progress")[0]
    database.rows("insert into redrive.deltas values ('mail', 'k', 'completed', '', 1)")
    moving = found(redrive, "progress")
    database.rows("delete from redrive.deltas where event = 'completed'")
    assert not found(redrive, "progress")[0]
    database.rows("select redrive.pause_v1('mail', 'ada', 'why')")
    paused = found(redrive, "progress")

    assert busy[0]
    assert moving[0]
    assert paused[0]


def test_progress_names_the_session_that_has_locked_a_table(
    redrive: Redrive, database: Database
) -> None:
    """C25: nothing named the session that blocked every worker."""
    worker = make_worker(database.conn, ttl=30)
    has_slots(database.conn, worker, slots=4)
    make_old_job(database.conn, queue="mail")
    for table in ("lanes", "claims"):
        with database.connect() as other, other.transaction():
            name = sql.Identifier("redrive", table)
            other.execute(
                sql.SQL("lock table {} in access exclusive mode").format(name)
            )
            ok, text = found(redrive, "progress")
            pid = other.info.backend_pid

        assert not ok
        assert f"session {pid} (test) has locked table {table}, for " in text
        assert text.endswith(f"to end it: select pg_terminate_backend({pid})")


def test_progress_names_the_session_that_a_worker_waits_for(
    redrive: Redrive, database: Database
) -> None:
    worker = make_worker(database.conn, ttl=30)
    has_slots(database.conn, worker, slots=4)
    job = make_old_job(database.conn, queue="mail")
    locking = "select from redrive.jobs where id = %s for update"
    other, waits = database.session(), database.session()
    waits.rows("set application_name = 'redrive worker'")
    with other.conn.transaction():
        other.rows(locking, job)
        waiting = waits.start(lambda: waits.rows(locking, job))
        database.wait_until_blocked(waits)
        ok, text = found(redrive, "progress")
    waiting.result()

    assert not ok
    assert f"session {other.pid} (test) has locked rows, for " in text
