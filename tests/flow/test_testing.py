"""redrive.testing, the tools for tests of handlers."""

import asyncio
import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from redrive import (
    Cancel,
    GiveUp,
    Handlers,
    InvalidJob,
    Job,
    Policy,
    Retry,
    Snooze,
    enqueue,
)
from redrive.errors import SettingsError
from redrive.testing import (
    Outcome,
    Past,
    assert_enqueued,
    enqueued,
    postgres,
    run,
    run_async,
    run_enqueued,
    run_enqueued_async,
)
from tests.postgres import Database

jobs = Handlers()


class Invoice(BaseModel):
    number: int


@jobs.handle("typed")
async def typed(invoice: Invoice, job: Job) -> None:
    job.side_effect("charge created", number=invoice.number, token="t")


@jobs.handle("plain")
def plain(payload: dict[str, str]) -> None:
    errors = {
        "retry": Retry(after=60),
        "snooze": Snooze(30),
        "give up": GiveUp("no"),
        "cancel": Cancel("no longer wanted"),
        "bug": TypeError("x"),
        "outage": ConnectionError("refused"),
    }
    if payload["end"] in errors:
        raise errors[payload["end"]]


@jobs.handle("elsewhere", queue="far")
def elsewhere(_: dict[str, str], job: Job) -> None:
    job.side_effect("queue", name=job.queue)


@jobs.handle("slow", policy=Policy(timeout=0.1))
async def slow(_: dict[str, str]) -> None:
    await asyncio.sleep(600)


@pytest.mark.parametrize(
    ("end", "outcome", "reason"),
    [
        ("well", "completed", None),
        ("retry", "retried", None),
        ("snooze", "released", "snoozed"),
        ("give up", "dead", "gave_up"),
        ("cancel", "cancelled", None),
        ("bug", "dead", "not_retryable"),
        ("outage", "retried", None),
    ],
)
def test_an_attempt_ends_as_it_would_in_a_worker(
    end: str, outcome: str, reason: str | None
) -> None:
    found = run(jobs, "plain", {"end": end})

    assert (found.outcome, found.reason) == (outcome, reason)


def test_the_last_attempt_dies_of_what_the_first_would_retry() -> None:
    assert (
        run(jobs, "plain", {"end": "outage"}, attempt=100).reason
        == "attempts_exhausted"
    )
    assert (
        run(jobs, "plain", {"end": "outage"}, attempt=2, max_attempts=2).reason
        == "attempts_exhausted"
    )


def test_the_payload_type_and_side_effects_are_those_of_the_handler() -> None:
    assert run(jobs, "typed", {"number": 7}) == Outcome(
        "completed",
        side_effects=[("charge created", {"number": 7, "token": "[redacted]"})],
    )
    assert run(jobs, "typed", {"number": "seven"}).reason == "invalid_payload"


def test_a_timeout_is_hard() -> None:
    began = time.monotonic()

    assert run(jobs, "slow").error_class == "DeadlineExceeded"
    assert time.monotonic() - began < 300


def test_what_cannot_be_enqueued_cannot_be_tried_either() -> None:
    with pytest.raises(
        InvalidJob, match=r"payload\.a: float is|payload\.a: number must be finite"
    ):
        run(jobs, "plain", {"a": float("nan")})
    with pytest.raises(LookupError, match="no handler is registered for 'other'"):
        run(jobs, "other")


def test_a_job_is_in_the_queue_of_its_handler():
    assert run(jobs, "elsewhere").side_effects == [("queue", {"name": "far"})]
    assert run(jobs, "elsewhere", queue="near").side_effects == [
        ("queue", {"name": "near"})
    ]


def test_within_an_event_loop_the_async_twin_is_named_and_works(database: Database):
    async def act() -> Outcome:
        with pytest.raises(RuntimeError, match=r"await run_async\(\.\.\.\)"):
            run(jobs, "typed", {"number": 1})
        with pytest.raises(RuntimeError, match=r"await run_enqueued_async\(\.\.\.\)"):
            run_enqueued(jobs, database.conn)
        return await run_async(jobs, "typed", {"number": 1})

    assert asyncio.run(act()).outcome == "completed"


ledger = Handlers()
using: dict[str, Any] = {}
"""What the application would take from its pool."""


@ledger.handle("book", queue="books")
def book(payload: dict[str, Any], job: Job) -> None:
    conn = using["conn"]
    with contextlib.suppress(ZeroDivisionError), conn.transaction():
        conn.execute("insert into booked values (%s)", (payload["n"],))
        receipt.enqueue(conn, payload)
        job.complete(conn)
        if payload.get("undo"):
            raise ZeroDivisionError
    if payload.get("fail"):
        raise ValueError(payload["fail"])


@ledger.handle("receipt", queue="mail")
def receipt(_: dict[str, Any]) -> None: ...


@ledger.handle("book.async")
async def book_async(payload: dict[str, Any], job: Job) -> None:
    conn = using["conn"]
    await receipt.enqueue(conn, payload)
    await job.complete(conn)


