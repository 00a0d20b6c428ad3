"""Instants and durations as people read them."""

import pytest

from redrive.rules.instants import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3_599, "59 min"),
        (3_600, "1 h"),
        (11_520, "3 h 12 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (190_800, "2 d 5 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str):
    """ "191 min" makes people calculate."""
    assert duration(seconds) == text
