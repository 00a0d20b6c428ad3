"""bensheldon/good_job #1480, #519.

A report is due at six in the evening of New York, in summer and in winter. Each evening has
one report. A time that the clock skips or repeats has one at most.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from redrive import Handlers
from redrive.testing import slots

NEW_YORK = ZoneInfo("America/New_York")
jobs = Handlers()


@jobs.every("0 18 * * *", tz="America/New_York")
def evening() -> None: ...


@jobs.every("30 2 * * *", tz="America/New_York")
def night() -> None: ...


@pytest.mark.parametrize("day", [datetime(2024, 11, 1), datetime(2025, 3, 7)])
def test_each_evening_has_one_report_at_the_same_hour(day: datetime) -> None:
    after = day.replace(tzinfo=UTC)
    found = [slot.astimezone(NEW_YORK) for slot in slots(jobs, "evening", after, 5)]
    assert [(slot.hour, slot.minute) for slot in found] == [(18, 0)] * 5
    days = [slot.date() for slot in found]
    assert days == [days[0] + timedelta(days=n) for n in range(5)]


@pytest.mark.parametrize("day", [datetime(2024, 11, 1), datetime(2025, 3, 7)])
def test_an_hour_that_is_missing_or_doubled_has_one_report_at_most(
    day: datetime,
) -> None:
    after = day.replace(tzinfo=UTC)
    found = [slot.astimezone(NEW_YORK).date() for slot in slots(jobs, "night", after)]
    assert len(found) == len(set(found))
