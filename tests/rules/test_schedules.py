"""The longest time between two runs of a schedule."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.rules.schedules import longest_gap

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("schedule", "gap"),
    [
        ("17 3 * * *", DAY),
        ("0 3 * * 1", 7 * DAY),
        ("0 3 * * mon", 7 * DAY),
        ("@weekly", 7 * DAY),
        ("*/15 * * * *", 15 * MINUTE),
        ("* * * * *", MINUTE),
        ("*/20 9-17 * * 1-5", 2 * DAY + 24 * HOUR - 8 * HOUR - 40 * MINUTE),
        ("0 0 1 * *", 31 * DAY),
        ("0 0 29 2 *", 4 * 365 * DAY + DAY),
        ("* * * 1 *", 334 * DAY + DAY + MINUTE),
        ("0 0,6 ? * ?", 18 * HOUR),
        ("@every 1h30m", 90 * MINUTE),
    ],
)
def test_the_longest_gap_of_a_schedule(schedule: str, gap: timedelta):
    """A weekly purge with the default of a day was overdue each week."""
    assert longest_gap(schedule) == gap


@pytest.mark.parametrize(
    "schedule", ["", "daily", "0 3 * *", "0 3 * * 9", "61 * * * *", "0 0 31 2 *"]
)
def test_what_is_no_schedule_is_named(schedule: str):
    with pytest.raises(ValueError, match=r"is not a cron expression|never comes"):
        longest_gap(schedule)


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    values = st.lists(st.integers(low, high), min_size=1, max_size=4, unique=True)
    return st.just("*") | values.map(lambda chosen: ",".join(map(str, sorted(chosen))))


@settings(max_examples=25)
@given(
    minute=_field(0, 59), hour=_field(0, 23), day=_field(1, 28), weekday=_field(0, 6)
)
def test_no_two_runs_are_further_apart(minute: str, hour: str, day: str, weekday: str):
    schedule = f"{minute} {hour} {day} * {weekday}"
    gap = longest_gap(schedule)
    runs = CronSim(schedule, datetime(2000, 1, 1, tzinfo=UTC))

    assert max(b - a for a, b in islice(pairwise(runs), 200)) <= gap
