"""Batches and unique jobs with real workers: a kill -9 loses no callback and doubles none."""

import json
from pathlib import Path
from typing import Any

from redrive.batches import close_batch, open_batch
from redrive.enqueue import enqueue
from tests.factories import redrive
from tests.flow.harness import Workers, kill, wait_for
from tests.postgres import Database

REPORT: Any = {"kind": "work.report"}


def reports(home: Path) -> list[dict[str, Any]]:
    """What each callback was told of its batch."""
    return [
        json.loads(path.read_text())["headers"]["batch"]
        for path in sorted(home.glob("report-*"))
    ]


def is_over(database: Database) -> bool:
    return database.value("select bool_and(over_at is not null) from redrive.batches")


def test_a_killed_worker_and_a_dead_letter_cost_no_callback(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """kill -9 in the middle of a batch, one job of it dies, is redriven and succeeds."""
    worker = workers().wait_ready()
    batch = open_batch(database.conn, on_success=REPORT, on_end=REPORT)
    held = [
        enqueue(database.conn, "work.until-file", {"file": "go"}, batch=batch)
        for _ in range(3)
    ]
    doomed = enqueue(
        database.conn, "fail.until", {"attempt": 2}, batch=batch, max_attempts=1
    )
    close_batch(database.conn, batch)
    wait_for(lambda: all(workers.starts(job) for job in (*held, doomed)))
    kill(database, worker)
    (tmp_path / "go").touch()
    workers().wait_ready()
    wait_for(lambda: len(reports(tmp_path)) == 1)

    (ended,) = reports(tmp_path)
    assert ended == {"id": batch, "total": 4, "succeeded": 3, "dead": 1, "cancelled": 0}
    database.rows("update redrive.dead_letters set payload = '{\"attempt\": 1}'")
    assert redrive(database.conn, [doomed]) == {doomed: None}
    wait_for(lambda: is_over(database))
    wait_for(lambda: len(reports(tmp_path)) == 2)
    assert reports(tmp_path)[0] | {"succeeded": 3, "dead": 1} == ended
    assert sorted(told["succeeded"] for told in reports(tmp_path)) == [3, 4]
    wait_for(lambda: database.value("select count(*) from redrive.jobs") == 0)


def test_a_worker_that_stops_when_all_is_done_runs_the_callback(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    batch = open_batch(database.conn, on_success=REPORT)
    for _ in range(20):
        enqueue(database.conn, "work.sync", batch=batch)
    close_batch(database.conn, batch)
    worker = workers("--until-empty")

    assert worker.wait() == 0
    assert [told["succeeded"] for told in reports(tmp_path)] == [20]


def test_a_debounced_job_whose_worker_is_killed_runs_with_what_came_last(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """The one that ran comes back, the one in its wake waits beside it: neither is lost."""

    def debounce(n: int, **options: Any) -> int:
        payload = {"file": "go", "n": n}
        return enqueue(
            database.conn,
            "work.until-file",
            payload,
            unique_for=3600,
            unique_by=["file"],
            on_conflict="replace",
            **options,
        )

    worker = workers().wait_ready()
    first = debounce(1)
    wait_for(lambda: bool(workers.starts(first)))
    for n in (2, 3):
        debounce(n, delay=1)
    kill(database, worker)
    assert database.column(
        "select (payload ->> 'n')::int from redrive.jobs order by id"
    ) == [1, 3]
    (tmp_path / "go").touch()
    workers().wait_ready()
    wait_for(lambda: database.value("select count(*) from redrive.jobs") == 0)

    phases = [(entry.job == first, entry.phase) for entry in workers.ledger()]
    assert phases.count((True, "end")) == 1
    assert phases.count((False, "end")) == 1
