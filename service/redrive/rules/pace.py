"""Usual duration of round trips, and whether the recent ones take much longer."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

SLOW_FACTOR, CALM_FACTOR = 10.0, 5.0
"""Slowness begins at the first, and ends below the second."""

SLOW_SECONDS = 0.1
"""Shorter round trips are never slow."""

LEAST_KNOWN = 30
"""Round trips of a size after which their usual duration is known."""

LEARN_SECONDS = 86_400.0
"""Time in which the usual duration follows a lasting change.

A database that gets slower within an hour is slow by its usual duration of before.
"""

MOST_LEARNED = 2.0
"""A longer round trip counts as this multiple of the usual duration."""

RECENT, LEAST_RECENT, RECENT_SECONDS = 15, 5, 180.0
"""Number of the recent round trips that are judged, the least number, and their age."""


class Slow(NamedTuple):
    """Recent round trips: their median duration, and how often that is the usual one."""

    seconds: float
    factor: float


@dataclass
class Pace:
    """Pace of one worker's round trips.

    A round trip with more jobs takes longer. So each power of two has its own usual
    duration. While round trips are slow, nothing is learned.
    """

    is_slow: bool = False
    _usual: dict[int, tuple[float, int, float]] = field(
        default_factory=dict[int, tuple[float, int, float]], init=False
    )
    """Size -> usual duration, the number of round trips that it was learned from, and
    the time of the last one.
    """
    _recent: deque[tuple[float, Slow]] = field(
        default_factory=lambda: deque(maxlen=RECENT), init=False
    )

    def add(self, now: float, seconds: float, jobs: int) -> None:
        """Note a round trip that settled or claimed this many jobs."""
        size = jobs.bit_length()
        usual, count, at = self._usual.get(size, (seconds, 0, now))

        if count >= LEAST_KNOWN:
            self._recent.append((now, Slow(seconds, seconds / max(usual, 1e-6))))
        self.is_slow = self.slow(now) is not None
        if self.is_slow:
            return

        share = min((now - at) / LEARN_SECONDS, 1.0)
        if count < LEAST_KNOWN:
            share = 1 / (count + 1)
        learned = min(seconds, MOST_LEARNED * usual)
        self._usual[size] = (usual + (learned - usual) * share, count + 1, now)

    def slow(self, now: float) -> Slow | None:
        """Return how slow the recent round trips are; None: they are not slow."""
        found = self.recent(now)
        limit = CALM_FACTOR if self.is_slow else SLOW_FACTOR
        if found is None or found.seconds < SLOW_SECONDS or found.factor < limit:
            return None

        return found

    def recent(self, now: float) -> Slow | None:
        """Return the medians of the recent round trips; None: there are too few."""
        # A copy: another thread may add one.
        recent = [slow for at, slow in list(self._recent) if now - at < RECENT_SECONDS]
        if len(recent) < LEAST_RECENT:
            return None

        return Slow(*map(median, zip(*recent, strict=True)))


def slow_text(seconds: float, factor: float) -> str:
    """Return a text about slow round trips."""
    return f"it takes {seconds:.1f} s, {factor:.0f} times as long as usual"
