"""The span of time that a page shows, as its address carries it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from redrive.rules.scheduling.instants import instant

LENGTHS: Mapping[str, timedelta] = {
    "1h": timedelta(hours=1),
    "3h": timedelta(hours=3),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "35d": timedelta(days=35),
}
"""Spans that a page offers, each up to now."""
DEFAULT = "3h"
SHORTEST = timedelta(minutes=5)
LONGEST = timedelta(days=35)
MOST_STEPS = 60
"""Most points of a chart, so that pages stay small."""
STEPS = (
    *(timedelta(minutes=n) for n in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=n) for n in (1, 2, 3, 4, 6, 12, 24)),
)


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time; `given` are the parameters of its address."""

    since: datetime
    until: datetime
    given: Mapping[str, str]

    @property
    def length(self) -> timedelta:
        """Return the length of the span."""
        return self.until - self.since

    @property
    def is_live(self) -> bool:
        """Return True if the span ends now, whenever the page is loaded."""
        return "to" not in self.given

    @property
    def step(self) -> timedelta:
        """Return the shortest step that gives few enough points."""
        for step in STEPS:
            if self.length <= step * MOST_STEPS:
                return step
        return STEPS[-1]

    def starts(self) -> list[datetime]:
        """Return the starts of the steps, the first at or before the span."""
        first = floor(self.since, self.step)
        return list(_steps(first, self.until, self.step))

    def others(self) -> Mapping[str, Mapping[str, str]]:
        """Return the spans to go to, as parameters by the name of the link."""
        half = self.length / 2
        middle = self.since + half
        found = {
            "Earlier": _written(self.since - half, self.until - half),
            "Zoom out": _written(self.since - half, self.until + half),
        }
        if self.length >= 2 * SHORTEST:
            found["Zoom in"] = _written(middle - half / 2, middle + half / 2)
        if not self.is_live:
            found["Later"] = _written(self.since + half, self.until + half)
        return found


def read(given: Mapping[str, str], now: datetime, default: str = DEFAULT) -> Span:
    """Return the span of an address: `from`, and `to` unless it ends now.

    Raises:
        ValueError: a text is not a time, or the span is empty.
    """
    texts = {name: given.get(name, "").strip() for name in ("from", "to")}
    kept = {name: text for name, text in texts.items() if text}
    until = instant(kept["to"], now) if "to" in kept else now
    since = instant(kept.get("from", default), now)
    until = min(until, now)
    if since >= until:
        msg = f"the span from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} is empty"
        raise ValueError(f"{msg}; from must be before to, and before now")

    earliest = max(since, until - LONGEST)
    return Span(min(earliest, until - SHORTEST), until, kept)


def around(at: datetime, *, before: timedelta, after: timedelta) -> Mapping[str, str]:
    """Return the parameters of the span around an instant."""
    return _written(at - before, at + after)


def zoomed(start: datetime, step: timedelta) -> Mapping[str, str]:
    """Return the parameters of the span of one step of a chart."""
    return _written(start, start + step)


def floor(at: datetime, step: timedelta) -> datetime:
    """Return the last start of a step at or before an instant."""
    zero = datetime(2000, 1, 1, tzinfo=UTC)
    return zero + (at - zero) // step * step


def _steps(first: datetime, until: datetime, step: timedelta) -> Iterator[datetime]:
    at = first
    while at < until:
        yield at
        at += step


def _written(since: datetime, until: datetime) -> Mapping[str, str]:
    return {"from": written(since), "to": written(until)}


def written(at: datetime) -> str:
    """Return an instant as an address carries it, to the minute."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
