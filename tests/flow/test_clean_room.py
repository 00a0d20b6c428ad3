"""Each job has a task and a context of its own: nothing that it leaves reaches another one."""

from typing import Any

import pytest

from redrive import enqueue, enqueue_many
from redrive.worker.run.services import MOST_DESCRIBING
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

HANDLERS = "tests.flow.untidy:jobs"


def test_a_job_begins_with_the_context_that_the_worker_had_after_loading(
    database: Database, workers: Workers
):
    kinds = ("context.async", "context.sync") * 3
    ids = [enqueue(database.conn, kind) for kind in kinds]
    worker = workers.run("--slots", "1", handlers=HANDLERS)

    seen = [(worker.home / f"seen-{job}").read_text() for job in ids]
    assert seen == ["nobody 20 []"] * 6
    assert look.letters(database) == {}


def test_a_cancellation_after_the_end_of_a_job_reaches_no_other(
    database: Database, workers: Workers
):
    enqueue(database.conn, "cancel.later")
    after = [
        enqueue(database.conn, "context.async"),
        *(enqueue(database.conn, "cancel.later") for _ in range(3)),
    ]
    worker = workers("--slots", "1", handlers=HANDLERS)
    wait_for(lambda: look.live(database) == 0)
    late = enqueue(database.conn, "cancel.later")
    wait_for(lambda: look.live(database) == 0)

    assert look.letters(database) == {}
    assert workers.starts(late)
    assert len([job for job in after if workers.starts(job)]) == 3
    assert worker.metric("redrive_runner_deaths_total") == 0


def test_a_job_that_cancels_all_tasks_ends_neither_the_runner_nor_a_job_that_has_not_begun(
    database: Database, workers: Workers
):
    enqueue(database.conn, "cancel.prepare")
    workers.run(handlers=HANDLERS)
    ids = [enqueue(database.conn, "cancel.all") for _ in range(20)]
    worker = workers(handlers=HANDLERS)
    wait_for(lambda: look.live(database) == 0)

    assert look.letters(database) == {}
    assert [len(workers.starts(job)) for job in ids] == [1] * 20
    assert worker.metric("redrive_runner_deaths_total") == 0


def test_a_plain_handler_whose_task_is_cancelled_ends_with_its_thread(
    database: Database, workers: Workers
):
    enqueue(database.conn, "cancel.prepare")
    worker = workers("--slots", "1", handlers=HANDLERS)
    wait_for(lambda: look.live(database) == 0)
    job = enqueue(database.conn, "cancel.all-from-thread")
    wait_for(lambda: look.live(database) == 0)

    assert look.letters(database) == {}
    phases = [entry.phase for entry in workers.ledger() if entry.job == job]
    assert phases == ["start", "end"]
    assert worker.metric("redrive_runner_deaths_total") == 0


def test_a_plain_handler_that_ends_as_its_task_is_cancelled_has_ended(
    database: Database, workers: Workers
):
    enqueue(database.conn, "cancel.prepare")
    worker = workers("--slots", "1", handlers=HANDLERS)
    wait_for(lambda: look.live(database) == 0)
    for _ in range(50):
        enqueue(database.conn, "cancel.as-it-ends")
    wait_for(lambda: look.live(database) == 0)

    assert look.letters(database) == {}
    assert worker.metric("redrive_runner_deaths_total") == 0


def test_what_a_job_leaves_running_is_named_and_its_tasks_are_cancelled(
    database: Database, workers: Workers
):
    enqueue(database.conn, "leave.task")
    enqueue(database.conn, "leave.thread")
    worker = workers("--slots", "1", handlers=HANDLERS)
    for name in ("left-cancelled", "kept", "pool"):
        wait_for((worker.home / name).exists, what=name)
    wait_for(lambda: look.live(database) == 0)

    said = worker.log.read_text()
    assert "a job left tasks behind, which are cancelled: leave.task: until" in said
    assert "left threads behind: leave.thread: poll" in said
    assert "soon" not in said
    assert "serve" not in said


