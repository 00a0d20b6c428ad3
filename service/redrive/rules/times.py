"""Buckets for durations and waits, quantiles of their counts, and steps of a time axis."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

DURATION_BUCKETS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    180,
    600,
    1800,
)
"""Upper bounds in seconds. One more bucket holds what is longer."""
WAIT_BUCKETS = (*DURATION_BUCKETS, 3600)

MINUTES_KEPT = timedelta(hours=26)
HOURS_KEPT = timedelta(days=35)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
STEPS = (
    *(timedelta(minutes=n) for n in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=n) for n in (1, 2, 3, 6, 12, 24)),
)
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)


def quantile(
    share: float, counts: Sequence[int] | None, bounds: Sequence[float]
) -> float | None:
    """Estimate a quantile in seconds, as Prometheus does; None without observations.

    It is interpolated in its bucket. In the last bucket, which has no upper bound, it is
    the bucket's lower bound.
    """
    sums = list(accumulate(counts or ()))
    if not sums or not sums[-1]:
        return None

    rank = share * sums[-1]
    place = bisect_left(sums, rank)
    if place >= len(bounds):
        return float(bounds[-1])

    return _interpolated(rank, place, sums, bounds)


def _interpolated(
    rank: float, place: int, sums: Sequence[int], bounds: Sequence[float]
) -> float:
    """Return the seconds at a rank, which is in the bucket at `place`."""
    below = 0
    lower = 0.0
    if place > 0:
        below = sums[place - 1]
        lower = bounds[place - 1]

    width = bounds[place] - lower
    found = sums[place] - below

    return lower + width * (rank - below) / found


class Period(NamedTuple):
    """Period of a time axis. Its steps are counted from midnight UTC."""

    since: datetime
    until: datetime
    step: timedelta

    @property
    def span(self) -> int:
        """Span to read: rows of 1 or of 60 minutes."""
        return 60 if self.step >= HOUR else 1

    def starts(self) -> Iterator[datetime]:
        """Yield the start of each step."""
        at = self.since

        while at < self.until:
            yield at
            at += self.step


def period(
    since: datetime, until: datetime, now: datetime, most: int, step: timedelta = MINUTE
) -> Period:
    """Choose the shortest step that gives at most this many steps, and round down.

    Older than MINUTES_KEPT, there are only hours. Nothing is older than 2000.
    """
    since = max(since, _FIRST)
    if now - since > MINUTES_KEPT:
        step = max(step, HOUR)

    chosen = STEPS[-1]
    # The longest step is always allowed. Shorter ones follow until one is too short.
    for longer in reversed(STEPS):
        steps = (until - since) // longer
        if longer < step or steps > most:
            break

        chosen = longer

    # from the beginning of a step
    since -= (since - _FIRST) % chosen
    return Period(since, until, chosen)
