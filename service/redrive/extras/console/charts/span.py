"""The span of time that a page shows, as its address carries it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from redrive.rules.instants import instant
from redrive.rules.times import Period, period

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
MOST_SPARKS = 30
OLDEST = datetime(2001, 1, 1, tzinfo=UTC)
"""Earliest end of a span; around year 1, times cannot be computed."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time.

    Attributes:
        given: parameters of the address that are set.
        period: steps of the time axis.
        sparks: longer steps, for small charts in rows.
    """

    since: datetime
    until: datetime
    given: Mapping[str, str]
    period: Period
    sparks: Period

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
        """Return the length of a step."""
        return self.period.step

    def starts(self) -> list[datetime]:
        """Return the starts of the steps, the first at or before the span."""
        return list(self.period.starts())

    def others(self) -> Mapping[str, Mapping[str, str]]:
        """Return the spans to go to, as parameters by the name of the link."""
        half = self.length / 2
        quarter = self.length / 4
        found = {
            "Earlier": self._shifted(-half, -half),
            "Zoom out": self._shifted(-half, half),
        }
        if self.length >= 2 * SHORTEST:
            found["Zoom in"] = self._shifted(quarter, -quarter)

        if not self.is_live:
            found["Later"] = self._shifted(half, half)

        return found

    def _shifted(self, since: timedelta, until: timedelta) -> Mapping[str, str]:
        """Return the parameters of a span whose ends are later by this much."""
        return {"from": written(self.since + since), "to": written(self.until + until)}


def read(given: Mapping[str, str], now: datetime, default: str = DEFAULT) -> Span:
    """Return the span of an address: `from`, and `to` unless it ends now.

    Args:
        given: parameters of the address; only `from` and `to` are read.
        now: end of a span without `to`, and latest end of another.
        default: length of the span if the address has no `from`, such as 3h.

    Raises:
        ValueError: a text is not a time, or the span is empty or too old.
    """
    kept: dict[str, str] = {}
    for name in ("from", "to"):
        text = given.get(name, "").strip()
        if text:
            kept[name] = text

    until = now
    if "to" in kept:
        until = min(instant(kept["to"], now), now)

    since = instant(kept.get("from", default), now)
    _check(since, until)
    # the table of a chart says that its times are UTC
    since = max(since, OLDEST - LONGEST).astimezone(UTC)
    until = until.astimezone(UTC)

    return _span(since, until, now, kept)


def _check(since: datetime, until: datetime) -> None:
    if since >= until:
        empty = f"the span from {written(since)} to {written(until)} is empty"
        msg = f"{empty}; from must be before to, and before now"
        raise ValueError(msg)
    if until < OLDEST:
        msg = f"the span ends before {written(OLDEST)}; to must be later"
        raise ValueError(msg)


def _span(
    since: datetime, until: datetime, now: datetime, given: Mapping[str, str]
) -> Span:
    """Return the span, neither shorter nor longer than charts can show."""
    since = max(since, until - LONGEST)
    since = min(since, until - SHORTEST)

    steps = period(since, until, now, MOST_STEPS)
    return Span(since, until, given, steps, period(since, until, now, MOST_SPARKS))


def covering(at: datetime, now: datetime) -> str:
    """Return the shortest span up to now that shows what came before an instant."""
    for name, length in LENGTHS.items():
        # At least a tenth of the span must come before the instant.
        if at >= now - length * 0.9:
            return name
    return [*LENGTHS][-1]


def written(at: datetime) -> str:
    """Return an instant as an address carries it, to the minute."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