def test_what_a_handler_returns_has_run_before_its_job_succeeds(
    database: Database, workers: Workers
):
    kinds = ("awaitable", "coroutine", "task", "future", "object")
    jobs = {enqueue(database.conn, f"returns.{kind}"): kind for kind in kinds}
    workers.run(handlers=HANDLERS)

    assert look.letters(database) == {}
    ended = sorted((jobs[entry.job], entry.phase) for entry in workers.ledger())
    assert ended == [(kind, "end") for kind in sorted(kinds)]


def test_a_handler_that_returns_a_generator_has_failed(
    database: Database, workers: Workers
):
    jobs = [enqueue(database.conn, kind) for kind in ("yields.async", "yields.sync")]
    workers.run(handlers=HANDLERS)

    for job in jobs:
        dead = look.dead(database, job)
        assert (dead.category, dead.error_class) == ("bug", "TypeError")
        assert "returned a generator" in dead.message
        assert workers.starts(job) == []


def test_a_job_that_no_thread_could_be_started_for_has_not_begun_and_runs_once(
    database: Database, workers: Workers
):
    enqueue(database.conn, "thread.refuse", {"times": 2})
    worker = workers("--slots", "3", handlers=HANDLERS)
    wait_for(lambda: look.live(database) == 0)
    ids = [enqueue(database.conn, "thread.work") for _ in range(3)]
    wait_for(lambda: look.live(database) == 0)
    worker.stop()

    assert look.letters(database) == {}
    starts = [entry for job in ids for entry in workers.starts(job)]
    assert [entry.attempt for entry in starts] == [1] * 3
    assert sorted(entry.job for entry in starts) == ids


def test_jobs_that_never_wait_leave_the_event_loop_its_turns(
    database: Database, workers: Workers
):
    worker = workers("--slots", "4", handlers=HANDLERS)
    enqueue(database.conn, "busy.turns", {"jobs": 200})
    wait_for((worker.home / "ready").exists)
    enqueue_many(database.conn, [{"kind": "busy.work"}] * 200)
    wait_for(lambda: look.live(database) == 0)

    assert 1 <= int((worker.home / "most").read_text()) <= 4


def test_plain_handlers_have_no_more_threads_than_slots(
    database: Database, workers: Workers
):
    ids = enqueue_all(database, "thread.count", 400, {"name": "handler"})
    worker = workers("--slots", "5", handlers=HANDLERS)
    wait_for(lambda: look.live(database) == 0)

    counts = [int((worker.home / f"count-{job}").read_text()) for job in ids]
    assert 1 <= max(counts) <= 5


def test_exceptions_whose_texts_never_end_take_few_threads_and_no_slot(
    database: Database, workers: Workers
):
    ids = enqueue_all(database, "raises.endless", 40, {})
    worker = workers("--slots", "4", handlers=HANDLERS)
    wait_for(lambda: look.live(database) == 0)
    for name, most in (("describe", MOST_DESCRIBING), ("handler", 4)):
        job = enqueue(database.conn, "thread.count", {"name": name})
        path = worker.home / f"count-{job}"
        wait_for(path.exists)
        assert int(path.read_text()) <= most

    assert set(look.letters(database)) == set(ids)
    assert [len(workers.starts(job)) for job in ids] == [1] * 40
    assert worker.metric("redrive_runner_deaths_total") == 0
    assert worker.stop()[0] == 0


def enqueue_all(
    database: Database, kind: str, count: int, payload: dict[str, Any]
) -> list[int]:
    return [enqueue(database.conn, kind, payload) for _ in range(count)]


@pytest.mark.parametrize("kind", ["slow", "classless"])
def test_an_exception_that_cannot_be_described_holds_up_no_other_job(
    database: Database, workers: Workers, kind: str
):
    job = enqueue(database.conn, f"raises.{kind}")
    worker = workers("--slots", "2", handlers=HANDLERS)
    wait_for(lambda: workers.starts(job))
    after = [enqueue(database.conn, "cancel.later") for _ in range(3)]
    wait_for(lambda: all(workers.starts(each) for each in after))
    wait_for(lambda: look.live(database) == 0)

    (start,) = workers.starts(job)
    late = [each.at - start.at for one in after for each in workers.starts(one)]
    assert max(late) < 15
    dead = look.dead(database, job)
    assert dead is not None
    assert dead.error_class == f"tests.flow.untidy.{kind.title()}"
    assert worker.metric("redrive_runner_deaths_total") == 0
