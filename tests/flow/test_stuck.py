"""A runner that cannot run is noticed within seconds, and no job is lost or charged for it."""

from pathlib import Path

import pytest

from redrive import enqueue
from redrive.jobs import standing
from tests.flow import look
from tests.flow.breaking import BREAKS
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

HANDLERS = "tests.flow.breaking:jobs"


@pytest.mark.parametrize("how", sorted(BREAKS.keys() - {"generator-exit"}))
def test_a_runner_whose_loop_is_left_ends_its_jobs_and_is_replaced(
    database: Database, workers: Workers, how: str
):
    worker = workers("--slots", "4", handlers=HANDLERS).wait_ready()
    (runner,) = worker.runners
    running = [
        enqueue(database.conn, kind, {"seconds": 2})
        for kind in ("long.async", "long.sync")
    ]
    wait_for(lambda: all(workers.starts(job) for job in running))
    breaking = enqueue(database.conn, "break", {"how": how})
    waiting = [enqueue(database.conn, "short") for _ in range(20)]
    wait_for(lambda: look.live(database) == 0)
    wait_for(lambda: runner not in worker.runners)

    assert look.letters(database) == {}
    ids = [*running, breaking, *waiting]
    assert [len(workers.starts(job)) for job in ids] == [1] * len(ids)
    ended = {entry.job for entry in workers.ledger() if entry.phase == "end"}
    assert ended == {*running, breaking}
    assert worker.metric("redrive_runner_deaths_total") == 0
    assert "a runner cannot continue, and is replaced" in worker.log.read_text()


def test_a_generator_exit_in_a_task_harms_nobody(database: Database, workers: Workers):
    enqueue(database.conn, "break", {"how": "generator-exit"})
    after = [enqueue(database.conn, "short") for _ in range(5)]
    workers.run("--slots", "2", handlers=HANDLERS)

    assert look.letters(database) == {}
    assert [len(workers.starts(job)) for job in after] == [1] * 5


def test_jobs_that_wait_in_a_runner_that_stands_still_run_elsewhere_within_seconds(
    database: Database, workers: Workers
):
    worker = workers("--slots", "2", handlers=HANDLERS).wait_ready()
    first = enqueue(database.conn, "block", {"how": "file"})
    wait_for(lambda: workers.starts(first))
    waiting = [enqueue(database.conn, "long.async", {"seconds": 1}) for _ in range(8)]
    wait_for(lambda: all(workers.starts(job) for job in waiting), 60)
    (worker.home / "go").touch()
    wait_for(lambda: look.live(database) == 0)

    assert look.letters(database) == {}
    starts = {job: workers.starts(job) for job in (first, *waiting)}
    assert {len(found) for found in starts.values()} == {1}
    assert {entry.attempt for found in starts.values() for entry in found} == {1}


def test_a_job_that_has_ended_is_reported_before_the_next_one_starts(
    database: Database, workers: Workers
):
    """The next one may block the event loop, or kill the process."""
    for _ in range(100):
        enqueue(database.conn, "long.async", {"seconds": 0.01})
    blocks = enqueue(database.conn, "block", {"how": "file"})
    worker = workers("--slots", "1", handlers=HANDLERS)
    wait_for(lambda: workers.starts(blocks))
    try:
        wait_for(lambda: look.live(database) == 1, 20)
    finally:
        (worker.home / "go").touch()


def test_a_runner_whose_slots_are_all_taken_by_jobs_that_cannot_go_on_is_replaced(
    database: Database, workers: Workers
):
    workers("--slots", "2", handlers=HANDLERS).wait_ready()
    clock = enqueue(database.conn, "clock")
    wait_for(lambda: workers.starts(clock))
    stuck = [enqueue(database.conn, "long.async", {"seconds": 1}) for _ in range(2)]
    wait_for(lambda: all(workers.starts(job) for job in stuck))
    waiting = [enqueue(database.conn, "short") for _ in range(5)]

    wait_for(lambda: all(workers.starts(job) for job in waiting), 90)


@pytest.mark.parametrize("kind", ["close", "channel"])
def test_a_runner_that_cannot_speak_ends_and_what_waits_in_it_is_not_charged(
    database: Database, workers: Workers, kind: str
):
    worker = workers("--slots", "1", handlers=HANDLERS).wait_ready()
    enqueue(database.conn, kind)
    waiting = [enqueue(database.conn, "short") for _ in range(5)]
    wait_for(lambda: all(workers.starts(job) for job in waiting), 60)
    wait_for(lambda: look.live(database) == 0)

    starts = [entry for job in waiting for entry in workers.starts(job)]
    assert [entry.attempt for entry in starts] == [1] * 5
    assert worker.process.poll() is None


def test_a_runner_that_takes_nothing_while_jobs_wait_is_named(
    database: Database, workers: Workers, tmp_path: Path
):
    worker = workers("--slots", "2", handlers=HANDLERS).wait_ready()
    for _ in range(4):  # the second stops the runner that takes the place of the first
        enqueue(database.conn, "block", {"how": "file"})

    said = "its event loop has not run for"
    wait_for(lambda: said in worker.get("/readyz")[1], 60)

    fault = wait_for(lambda: standing.fault(database.conn), 60)  # as `redrive check`
    assert said in fault.text
    (tmp_path / "go").touch()


@pytest.mark.waits
def test_an_import_that_does_not_end_is_logged(
    database: Database, workers: Workers
) -> None:
    """/readyz answered 503, and the log said nothing."""
    assert database.url
    worker = workers(handlers="tests.flow.hanging:jobs")
    said = "the import of tests.flow.hanging:jobs has not ended"
    wait_for(lambda: said in worker.log.read_text(), what="it never said so")
