"""Progress, checkpoints and results, by real workers, through kills and restarts."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import Ended, Handlers, InvalidJob, Job, wait
from redrive.enqueue import enqueue
from redrive.jobs.show import show
from redrive.testing import run
from tests.factories import outcome, redrive
from tests.flow.harness import Workers, kill, wait_for
from tests.postgres import Database

LONG = {"handlers": "tests.flow.long_work:jobs"}


def phases(workers: Workers, job: int) -> list[str]:
    return [entry.phase for entry in workers.ledger() if entry.job == job]


def is_over(database: Database, job: int) -> Callable[[], bool]:
    return lambda: outcome(database.conn, job) != "live"


def notes(database: Database) -> list[int]:
    """How many checkpoints and progresses there are."""
    return list(
        database.row(
            "select (select count(*) from redrive.checkpoints),"
            " (select count(*) from redrive.progress)"
        )
    )


@pytest.mark.parametrize("is_dead", [False, True], ids=["retried", "died"])
def test_the_next_attempt_goes_on_from_the_checkpoint(
    database: Database, workers: Workers, is_dead: bool
) -> None:
    """After a retry, and after the dead letters and a redrive; with success it is gone."""
    job = enqueue(database.conn, "long.sync", {"fail_at": 2, "dies": is_dead})
    workers.run(**LONG)
    if is_dead:
        assert outcome(database.conn, job) == "dead"
        shown = show(database.conn, job) or {}
        assert shown["checkpoint"]["data"] == {"page": 2, "password": "[redacted]"}
        assert redrive(database.conn, [job]) == {job: None}
        workers.run(**LONG)

    assert phases(workers, job) == ["from-0", "page-1", "page-2", "from-2", "page-3"]
    assert outcome(database.conn, job) == "succeeded"
    assert notes(database) == [0, 0]


def test_kill_9_between_a_checkpoint_and_the_end_loses_nothing_of_it(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """Its worker and its runners die; the worker that rescues the job begins where it was."""
    worker = workers(**LONG).wait_ready()
    job = enqueue(database.conn, "long.sync", {"wait_at": 2})
    wait_for(lambda: "page-2" in phases(workers, job))
    kill(database, worker)
    (tmp_path / "go").touch()
    workers(**LONG)
    wait_for(is_over(database, job))

    assert phases(workers, job) == ["from-0", "page-1", "page-2", "from-2", "page-3"]
    assert outcome(database.conn, job) == "succeeded"
    assert notes(database) == [0, 0]


def test_a_runner_that_dies_after_await_left_its_checkpoint(
    database: Database, workers: Workers
) -> None:
    job = enqueue(database.conn, "long.async", {"die_at": 2})
    workers.run(**LONG)

    assert phases(workers, job) == ["from-0", "from-2"]
    assert wait(database.conn, job, 0) == Ended("succeeded", {"pages": 3, "from": 2})


def test_a_stale_workers_checkpoint_is_refused_and_its_handler_stops(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """The job was taken back while it ran: StaleClaim, and what the next one said stands."""
    worker = workers(**LONG).wait_ready()
    job = enqueue(database.conn, "long.stale")
    wait_for(lambda: phases(workers, job) == ["start"])
    # as a rescue does that declared it lost, but before it could hear of that
    database.rows(
        "with k as (delete from redrive.claims returning ids)"
        " update redrive.jobs set deliveries = deliveries + 1, run_at = clock_timestamp()"
    )
    (tmp_path / "go-1").touch()
    wait_for(lambda: "stale" in phases(workers, job))
    assert database.value("select count(*) from redrive.checkpoints") == 0
    (tmp_path / "go-2").touch()
    wait_for(is_over(database, job))

    assert sorted(phases(workers, job)) == ["kept", "stale", "start", "start"]
    assert worker.process.poll() is None


def test_a_checkpoint_waits_for_a_database_that_is_away(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """Its connection is cut: the handler learns so when the next one has committed it."""
    workers(**LONG).wait_ready()
    job = enqueue(database.conn, "long.stale")
    wait_for(lambda: phases(workers, job) == ["start"])
    database.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name ~ '^redrive worker' and datname = current_database()"
    )
    (tmp_path / "go-1").touch()
    wait_for(is_over(database, job))

    assert phases(workers, job) == ["start", "kept"]
    assert outcome(database.conn, job) == "succeeded"


def test_of_many_progresses_the_last_one_is_shown(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """A hundred thousand in a row: what is passed on is one a second."""
    workers(**LONG).wait_ready()
    job = enqueue(database.conn, "long.fast", {"times": 100_000})
    wait_for(
        lambda: (
            ((show(database.conn, job) or {})["progress"] or {}).get("text") == "last"
        )
    )
    shown = (show(database.conn, job) or {})["progress"]
    (tmp_path / "go").touch()
    wait_for(is_over(database, job))

    assert (shown["share"], shown["delivery"]) == (1.0, 1)
    assert notes(database) == [0, 0]


# Results


def test_what_a_handler_returns_is_for_whoever_waits(
    database: Database, workers: Workers
) -> None:
    """Any JSON and models; nothing for what returns None, and for how long the handler says."""
    values: list[Any] = [{"a": [1, None]}, "text", 0, False, [], 1.5, None]
    ids = [
        enqueue(database.conn, "returns.value", {"value": value}) for value in values
    ]
    model = enqueue(database.conn, "returns.model")
    none = enqueue(database.conn, "returns.nothing-kept")
    workers.run(**LONG)

    *kept, nothing = [wait(database.conn, job, 0) for job in ids]
    assert kept == [Ended("succeeded", value) for value in values[:-1]]
    assert nothing == Ended("unknown")
    assert wait(database.conn, model, 0).result == {
        "lines": 3,
        "token": "not for your eyes",
    }
    assert wait(database.conn, none, 0) == Ended("unknown")
    assert database.rows(
        "select job, round(extract(epoch from keep_until - now()) / 3600) from redrive.results"
        " order by job"
    ) == [(job, 1) for job in ids[:-1]] + [(model, 24)]


def test_who_waits_from_before_its_end_knows_that_a_job_has_succeeded(
    database: Database, workers: Workers
) -> None:
    """It returns nothing, and nothing is left of it: a later reader cannot know."""
    job = enqueue(database.conn, "returns.value", {"value": None})
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(database.url, autocommit=True) as conn,
    ):
        waiting = pool.submit(wait, conn, job, 300)
        looked = "select count(*) from pg_stat_activity where query like '%redrive.outcome_v1%'"
        wait_for(lambda: database.value(looked) > 1)
        workers.run(**LONG)

        assert waiting.result() == Ended("succeeded")
    assert wait(database.conn, job, 0) == Ended("unknown")


@pytest.mark.parametrize("kind", ["returns.object", "returns.large"])
def test_what_cannot_be_kept_does_not_fail_its_job(
    database: Database, workers: Workers, kind: str
) -> None:
    """The work is done; a warning names the kind, and nothing of what was returned."""
    job = enqueue(database.conn, kind)
    worker = workers.run(**LONG)

    assert outcome(database.conn, job) == "succeeded"
    said = f"the result of a job is not kept: {kind}: "
    assert sum(e["event"].startswith(said) for e in worker.events()) == 1
    assert "canary" not in worker.log.read_text()


def test_a_handlers_own_cancel_is_known_to_whoever_waits(
    database: Database, workers: Workers
) -> None:
    """`job wait` said succeeded of a job whose handler had raised Cancel."""
    job = enqueue(database.conn, "cancels.itself")
    workers.run(**LONG)

    assert wait(database.conn, job, 0) == Ended("cancelled")
    assert notes(database) == [0, 0]


def test_one_waits_on_an_async_connection_while_others_work(
    database: Database, workers: Workers
) -> None:
    workers(**LONG).wait_ready()

    async def waiting() -> Ended:
        async with await psycopg.AsyncConnection.connect(
            database.url, autocommit=True
        ) as conn:
            job = await enqueue(conn, "returns.value", {"value": 5})
            return await wait(conn, job, 300)

    assert asyncio.run(waiting()) == Ended("succeeded", 5)
    assert wait(database.conn, enqueue(database.conn, "a.b"), 0.05) == Ended("live")
    with pytest.raises(LookupError, match="there is no job 999"):
        wait(database.conn, 999, 0)


def test_with_keys_nothing_of_it_is_in_the_clear(
    database: Database, workers: Workers, keys: Callable[..., Path], tmp_path: Path
) -> None:
    """Checkpoint, progress and result are sealed, and opened for the next attempt and the owner."""
    path = str(keys("new"))
    workers(redrive_encryption_keys_file=path, **LONG).wait_ready()
    job = enqueue(database.conn, "long.sync", {"fail_at": 1, "wait_at": 2})
    returning = enqueue(
        database.conn, "returns.value", {"value": "result-in-the-clear"}
    )
    wait_for(lambda: "page-2" in phases(workers, job))
    wait_for(lambda: (show(database.conn, job) or {})["progress"])
    wait_for(is_over(database, returning))
    stored = "".join(
        database.column(
            "select row_to_json(c)::text from redrive.checkpoints c union all"
            " select row_to_json(p)::text from redrive.progress p union all"
            " select row_to_json(r)::text from redrive.results r"
        )
    )
    shown = show(database.conn, job) or {}
    (tmp_path / "go").touch()
    wait_for(is_over(database, job))

    assert stored.count("$redrive") == 3
    assert not any(
        text in stored for text in ("page", "hunter2", "result-in-the-clear")
    )
    assert shown["checkpoint"]["data"]["page"] == 2
    assert shown["progress"]["text"].startswith("page ")
    assert phases(workers, job) == ["from-0", "page-1", "from-1", "page-2", "page-3"]
    assert wait(database.conn, returning, 60).result == "result-in-the-clear"


def test_in_a_users_own_test_a_checkpoint_is_kept_at_once() -> None:
    handlers = Handlers()

    @handlers.handle("plain")
    def _plain(_: dict[str, Any], job: Job) -> None:
        job.checkpoint({"a": job.last_checkpoint})
        job.progress(2, "beyond")

    @handlers.handle("async")
    async def _async(_: dict[str, Any], job: Job) -> None:
        await job.checkpoint({"a": 1})
        with pytest.raises(InvalidJob, match="bytes, at most 65536"):
            await job.checkpoint({"a": "x" * 65_536})
        with pytest.raises(ValueError, match="must be a number"):
            job.progress(float("nan"))

    assert run(handlers, "plain").outcome == "completed"
    assert run(handlers, "async").outcome == "completed"
