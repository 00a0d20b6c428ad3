"""Tools for users' own tests: run handlers, see enqueued jobs, and start a Postgres.

def test_a_declined_card_is_given_up() -> None:
    outcome = run(jobs, "invoice.charge", {"number": 17, "amount": "9.90"})

    assert (outcome.outcome, outcome.reason) == ("dead", "gave_up")
"""

from redrive.testing.attempt import Outcome, run, run_async
from redrive.testing.due import run_enqueued, run_enqueued_async
from redrive.testing.enqueued import assert_enqueued, enqueued
from redrive.testing.past import Past
from redrive.testing.schedules import run_scheduled, slots
from redrive.testing.server import postgres

__all__ = [
    "Outcome",
    "Past",
    "assert_enqueued",
    "enqueued",
    "postgres",
    "run",
    "run_async",
    "run_enqueued",
    "run_enqueued_async",
    "run_scheduled",
    "slots",
]
