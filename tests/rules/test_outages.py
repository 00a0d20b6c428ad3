"""Jobs survive an outage of their provider; the tables of the docs are simulated."""

from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import Policy
from redrive.rules.model import Category
from tests.rules.outages import OUTAGES, long_table, redrive, short_table, simulate

ROOT = Path(__file__).parents[2]
PATIENT = redrive(Policy(), Category.TRANSIENT)


@pytest.mark.parametrize("outage", OUTAGES)
def test_no_job_dies_of_an_outage_of_a_day(outage: str):
    seconds = OUTAGES[outage]

    ended = simulate(PATIENT, seconds)
    assert ended.dead == 0
    assert ended.last <= min(max(2.2 * seconds, 120), 3600)


def test_attempts_that_cost_a_slot_are_made_for_hours_and_unknown_failures_for_minutes():
    costly = redrive(Policy(), Category.LOST)
    unknown = redrive(Policy(), Category.OTHER)

    assert [simulate(costly, OUTAGES[name]).dead for name in ("1 h", "6 h")] == [0, 1]
    assert [simulate(unknown, OUTAGES[name]).dead for name in ("75 s", "10 min")] == [
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("page", "table"), [("README.md", short_table), ("docs/failures.md", long_table)]
)
def test_the_tables_of_the_docs_are_those_of_the_simulation(
    page: str, table: Callable[[], str]
):
    assert table() in (ROOT / page).read_text(), "python -m tests.rules.outages"
