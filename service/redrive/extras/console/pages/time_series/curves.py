"""Charts of the pages, from the series of the database."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from redrive.database.rows import Connection
from redrive.extras.console.charts.chart import SECONDS, Chart, Line, Mark, Values
from redrive.extras.console.charts.span import Span
from redrive.observability.series import (
    Point,
    QueuePoint,
    filled,
    read_queues,
    read_series,
    read_unrecorded,
)
from redrive.rules.times import DURATION_BUCKETS, WAIT_BUCKETS, quantile

QUANTILES = (("p50", 0.5, "run"), ("p95", 0.95, "off"), ("p99", 0.99, "bad"))


@dataclass(frozen=True, slots=True)
class Curves:
    """Counts and times of a span, of everything, one queue, or one kind.

    Attributes:
        latest: what has happened since the last recorded minute.
        recorded: start of a step -> how many of its minutes were recorded.
    """

    span: Span
    points: Sequence[Point]
    latest: Sequence[Point]
    queues: Sequence[QueuePoint]
    recorded: Mapping[datetime, int]
    marks: Sequence[Mark] = ()

    def throughput(self) -> Chart:
        """Draw how many jobs came and were completed, for each minute."""
        completed = [point.completed for point in self.points]
        enqueued = [point.enqueued for point in self.points]
        lines = (
            Line("completed", self._a_minute(completed), "good"),
            Line("enqueued", self._a_minute(enqueued), "run"),
        )

        return self._chart("throughput", "Jobs a minute", lines)

    def _a_minute(self, counts: Sequence[int]) -> Values:
        """Return counts as rates; None where nothing was recorded.

        The step that is not over has fewer minutes than the others.
        """
        rates: list[float | None] = []

        for start, count in zip(self.span.starts(), counts, strict=True):
            minutes = self.recorded.get(start)
            rates.append(count / minutes if minutes else None)

        return rates

    def failures(self) -> Chart:
        """Draw the jobs that died, and the failed attempts of others."""
        died = self._up_to_now("died")
        failed = self._up_to_now("failed")
        # A job that expires dies without a failed attempt.
        others = [max(0, all_ - last) for all_, last in zip(failed, died, strict=True)]
        lines = (Line("died", died, "bad"), Line("failed attempts", others, "warn"))

        return self._chart(
            "failures", "Failures", lines, is_summed=True, is_stacked=True
        )

    def _up_to_now(self, what: str) -> list[int]:
        """Return one of the counts by step, with what is not recorded yet."""
        count = attrgetter(what)
        latest = {point.at: count(point) for point in self.latest}
        return [count(point) + latest.get(point.at, 0) for point in self.points]

    def waits(self) -> Chart:
        """Draw how long jobs waited after they were due."""
        lines = self._quantiles(Point.wait_at)
        return self._chart("wait", "Wait before the start", lines, unit=SECONDS)

    def durations(self) -> Chart:
        """Draw how long attempts took."""
        lines = self._quantiles(Point.duration_at)
        return self._chart("duration", "Duration of attempts", lines, unit=SECONDS)

    def _quantiles(self, time_at: Callable[[Point, float], float | None]) -> list[Line]:
        """Return a line for each quantile of a time."""
        lines: list[Line] = []
        for name, share, look in QUANTILES:
            times = [time_at(point, share) for point in self.points]
            lines.append(Line(name, times, look))
        return lines

    def backlog(self) -> Chart:
        """Draw the jobs that were due, and the jobs that ran."""
        known = {point.at: point for point in self.queues}
        found = [known.get(start) for start in self.span.starts()]

        backlog = [point and point.backlog for point in found]
        running = [point and point.running for point in found]
        lines = (Line("due", backlog, "warn"), Line("running", running, "run"))

        return self._chart("backlog", "Backlog", lines)

    def _chart(
        self, name: str, title: str, lines: Sequence[Line], **more: Any
    ) -> Chart:
        if self.latest and not self.recorded and not more.get("is_summed"):
            more["nothing"] = "Known when the first minute is over."
        return Chart(name, title, lines, self.span, self.marks, **more)


def curves(
    conn: Connection,
    span: Span,
    marks: Sequence[Mark] = (),
    *,
    queue: str | None = None,
    kind: str | None = None,
) -> Curves:
    """Return the curves of everything, of a queue, or of a kind."""
    points = read_series(conn, span.period, queue, kind)
    # The number of recorded minutes is the same for all queues, so read all together.
    everything = read_queues(conn, span.period)
    held = read_queues(conn, span.period, queue) if queue else everything
    latest = read_unrecorded(conn, span.period, queue, kind)
    recorded = {point.at: point.minutes for point in everything}

    return Curves(
        span=span,
        points=filled(points, span.period),
        latest=latest,
        queues=held,
        recorded=recorded,
        marks=marks,
    )


def deaths_chart(span: Span, deaths: Values, marks: Sequence[Mark]) -> Chart:
    """Return the chart of a group: its dead letters by step."""
    return Chart(
        "deaths",
        "Deaths",
        (Line("died", deaths, "bad"),),
        span,
        marks,
        is_stacked=True,
        is_summed=True,
    )


@dataclass(frozen=True, slots=True)
class Sums:
    """Counts of one queue or kind in a span, in total and by step."""

    name: str
    points: Sequence[Point]
    starts: Sequence[datetime]

    @property
    def completed(self) -> int:
        """Return the number of completed jobs."""
        return self._sum("completed")

    @property
    def died(self) -> int:
        """Return the number of jobs that died."""
        return self._sum("died")

    @property
    def failed(self) -> int:
        """Return the number of failed attempts."""
        return self._sum("failed")

    @property
    def enqueued(self) -> int:
        """Return the number of jobs that were enqueued."""
        return self._sum("enqueued")

    @property
    def duration(self) -> float | None:
        """Return the p95 of the durations, in seconds."""
        counts = _together(point.duration for point in self.points)
        return quantile(0.95, counts, DURATION_BUCKETS)

    @property
    def wait(self) -> float | None:
        """Return the p95 of the waits, in seconds."""
        counts = _together(point.wait for point in self.points)
        return quantile(0.95, counts, WAIT_BUCKETS)

    def _sum(self, what: str) -> int:
        return sum(map(attrgetter(what), self.points))

    def steps(self, what: str) -> list[int]:
        """Return one of the counts by step, latest last."""
        count = attrgetter(what)
        known = Counter[datetime]()
        for point in self.points:
            known[point.at] += count(point)

        return [known[start] for start in self.starts]


def sums(
    conn: Connection,
    span: Span,
    *,
    queue: str | None = None,
    kind: str | None = None,
    by_kind: bool = False,
) -> Mapping[str, Sums]:
    """Return the sums of each queue in a span, or of each kind."""
    names = {"by_queue": not by_kind, "by_kind": by_kind}
    points = read_series(conn, span.sparks, queue, kind, **names)
    points += read_unrecorded(conn, span.sparks, queue, kind, **names)

    found = defaultdict[str, list[Point]](list)
    for point in points:
        name = point.kind if by_kind else point.queue
        found[name or ""].append(point)

    starts = list(span.sparks.starts())
    return {name: Sums(name, of_one, starts) for name, of_one in found.items()}


def _together(histograms: Iterable[Sequence[int] | None]) -> Sequence[int] | None:
    """Return the sum of several histograms; None without histograms."""
    counts = [each for each in histograms if each is not None]
    return [sum(bucket) for bucket in zip(*counts, strict=True)] or None