@ledger.handle("remind")
def remind(payload: dict[str, Any]) -> None:
    if payload["left"]:
        with using["conn"].cursor() as cursor:
            remind.enqueue(
                cursor.connection,
                {"left": payload["left"] - 1},
                run_at=datetime.now(UTC) + timedelta(days=9 - payload["left"]),
            )


@ledger.handle("again")
def again(_: dict[str, Any]) -> None:
    again.enqueue(using["conn"], {})


@pytest.fixture
def undone(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection whose transaction is rolled back, like a user's fixture."""
    database.conn.execute("create table booked (n int)")
    with psycopg.connect(database.url) as conn:
        using["conn"] = conn
        yield conn
        conn.rollback()
    assert database.rows("select from booked") == []
    assert database.rows("select from redrive.jobs") == []
    assert database.rows("select from redrive.workers") == []


def test_a_handler_that_completes_its_job_is_tested_in_a_transaction_that_is_rolled_back(
    undone: psycopg.Connection[Any],
):
    outcome = run(ledger, "book", {"n": 7}, conn=undone, idempotency_key="k")

    assert outcome == Outcome("completed")
    assert undone.execute("select n from booked").fetchall() == [(7,)]
    assert assert_enqueued(undone, "receipt", {"n": 7})["queue"] == "mail"
    assert enqueued(undone, "book") == []
    with pytest.raises(LookupError, match="has ended already"):
        run(ledger, "book", {"n": 7}, conn=undone, idempotency_key="k")


def test_what_a_handler_rolled_back_is_not_completed(undone: psycopg.Connection[Any]):
    outcome = run(ledger, "book", {"n": 7, "undo": True}, conn=undone)

    assert (outcome.outcome, outcome.error_class) == ("retried", "NotCommitted")
    assert undone.execute("select n from booked").fetchall() == []
    assert enqueued(undone, "receipt") == []
    assert [job["queue"] for job in enqueued(undone, "book")] == ["books"]


def test_what_a_handler_raises_after_it_has_completed_its_job_changes_nothing(
    undone: psycopg.Connection[Any],
):
    assert run(ledger, "book", {"n": 7, "fail": "late"}, conn=undone) == Outcome(
        "completed"
    )


def test_without_the_connection_no_job_is_there_to_complete(
    undone: psycopg.Connection[Any],
):
    assert run(ledger, "book", {"n": 7}).error_class == "redrive.errors.StaleClaim"


def url_of(database: Database, scheme: str = "postgresql") -> str:
    of = conninfo_to_dict(database.url)
    return f"{scheme}://{of['user']}@{of['host']}:{of['port']}/{of['dbname']}"


def test_every_connection_will_do(database: Database):
    async def on(conn: Any) -> None:
        using["conn"] = conn
        await enqueue(conn, "book.async", {"n": 2})
        assert await run_async(ledger, "book.async", {"n": 1}, conn=conn) == Outcome(
            "completed"
        )
        assert (await assert_enqueued(conn, "receipt", {"n": 1}))[
            "run_at"
        ] <= datetime.now(UTC)
        ended = await run_enqueued_async(ledger, conn)
        assert [outcome.outcome for outcome in ended.values()] == ["completed"] * 3
        assert await enqueued(conn) == []

    async def act() -> None:
        async with await psycopg.AsyncConnection.connect(database.url) as conn:
            await on(conn)
        engine = create_async_engine(url_of(database, "postgresql+psycopg"))
        async with engine.begin() as conn:
            await on(conn)
        await engine.dispose()
        conn = await asyncpg.connect(url_of(database))
        async with conn.transaction():
            await on(conn)
        await conn.close()

    asyncio.run(act())


def test_a_session_on_a_rolled_back_connection(database: Database):
    kept = Handlers()

    @kept.handle("mark", queue="marks")
    def mark(payload: dict[str, Any], job: Job) -> None:
        with Session(
            using["conn"], join_transaction_mode="create_savepoint"
        ) as session:
            session.execute(text("insert into booked values (:n)"), payload)
            job.complete(session)
            session.commit()

    engine = create_engine(url_of(database, "postgresql+psycopg"))
    database.conn.execute("create table booked (n int)")
    conn: Connection
    with engine.connect() as conn, conn.begin() as transaction:
        using["conn"] = conn
        mark.enqueue(conn, {"n": 1})
        ended = run_enqueued(kept, conn)
        assert list(ended.values()) == [Outcome("completed")]
        assert run(kept, "mark", {"n": 2}, conn=conn) == Outcome("completed")
        assert conn.execute(
            text("select n from booked order by n")
        ).scalars().all() == [1, 2]
        transaction.rollback()
    engine.dispose()

    assert database.rows("select from booked") == []


def test_jobs_of_the_future_run_when_one_looks_ahead(undone: psycopg.Connection[Any]):
    first = remind.enqueue(
        undone, {"left": 2}, run_at=datetime.now(UTC) + timedelta(days=1)
    )
    enqueue(undone, "elsewhere.handled", {})
    parked = [remind.enqueue(undone, {"left": 0}, ordering_key="k") for _ in range(2)]

    assert enqueued(undone)[-1]["run_at"] is None
    assert list(run_enqueued(ledger, undone)) == parked
    assert list(run_enqueued(ledger, undone, ahead=timedelta(days=2))) == [first]
    assert [job["payload"] for job in enqueued(undone, "remind")] == [{"left": 1}]
    assert len(run_enqueued(ledger, undone, ahead=timedelta(days=30))) == 2
    assert [job["kind"] for job in enqueued(undone)] == ["elsewhere.handled"]


def test_a_job_that_fails_stays_and_is_not_tried_twice(undone: psycopg.Connection[Any]):
    failing = enqueue(undone, "book", {"n": "none"})
    late = receipt.enqueue(
        undone, {}, expires_in=60, run_at=datetime.now(UTC) + timedelta(minutes=5)
    )

    ended = run_enqueued(ledger, undone, ahead=600)

    assert (ended[failing].outcome, ended[failing].error_class) == (
        "dead",
        "psycopg.errors.InvalidTextRepresentation",
    )
    assert ended[late].reason == "expired"
    assert [job["id"] for job in enqueued(undone)] == [failing, late]
    assert run_enqueued(ledger, undone, ahead=600) == {}


def test_jobs_that_enqueue_each_other_for_ever_are_an_error(
    undone: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("redrive.testing.due.MOST", 5)
    again.enqueue(undone, {})

    with pytest.raises(RuntimeError, match="5 jobs have run, and there is one more"):
        run_enqueued(ledger, undone)


def test_a_postgres_of_ones_own_has_the_schema_and_goes_with_its_block():
    with postgres() as url:
        with psycopg.connect(url) as conn:
            enqueue(conn, "mail", {"to": "a"})
            data = conn.execute("show data_directory").fetchone()
        with psycopg.connect(url) as conn:
            assert [job["kind"] for job in enqueued(conn)] == ["mail"]

    assert data is not None
    assert not Path(data[0]).exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_a_postgres_of_ones_own_does_not_outlive_a_process_that_is_killed():
    """A run of tests that CI kills leaves no server behind."""
    program = (
        "import psycopg, time, redrive.testing as t\n"
        "with t.postgres() as url:\n"
        "    print(url, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        with psycopg.connect(url, autocommit=True) as conn:
            process.kill()
            with pytest.raises(psycopg.OperationalError):
                conn.execute("select pg_sleep(60)")

    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_what_was_enqueued_is_seen_in_the_same_transaction(database: Database) -> None:
    with database.conn.transaction():
        enqueue(database.conn, "mail", {"to": "a", "n": 1}, queue="slow")
        enqueue(database.conn, "mail", {"to": "b"})

        assert assert_enqueued(database.conn, "mail", {"to": "a"})["queue"] == "slow"
        assert assert_enqueued(database.conn, "mail", queue="default")["payload"] == {
            "to": "b"
        }
        assert [job["kind"] for job in enqueued(database.conn)] == ["mail", "mail"]
        with pytest.raises(AssertionError, match="2 jobs of kind 'mail'"):
            assert_enqueued(database.conn, "mail")
        with pytest.raises(AssertionError, match="0 jobs of kind 'mail'"):
            assert_enqueued(database.conn, "mail", {"to": "c"})


def test_an_attempt_of_the_past_is_as_it_was() -> None:
    past_jobs, seen = Handlers(), list[Any]()

    @past_jobs.handle("past")
    def look(payload: Any, job: Job) -> None:
        seen.append((payload, job.attempt, job.headers, job.last_checkpoint))
        seen.append((datetime.now(UTC), random.random(), job.random.random()))

    at = datetime(2024, 2, 29, 12, tzinfo=UTC)
    past = Past(at, "17-3", 3, {"locale": "de", "version": 1}, {"page": 4})
    state = random.getstate()
    for _ in range(2):
        assert run(past_jobs, "past", {"n": 1}, past=past).outcome == "completed"

    headers = {"locale": "de", "version": 1}
    assert seen[0] == seen[2] == ({"n": 1}, 3, headers, {"page": 4})
    assert all(at <= found[0] < at + timedelta(hours=1) for found in seen[1::2])
    known = random.Random("17-3").random(), random.Random("17-3").random()
    assert seen[1][1:] == seen[3][1:] == known
    assert random.getstate() == state
    assert datetime.now(UTC) > at + timedelta(days=1)


def test_an_old_payload_of_the_past_is_upgraded() -> None:
    past_jobs, seen = Handlers(), list[Any]()
    upgrade = {1: lambda old: {"n": old["number"]}}

    @past_jobs.handle("past", version=2, upgrade=upgrade)
    def look(payload: Any) -> None:
        seen.append(payload)

    run(past_jobs, "past", {"number": 1}, past=Past())
    run(past_jobs, "past", {"n": 2}, past=Past(headers={"version": 2}))

    assert seen == [{"n": 1}, {"n": 2}]


def test_without_its_extra_the_clock_cannot_be_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    past = Past(datetime.now(UTC))
    with pytest.raises(SettingsError, match="pip install 'redrive\\[replay\\]'"):
        run(jobs, "plain", {}, past=past)
