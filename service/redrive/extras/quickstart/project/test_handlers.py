"""The handlers, as a runner would call them: no worker, and a Postgres for what books."""

from collections.abc import Iterator
from contextlib import nullcontext

import psycopg
import pytest
from redrive.testing import assert_enqueued, postgres, run

import handlers
from handlers import jobs

PAYMENT = {
    "order": "1",
    "customer": "Ada Lovelace",
    "email": "ada@example.com",
    "amount": "49.90",
    "currency": "EUR",
}


@pytest.fixture
def conn(monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """The connection that the handlers get."""
    with postgres() as url, psycopg.connect(url) as conn:
        conn.execute(handlers.LEDGER)
        monkeypatch.setattr(handlers, "connect", lambda: nullcontext(conn))
        yield conn


def test_a_payment_is_booked_and_its_receipt_will_follow(
    conn: psycopg.Connection,
) -> None:
    outcome = run(jobs, "payment.book", PAYMENT, conn=conn)

    assert outcome.outcome == "completed"
    assert_enqueued(conn, "receipt.deliver", {"order": "1", "amount": "49.90"})
    assert conn.execute("select count(*) from ledger").fetchone() == (1,)


def test_a_payment_without_an_amount_is_a_dead_letter_at_once() -> None:
    outcome = run(jobs, "payment.book", PAYMENT | {"amount": ""})

    assert (outcome.outcome, outcome.reason) == ("dead", "invalid_payload")
