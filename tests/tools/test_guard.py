"""The guard of CI: what a job may cost, compared with what it did."""

import json

import pytest

from bench.counting import Reading
from bench.guard import BASELINE, Figures, compared

BASE: Figures = json.loads(BASELINE.read_text())


def dearer(now: Figures) -> set[str]:
    return {name for name, change, bound in compared(now, BASE) if change > bound}


def test_what_costs_as_much_as_it_did_passes():
    assert dearer(BASE) == set()


@pytest.mark.parametrize(
    "figure", [name for name in BASE if not name.startswith("seconds")]
)
def test_each_figure_fails_alone(figure: str):
    if ": loop" not in figure:
        assert dearer(BASE | {figure: BASE[figure] * 1.21}) == {figure}


@pytest.mark.parametrize(
    "figure", [name for name in BASE if name.startswith("seconds")]
)
def test_seconds_count_where_instructions_are_not_counted(figure: str):
    seconds = {
        name: value
        for name, value in BASE.items()
        if not name.startswith("instructions")
    }

    if ": loop" not in figure:
        assert dearer(seconds | {figure: BASE[figure] * 3.01}) == {figure}
    assert dearer(BASE | {figure: BASE[figure] * 10}) == set()


def test_a_slower_machine_is_no_reason():
    slower = {
        name: value if name.startswith("wal") else value * 3
        for name, value in BASE.items()
    }

    assert dearer(slower) == set()


def test_a_counter_that_was_taken_away_for_a_while_says_nothing():
    before = Reading(100, time=10, counted=10)

    assert Reading(300, time=20, counted=20).since(before) == 200
    assert Reading(300, time=20, counted=15).since(before) is None
    assert before.since(before) is None
