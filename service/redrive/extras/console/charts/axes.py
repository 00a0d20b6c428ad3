"""Round values and times for the axes of charts."""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

ROUND = (1, 2, 5, 10)
MOST_TICKS = 6
TICKS = (
    *(timedelta(minutes=n) for n in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=n) for n in (1, 2, 4, 6, 12)),
    *(timedelta(days=n) for n in (1, 2, 7)),
)
EDGE = 0.05
"""Share of the axis at each end where a label would not fit."""
DAY = timedelta(days=1)
FIRST = datetime(2000, 1, 1, tzinfo=UTC)
"""A start of every step."""


def top(most: float, *, whole: bool = True) -> float:
    """Return the round number at or above the largest value of a chart.

    Args:
        whole: the values are counts, so the number is at least 1.
    """
    most = max(most, 1.0 if whole else 0.001)
    unit = 10.0 ** math.floor(math.log10(most))

    for each in ROUND:
        # Rounding may leave a float a little above the round number it stands for.
        if most <= each * unit * 1.0000001:
            return each * unit

    return 10 * unit


def ticks(since: datetime, until: datetime) -> Sequence[tuple[float, datetime]]:
    """Return round times of an axis, and where each is, from 0 to 1."""
    length = until - since
    step = next((each for each in TICKS if length <= each * MOST_TICKS), TICKS[-1])

    return [
        (share, at)
        for share, at in _shares(since, until, step)
        if EDGE <= share <= 1 - EDGE
    ]


def _shares(
    since: datetime, until: datetime, step: timedelta
) -> Iterator[tuple[float, datetime]]:
    at = FIRST + (since - FIRST) // step * step
    while at <= until:
        yield (share(at, since, until), at)
        at += step


def share(at: datetime, since: datetime, until: datetime) -> float:
    """Return where an instant is in a span, from 0 to 1."""
    return (at - since) / (until - since)


def clock(at: datetime, length: timedelta) -> str:
    """Format a time of an axis: as a day if the span has several days."""
    if length <= 2 * DAY:
        return f"{at:%H:%M}"
    return f"{at:%d %b}"


def exact(at: datetime, length: timedelta) -> str:
    """Format a time of a table: with the day if the span has several days."""
    if length <= DAY:
        return f"{at:%H:%M}"
    return f"{at:%d %b %H:%M}"


def short(value: float, unit: str = "") -> str:
    """Format a value in few characters: 12, 1.2k, 3.4M, 250 ms, 1.5 s, 3 min.

    Args:
        unit: "s" for seconds, and empty for counts.
    """
    if unit == "s":
        return _seconds(value)
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _seconds(value: float) -> str:
    if value >= 86_400:  # noqa: PLR2004 # a day
        return f"{value / 86_400:.3g} d"
    if value >= 3600:  # noqa: PLR2004 # an hour
        return f"{value / 3600:.3g} h"
    if value >= 60:  # noqa: PLR2004 # a minute
        return f"{value / 60:.3g} min"
    if value >= 1 or not value:
        return f"{value:.3g} s"

    return f"{value * 1000:.3g} ms"
