"""Workers claim what they can run, and say what that is; what nobody can run is seen."""

import os
import signal
from typing import Any

from redrive import enqueue
from tests.factories import make_jobs, totals
from tests.flow import look
from tests.flow.harness import Worker, Workers, wait_for
from tests.postgres import Database

OTHERS = "tests.flow.others:jobs"

DELIVERED = "select coalesce(sum(deliveries), 0)::int from redrive.jobs where kind = 'nobody.knows'"


def registered(database: Database) -> list[tuple[list[str], list[str] | None]]:
    return database.rows(
        "select kinds, queues from redrive.workers order by started_at"
    )  # type: ignore[return-value]


def warnings(worker: Worker) -> list[dict[str, Any]]:
    return [
        e for e in worker.events() if e["event"] == "no live worker handles this kind"
    ]


def test_a_worker_says_which_kinds_it_handles_and_which_queues_it_serves(
    database: Database, workers: Workers
) -> None:
    """In its row, and anew when a runner comes back with others."""
    worker = workers("--queue", "default", handlers=OTHERS)
    wait_for(lambda: registered(database))
    assert registered(database) == [(["other.work"], ["default"])]

    (workers.home / "rolled-out").touch()
    job = enqueue(database.conn, "new.work")
    os.kill(worker.runners[0], signal.SIGKILL)

    wait_for(lambda: workers.starts(job))
    wait_for(
        lambda: registered(database) == [(["other.work", "new.work"], ["default"])]
    )


def test_a_kind_that_nobody_handles_is_warned_of_once_a_minute_by_one_worker(
    database: Database, workers: Workers
) -> None:
    """While it waits; the queue is paused so that no older worker can take it."""
    database.rows("select redrive.pause_v1('default', 'test', 'test')")
    with database.conn.transaction():  # until all is there nobody can take the chore
        database.rows("select from redrive.chores where name = 'unhandled' for update")
        both = [workers(handlers=OTHERS), workers(handlers=OTHERS)]
        wait_for(lambda: len(registered(database)) == 2)
        make_jobs(database.conn, 3, "nobody.knows")
        database.rows(
            "update redrive.chores set ran_at = '-infinity' where name = 'unhandled'"
        )
    told = wait_for(lambda: [line for worker in both for line in warnings(worker)])

    assert [
        (line["level"], line["queue"], line["kind"], line["jobs"]) for line in told
    ] == [("warning", "default", "nobody.knows", 3)]
    assert told[0]["handled"] == ["other.work"]
    assert "declare a handler in the registry" in told[0]["fix"]
    assert not database.value(
        "select redrive.take_chore_v1('unhandled', interval '50 seconds')"
    )


def test_jobs_that_nobody_handles_cost_nothing_while_good_ones_run(
    database: Database, workers: Workers
) -> None:
    """20,000 of them are not claimed once, and each good job is claimed once."""
    make_jobs(database.conn, 20_000, "nobody.knows")
    worker = workers().wait_ready()
    for _ in range(20):
        job = enqueue(database.conn, "work.sync")
        wait_for(lambda job=job: workers.starts(job))
    wait_for(lambda: look.live(database) == 20_000)

    assert database.value(DELIVERED) == 0
    assert [entry.delivery for entry in workers.ledger() if entry.phase == "start"] == [
        1
    ] * 20
    assert totals(database.conn).get("released", 0) == 0
    assert worker.metric("redrive_jobs_released_total") == 0


def test_workers_with_other_handlers_on_one_queue_leave_each_others_jobs_alone(
    database: Database, workers: Workers
) -> None:
    for worker in (workers(), workers(handlers=OTHERS)):
        worker.wait_ready()
    for _ in range(100):
        make_jobs(database.conn, 1, "work.sync")
        make_jobs(database.conn, 1, "other.work")

    def has_ended() -> bool:
        return look.live(database) == 0 or totals(database.conn).get("released", 0) > 0

    wait_for(has_ended)
    assert totals(database.conn).get("released", 0) == 0
    assert {entry.delivery for entry in workers.ledger()} == {1}


def test_jobs_that_nobody_is_to_run_any_more_can_be_cancelled(
    database: Database, workers: Workers
) -> None:
    """As docs/failures.md has it."""
    make_jobs(database.conn, 5, "report.legacy")
    workers.run(handlers="tests.flow.others:retired")

    assert look.live(database) == 0
    assert look.reasons(database) == {}
    assert totals(database.conn)["cancelled"] == 5


def test_a_queue_that_nobody_knows_is_warned_of_once(
    database: Database, workers: Workers
) -> None:
    """It was worked on without a word; what a handler names is none, nor what has had a job."""
    enqueue(database.conn, "work.sync", queue="payments")
    queues = [
        name
        for queue in ("default", "payments", "paymnts")
        for name in ("--queue", queue)
    ]
    worker = workers(*queues).wait_ready()
    os.kill(worker.runners[0], signal.SIGKILL)
    wait_for(
        lambda: len([e for e in worker.events() if e["event"] == "runner ready"]) == 2
    )

    told = [
        e for e in worker.events() if e["event"] == "no job has been in this queue yet"
    ]
    assert [(e["level"], e["queue"], e["meant"]) for e in told] == [
        ("warning", "paymnts", "payments")
    ]


def test_in_a_database_without_queues_none_is_a_slip(
    database: Database, workers: Workers
) -> None:
    worker = workers("--queue", "paymnts").wait_ready()

    assert all("queue yet" not in e["event"] for e in worker.events())
