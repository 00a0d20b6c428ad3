"""Jobs that run are cancelled, kindly and then hard, and none is lost or doubled for it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.enqueue import enqueue
from redrive.jobs import control
from tests.factories import outcome
from tests.flow.harness import Workers, kill, wait_for
from tests.postgres import Database


def cancel(database: Database, *jobs: int) -> control.Cancelled:
    return control.cancel(database.conn, jobs, why="not wanted", actor="ada")


def ended(database: Database, job: int) -> Callable[[], bool]:
    return lambda: outcome(database.conn, job) != control.LIVE


def audited(database: Database, job: int) -> Callable[[], bool]:
    """Whether its end is on record as cancelled."""
    return lambda: bool(
        database.value(
            "select exists (select from redrive.audit where action = 'end cancel'"
            " and detail -> 'ids' @> to_jsonb(%s::bigint))",
            job,
        )
    )


@pytest.mark.parametrize("kind", ["cancel.async", "cancel.sync"])
def test_a_handler_that_heeds_it_ends_as_cancelled(
    database: Database, workers: Workers, tmp_path: Path, kind: str
) -> None:
    """An asyncio cancellation, or job.cancelled; on_cancelled is told, neighbours run on."""
    worker = workers().wait_ready()
    job = enqueue(database.conn, kind)
    neighbour = enqueue(database.conn, "work.until-file", {"file": "go"})
    wait_for(lambda: workers.starts(job) and workers.starts(neighbour))
    runners = worker.runners

    assert cancel(database, job) == (0, 1)
    wait_for(ended(database, job))
    wait_for(audited(database, job))
    (tmp_path / "go").touch()
    wait_for(ended(database, neighbour))

    assert outcome(database.conn, job) == "cancelled"
    assert [e.phase for e in workers.ledger() if e.job == job] == ["start", "cancelled"]
    assert [e.phase for e in workers.ledger() if e.job == neighbour] == ["start", "end"]
    assert worker.runners == runners
    assert database.value("select count(*) from redrive.dead_letters") == 0


def test_a_handler_that_does_not_is_killed_and_its_neighbour_runs_again(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """Ten seconds after it was told."""
    worker = workers().wait_ready()
    job = enqueue(database.conn, "work.until-file", {"file": "never"})
    neighbour = enqueue(database.conn, "work.until-file", {"file": "go"})
    wait_for(lambda: workers.starts(job) and workers.starts(neighbour))

    cancel(database, job)
    wait_for(ended(database, job))
    (tmp_path / "go").touch()
    wait_for(ended(database, neighbour))

    assert outcome(database.conn, job) == "cancelled"
    assert [e.attempt for e in workers.starts(neighbour)] == [1, 1], (
        "its attempt was refunded"
    )
    assert len(workers.starts(job)) == 1
    assert outcome(database.conn, neighbour) == "succeeded"
    assert worker.process.poll() is None


def test_what_is_fetched_and_has_not_begun_never_begins(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """It keeps its place on the runner's list, with which the supervisor counts."""
    workers(redrive_slots=1).wait_ready()
    first = enqueue(database.conn, "work.until-file", {"file": "go"})
    wait_for(lambda: workers.starts(first))
    jobs = [enqueue(database.conn, "cancel.sync") for _ in range(3)]
    cancelled = cancel(database, *jobs)
    assert sum(cancelled) == 3
    (tmp_path / "go").touch()
    for job in (first, *jobs):
        wait_for(ended(database, job))

    assert {outcome(database.conn, job) for job in jobs} == {"cancelled"}
    assert outcome(database.conn, first) == "succeeded"


def test_jobs_of_a_killed_worker_that_were_to_be_cancelled_do_not_run_again(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """Kill -9 between the asking and the telling; its other jobs run again elsewhere."""
    worker = workers().wait_ready()
    jobs = [enqueue(database.conn, "work.until-file", {"file": "go"}) for _ in range(4)]
    wait_for(lambda: all(workers.starts(job) for job in jobs))
    cancel(database, *jobs[:2])
    kill(database, worker)
    (tmp_path / "go").touch()
    workers().wait_ready()
    for job in jobs:
        wait_for(ended(database, job))

    outcomes = [outcome(database.conn, job) for job in jobs]
    assert outcomes[2:] == ["succeeded", "succeeded"]
    assert [e.phase for e in workers.ledger()].count("end") == outcomes.count(
        "succeeded"
    )
    ended_well = {e.job for e in workers.ledger() if e.phase == "end"}
    assert ended_well == {
        job for job, o in zip(jobs, outcomes, strict=True) if o == "succeeded"
    }
    assert database.value("select count(*) from redrive.dead_letters") == 0
