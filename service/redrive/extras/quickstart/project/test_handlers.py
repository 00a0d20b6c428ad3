"""The handlers, as a runner would call them: no worker, no database."""

import pytest
from redrive.testing import run

from handlers import jobs


def test_an_order_is_booked(capfd: pytest.CaptureFixture[str]) -> None:
    outcome = run(
        jobs, "order.book", {"number": 1, "amount": "49.90", "currency": "EUR"}
    )

    assert outcome.outcome == "completed"
    assert "order 1: 4990 cents" in capfd.readouterr().out


def test_an_order_without_an_amount_is_a_dead_letter_at_once() -> None:
    outcome = run(jobs, "order.book", {"number": 2, "currency": "EUR"})

    assert (outcome.outcome, outcome.reason) == ("dead", "invalid_payload")
