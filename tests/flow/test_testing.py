"""What users test their handlers with: redrive.testing."""

import asyncio
import time

import pytest
from pydantic import BaseModel

from redrive import Cancel, GiveUp, Handlers, InvalidJob, Job, Policy, Retry, Snooze, enqueue
from redrive.testing import Outcome, assert_enqueued, enqueued, run
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


@jobs.handle("slow", policy=Policy(timeout=0.1))
async def slow(_: dict[str, str]) -> None:
    await asyncio.sleep(30)


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
    assert run(jobs, "plain", {"end": "outage"}, attempt=5).reason == "attempts_exhausted"
    assert (
        run(jobs, "plain", {"end": "outage"}, attempt=2, max_attempts=2).reason
        == "attempts_exhausted"
    )


def test_the_payload_type_and_side_effects_are_those_of_the_handler() -> None:
    assert run(jobs, "typed", {"number": 7}) == Outcome(
        "completed", side_effects=[("charge created", {"number": 7, "token": "[redacted]"})]
    )
    assert run(jobs, "typed", {"number": "seven"}).reason == "invalid_payload"


def test_a_timeout_is_hard() -> None:
    began = time.monotonic()

    assert run(jobs, "slow").error_class == "DeadlineExceeded"
    assert time.monotonic() - began < 5


def test_what_cannot_be_enqueued_cannot_be_tried_either() -> None:
    with pytest.raises(InvalidJob, match=r"payload\.a: float is|payload\.a: number must be finite"):
        run(jobs, "plain", {"a": float("nan")})
    with pytest.raises(LookupError, match="no handler is registered for 'other'"):
        run(jobs, "other")


def test_what_was_enqueued_is_seen_in_the_same_transaction(database: Database) -> None:
    with database.conn.transaction():
        enqueue(database.conn, "mail", {"to": "a", "n": 1}, queue="slow")
        enqueue(database.conn, "mail", {"to": "b"})

        assert assert_enqueued(database.conn, "mail", {"to": "a"})["queue"] == "slow"
        assert assert_enqueued(database.conn, "mail", queue="default")["payload"] == {"to": "b"}
        assert [job["kind"] for job in enqueued(database.conn)] == ["mail", "mail"]
        with pytest.raises(AssertionError, match="2 jobs of kind 'mail'"):
            assert_enqueued(database.conn, "mail")
        with pytest.raises(AssertionError, match="0 jobs of kind 'mail'"):
            assert_enqueued(database.conn, "mail", {"to": "c"})
