"""Ways out of a handler: each is recorded as that job's own failure, and the worker survives all of
them.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import enqueue
from tests.flow import look
from tests.flow.handlers import EXITS, KILLERS, SURVIVED
from tests.flow.harness import Workers, wait_for, workers_on
from tests.postgres import Database

RAISING = sorted(EXITS.keys() - KILLERS - SURVIVED)


@pytest.mark.parametrize("kind", ["exit.sync", "exit.async"])
def test_whatever_a_handler_raises_is_a_failure_of_its_job_only(
    database: Database, workers: Workers, kind: str
):
    ids = {way: enqueue(database.conn, kind, {"way": way}) for way in RAISING}
    innocent = [
        enqueue(database.conn, "work.async", {"seconds": 0.01}) for _ in range(20)
    ]

    worker = workers()
    wait_for(lambda: look.live(database) == 0)
    classes = {way: look.dead(database, job).error_class for way, job in ids.items()}

    assert worker.metric("redrive_runner_deaths_total") == 0
    assert set(look.reasons(database)) == set(ids.values())
    said = ("sys-exit", "keyboard-interrupt", "cancelled", "generator-exit", "memory")
    assert {way: classes[way] for way in said} == {
        "sys-exit": "SystemExit",
        "keyboard-interrupt": "KeyboardInterrupt",
        "generator-exit": "GeneratorExit",
        "cancelled": "asyncio.exceptions.CancelledError",
        "memory": "MemoryError",
    }
    assert [len(workers.starts(job)) for job in innocent] == [1] * 20


@pytest.mark.parametrize("kind", ["exit.sync", "exit.async"])
def test_what_a_handler_does_to_its_process_harms_no_other_job(
    database: Database, workers: Workers, kind: str
):
    for way in sorted(SURVIVED):
        enqueue(database.conn, kind, {"way": way})
    # one after another: what they do to the process would also meet each other
    worker = workers("--slots", "1")
    wait_for(lambda: look.live(database) == 0)
    after = [enqueue(database.conn, "work.sync") for _ in range(4)]
    wait_for(lambda: look.live(database) == 0)

    assert look.letters(database) == {}
    assert [len(workers.starts(job)) for job in after] == [1] * 4
    assert worker.process.poll() is None


def test_a_job_that_ends_its_process_is_recorded_whichever_way_it_does(
    database: Database, workers: Workers
):
    ids = {
        way: enqueue(database.conn, "exit.sync", {"way": way}, max_attempts=1)
        for way in sorted(KILLERS)
    }
    worker = workers("--slots", "1")
    wait_for(lambda: len(look.reasons(database)) == len(ids))

    assert {
        way: look.dead(database, job)[:3] for way, job in ids.items()
    } == dict.fromkeys(ids, ("attempts_exhausted", "lost", "RunnerLost"))
    assert [len(workers.starts(job)) for job in ids.values()] == [1] * len(ids)
    assert worker.process.poll() is None
    assert "signal SIGSEGV" in look.dead(database, ids["segfault"]).message


def test_a_job_that_kills_its_process_dies_after_three_and_its_neighbours_all_complete(
    database, workers
):
    poison = [enqueue(database.conn, "exit.poison") for _ in range(3)]
    innocent = [
        enqueue(database.conn, "work.async", {"seconds": 0.02}) for _ in range(150)
    ]
    workers("--slots", "8", "--runners", "2")
    wait_for(lambda: look.live(database) == 0)

    assert look.reasons(database) == dict.fromkeys(poison, "killed_worker")
    assert [look.dead(database, job).losses for job in poison] == [3] * 3
    ledger = workers.ledger()
    ended = {e.job for e in ledger if e.phase == "end"}
    assert ended == set(innocent)
    for job in poison:
        # One beside it can kill their process once it is marked as started, before its first line.
        starts = workers.starts(job)
        assert 1 <= len(starts) <= 3
        beside = {e.job for e in ledger if e.pid == starts[-1].pid} - {job}
        assert beside <= ended, "the last time it had its process for itself"


def test_a_handler_that_cancels_its_own_task_harms_no_other_job(
    database: Database, workers: Workers
):
    odd = enqueue(database.conn, "exit.cancels-itself")
    innocent = [
        enqueue(database.conn, "work.async", {"seconds": 0.3}, max_attempts=1)
        for _ in range(3)
    ]
    worker = workers()
    wait_for(lambda: look.live(database) == 0)

    assert look.letters(database) == {}
    assert [len(workers.starts(job)) for job in (odd, *innocent)] == [1] * 4
    assert worker.metric("redrive_runner_deaths_total") == 0


def test_a_runner_with_tasks_that_refuse_to_end_is_ended_all_the_same(
    database: Database, workers: Workers
):
    enqueue(database.conn, "exit.leaks-tasks")
    worker = workers(redrive_drain_timeout=600)
    wait_for(lambda: look.live(database) == 0)
    status, took = worker.stop()

    assert (status, took < 240) == (0, True)


def test_a_runner_dies_seen_although_a_child_of_a_handler_holds_its_descriptors(
    database, workers
):
    enqueue(database.conn, "exit.orphan")
    worker = workers().wait_ready()
    wait_for(lambda: look.live(database) == 0)
    (runner,) = worker.runners
    import os
    import signal

    os.kill(runner, signal.SIGKILL)
    after = enqueue(database.conn, "work.sync")
    wait_for(
        lambda: workers.starts(after),
        40,  # the child sleeps for 60
        what="the job was handed to a dead runner and never came back",
    )

    assert look.letters(database) == {}


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A control group of 300 MB, of the version that the system has."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, limit = (v1, "memory.limit_in_bytes") if v1.is_dir() else (v2, "memory.max")
    group = root / f"redrive-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text("300000000")
    except OSError as error:
        pytest.skip(f"needs the right to make a control group: {error}")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_a_job_that_runs_out_of_memory_dies_with_the_evidence(
    database: Database, tmp_path: Path, small_cgroup: Path
):
    job = enqueue(database.conn, "exit.balloon")
    innocent = [
        enqueue(database.conn, "work.async", {"seconds": 0.01}) for _ in range(20)
    ]
    confined = ("sh", "-c", f'echo $$ > {small_cgroup}/cgroup.procs && exec "$@"', "sh")
    with workers_on(database.url, tmp_path) as workers:
        running = [workers(under=confined)]

        def is_done() -> bool:
            # The kernel may take the supervisor too: one time in a hundred on a busy
            # machine. Kubernetes then starts the pod again.
            if running[-1].process.poll() is not None:
                running.append(workers(under=confined))
            return look.live(database) == 0

        wait_for(is_done)
        starts = [len(workers.starts(one)) for one in innocent]

    assert look.dead(database, job)[:2] == ("killed_worker", "lost")
    records = database.rows(
        "select detail, message from redrive.failures where job = %s"
        " and detail ? 'oom_kills'",
        job,
    )
    for record, message in records:
        assert "out of memory" in message
        assert record["exit"] == "signal SIGKILL"
        assert record["oom_kills"] == 1
        assert 150_000_000 < record["peak_memory_bytes"] < 400_000_000
    assert len(records) + len(running) - 1 >= 3, "each loss has its evidence"
    assert set(look.reasons(database)) == {job}
    assert max(starts) <= 3, "twice beside it, after which each runs alone"
