"""SIGTERM: what runs may finish, what does not is given back with its attempt, and the worker
always ends in time.
"""

import os
import signal
import time

import pytest

from redrive import enqueue
from redrive.enqueue import enqueue_many
from tests.flow import look
from tests.flow.harness import Workers, alive, kill, wait_for
from tests.flow.proxy import proxy_for
from tests.postgres import Database

MARGIN = 40.0
"""Seconds past the drain in which a worker has ended. A longer drain takes 60."""


def running(workers: Workers, count: int = 1) -> None:
    """Wait until this number of handlers has started."""
    wait_for(lambda: sum(e.phase == "start" for e in workers.ledger()) >= count)


def test_running_jobs_finish_and_waiting_ones_are_given_back_at_once(
    database: Database, workers: Workers
):
    enqueue_many(
        database.conn,
        [{"kind": "work.sync", "payload": {"seconds": 1}} for _ in range(30)],
    )
    worker = workers("--slots", "4", redrive_drain_timeout=60)
    running(workers, 4)
    status, took = worker.stop()
    started = {e.job for e in workers.ledger()}

    assert status == 0
    assert took < 60
    assert look.counted(database)["completed"] == len(started)
    assert look.live(database) == 30 - len(started)
    assert database.column("select distinct attempt from redrive.jobs") == [0]
    assert database.value("select count(*) from redrive.workers") == 0


def test_a_job_slower_than_the_grace_is_released_with_its_attempt(
    database: Database, workers: Workers
):
    job = enqueue(database.conn, "work.until-file", {"file": "go"})
    worker = workers(redrive_drain_timeout=1)
    running(workers)
    status, took = worker.stop()
    row = look.row(database, job)

    assert status == 0
    assert 1 <= took < 1 + MARGIN
    assert (row["attempt"], row["deliveries"], row["losses"]) == (0, 1, 0)
    assert database.value("select run_at <= clock_timestamp() from redrive.jobs")
    assert look.failures(database, job) == []


def test_a_second_signal_gives_everything_back_at_once(
    database: Database, workers: Workers
):
    job = enqueue(database.conn, "work.until-file", {"file": "go"})
    worker = workers(redrive_drain_timeout=60)
    running(workers)
    worker.signal(signal.SIGTERM)
    wait_for(lambda: worker.metric("redrive_worker_draining") == 1)
    status, took = worker.stop()

    assert (status, took < MARGIN) == (0, True)
    assert look.row(database, job)["attempt"] == 0


def test_a_worker_with_nothing_to_do_stops_at_once(
    database: Database, workers: Workers
):
    worker = workers().wait_ready()
    status, took = worker.stop()

    assert (status, took < MARGIN) == (0, True)


def test_a_draining_worker_is_not_ready_but_alive(database: Database, workers: Workers):
    enqueue(database.conn, "work.until-file", {"file": "go"})
    worker = workers(redrive_drain_timeout=60).wait_ready()
    running(workers)
    worker.signal(signal.SIGTERM)
    wait_for(lambda: worker.get("/readyz")[0] == 503)

    assert "draining: the worker is stopping" in worker.get("/readyz")[1]
    assert worker.get("/livez")[0] == 200
    (workers.home / "go").touch()
    assert worker.wait() == 0
    assert look.live(database) == 0


def test_no_job_is_claimed_after_the_signal(database: Database, workers: Workers):
    first = enqueue(database.conn, "work.until-file", {"file": "go"})
    worker = workers(redrive_drain_timeout=60)
    running(workers)
    worker.signal(signal.SIGTERM)
    wait_for(lambda: worker.metric("redrive_worker_draining") == 1)
    later = enqueue(database.conn, "work.sync")
    (workers.home / "go").touch()
    worker.wait()

    assert (len(workers.starts(first)), workers.starts(later)) == (1, [])


@pytest.mark.parametrize("how", ["frozen", "swallowed"])
def test_a_worker_ends_in_time_although_the_database_does_not_answer(
    database: Database, workers: Workers, how: str
):
    enqueue(database.conn, "work.until-file", {"file": "go"})
    with proxy_for(database.url) as proxy:
        worker = workers(url=proxy.url, redrive_drain_timeout=2).wait_ready()
        running(workers)
        backends = database.column(
            "select pid from pg_stat_activity"
            " where application_name like 'redrive%%' and pid <> pg_backend_pid()"
        )
        frozen = backends if how == "frozen" else []
        proxy.swallow = how == "swallowed"
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            # Into the middle of a call that nobody answers.
            began = time.monotonic()
            wait_for(lambda: time.monotonic() - began > 1.5)
            status, took = worker.stop()
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)

    assert took < 2 + MARGIN
    assert status == 1, "a job was abandoned, and that must be seen"


def test_a_worker_that_ended_by_force_is_rescued_and_its_job_runs_again(
    database: Database, workers: Workers
):
    job = enqueue(database.conn, "work.until-file", {"file": "go"})
    first = workers()
    running(workers)
    kill(database, first)
    (workers.home / "go").touch()
    workers().wait_ready()
    wait_for(lambda: look.live(database) == 0)
    starts = workers.starts(job)

    assert [(e.delivery, e.attempt) for e in starts] == [(1, 1), (2, 1)], (
        "and has its attempt back"
    )
    assert look.counted(database)["rescued"] == 1


def test_runners_end_with_their_supervisor(database: Database, workers: Workers):
    enqueue(database.conn, "hang.sync-deaf")
    enqueue(database.conn, "work.until-file", {"file": "never"})
    worker = workers("--runners", "2").wait_ready()
    running(workers, 2)
    runners = worker.runners
    worker.signal(signal.SIGKILL)
    worker.wait()

    assert len(runners) >= 2
    wait_for(lambda: not any(alive(pid) for pid in runners))


def test_until_empty_waits_for_retries_and_what_is_due_soon_but_not_for_what_is_far(
    database, workers
):
    soon = enqueue(
        database.conn,
        "work.sync",
        run_at=database.value("select now() + interval '2 s'"),
    )
    far = enqueue(
        database.conn,
        "work.sync",
        run_at=database.value("select now() + interval '1 h'"),
    )
    failing = enqueue(database.conn, "fail.until", {"attempt": 3})
    elsewhere = enqueue(database.conn, "work.sync", queue="other")

    workers.run("--queue", "default")

    assert [len(workers.starts(job)) for job in (soon, far, failing, elsewhere)] == [
        1,
        0,
        3,
        0,
    ]


def test_handlers_that_cannot_be_loaded_end_the_worker_with_one_line(
    database: Database, workers: Workers
):
    for handlers, said in (
        ("tests.flow.nowhere:jobs", "cannot be imported"),
        ("tests.flow.handlers:nothing", "has no nothing; it has empty, jobs"),
        ("tests.flow.handlers:note", "not a Handlers registry"),
        ("tests.flow.handlers:empty", "it has no handlers"),
        ("nonsense", "module:attribute"),
    ):
        worker = workers(handlers=handlers)
        status = worker.wait()
        lines = [
            line
            for line in worker.log.read_text().splitlines()
            if "REDRIVE_HANDLERS" in line
        ]

        assert status == 64
        assert len(lines) == 1
        assert said in lines[0]
