"""Filters and pages of the series and the marks."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from redrive.dead_letters.filter import Filter
from redrive.observability.series import Point
from redrive.rules.times import Period
from redrive.verbs.query import Query, no_filter, parse

SERIES_FILTERS = ("queue", "kind", "since", "until")
RECENT = timedelta(hours=6)
MOST_POINTS = 5_000
"""Points of one answer, except that it ends with a whole step."""


class Choice(NamedTuple):
    """Selection of a part of the series; None = all, or until now."""

    queue: str | None
    kind: str | None
    since: datetime
    until: datetime | None


def series_choice(query: Query) -> Choice:
    """Parse the filters; the default is the last six hours.

    Raises:
        Refused: a filter is unknown, or a text is not a time.
    """
    for name, _ in query:
        if name not in SERIES_FILTERS:
            raise no_filter(name, SERIES_FILTERS)

    chosen = parse(Filter, query)
    since = chosen.since or datetime.now(UTC) - RECENT

    return Choice(
        queue=next(iter(chosen.queue), None),
        kind=next(iter(chosen.kind), None),
        since=since,
        until=chosen.until,
    )


def page_since(period: Period, after: str | None) -> Period:
    """Return the period from the position of this page on, with the same step.

    Raises:
        Refused: the position is not a time.
    """
    since = parse(Filter, [("since", after or "")]).since
    if since is None:
        return period

    return period._replace(since=since)


def first_steps(found: Iterable[Point]) -> tuple[Sequence[Point], str | None]:
    """Return the points of the first steps, and where the next page begins."""
    points = list(islice(found, MOST_POINTS + 1))
    if len(points) <= MOST_POINTS:
        return points, None

    # The next page begins at a time, so a step must not be on both pages.
    last = points[MOST_POINTS].at
    shown = [point for point in points if point.at < last]

    return shown, last.astimezone(UTC).isoformat()
