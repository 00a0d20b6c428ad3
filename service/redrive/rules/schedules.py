"""Interval between the runs of a schedule, from the cron expression of a CronJob."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile

START = datetime(2000, 1, 1, tzinfo=UTC)
YEARS = timedelta(days=5 * 366)
"""Long enough to contain two 29ths of February."""

DAY = timedelta(days=1)
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = 5

_EVERY = re.compile(r"@every\s+(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?\Z")


def longest_gap(schedule: str) -> timedelta:
    """Return the longest time between two runs, without changes of the clocks.

    Raises:
        ValueError: the text is not a cron expression, or it never matches.
    """
    every = interval(schedule)
    if every is not None:
        return every

    minute, hour, *date = cron_fields(schedule)
    # Every day with runs has them at the same times. So days and times are computed
    # separately, because the runs of some years may be millions.
    times = _runs(schedule, minute, hour, "*", "*", "*", within=DAY)
    days = _runs(schedule, "0", "0", *date, within=YEARS)
    nights = _longest(days, YEARS) - (times[-1] - times[0])

    return max(nights, _longest(times, nights))


def interval(schedule: str) -> timedelta | None:
    """Return the interval of `@every 1h30m`; None for other schedules."""
    every = _EVERY.match(schedule.strip())
    if every is None:
        return None

    hours, minutes, seconds = (int(part or 0) for part in every.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def cron_fields(schedule: str) -> list[str]:
    """Return the five fields of a cron expression.

    Raises:
        ValueError: there are more or fewer fields.
    """
    fields = MACROS.get(schedule.strip(), schedule).replace("?", "*").split()
    if len(fields) != FIELDS:
        msg = f"{schedule!r} is not a cron expression: it must have {FIELDS} fields"
        raise ValueError(msg)

    return fields


def _longest(runs: list[datetime], default: timedelta) -> timedelta:
    return max((b - a for a, b in pairwise(runs)), default=default)


def _runs(schedule: str, *fields: str, within: timedelta) -> list[datetime]:
    """Yield the runs from START on."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 # most kinds have no schedule

    try:
        # CronSim yields the runs after an instant, and START itself may be one.
        runs = CronSim(" ".join(fields), START - timedelta(minutes=1))
        found = list(takewhile(lambda run: run < START + within, runs))
    except CronSimError as error:
        msg = f"{schedule!r} is not a cron expression: {error}"
        raise ValueError(msg) from None

    if not found:
        msg = f"{schedule!r} never comes"
        raise ValueError(msg)

    return found
