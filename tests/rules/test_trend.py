"""Words for a trend."""

import pytest

from redrive.rules.trend import compared


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        (323, 210, "more than in the hour before (210)"),
        (57, 1112, "fewer than in the hour before (1,112)"),
        (110, 100, "about as many as in the hour before (100)"),
        (100, 110, "about as many as in the hour before (110)"),
        (1, 0, "more than in the hour before (0)"),
        (0, 9, "fewer than in the hour before (9)"),
    ],
)
def test_a_count_is_compared_with_the_one_before(
    now: int, before: int, words: str
) -> None:
    assert compared(now, before, "hour") == words
