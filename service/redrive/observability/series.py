"""Counts and times by minute and hour, from the database alone.

`redrive.fold_series_v1` records a minute when it is over. Minutes are kept for 26
hours, and hours for 35 days. The sums of each step are made in the database.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import LiteralString, NamedTuple

from redrive.database.rows import Connection, records, value
from redrive.rules import times
from redrive.rules.rows import Row
from redrive.rules.times import (
    DURATION_BUCKETS,
    HOURS_KEPT,
    MINUTE,
    WAIT_BUCKETS,
    Period,
    quantile,
)

_SERIES: LiteralString = """
    select at, queue, kind, enqueued, completed, failed, retried, died, redriven,
           duration, wait
    from redrive.read_series_v1(%s, %s, %s, %s, %s, %s, %s, %s)"""
_UNRECORDED: LiteralString = """
    select at, queue, kind, enqueued, completed, failed, retried, died, redriven
    from redrive.unrecorded_v1(%s, %s, %s, %s, %s, %s, %s)"""
_QUEUES: LiteralString = """
    select at, queue, minutes, backlog, running, workers
    from redrive.read_queue_series_v1(%s, %s, %s, %s, %s)"""

ALL = 1_000_000
"""More steps than are kept."""
SLICE_STEPS = 60
"""Steps that are read at once; each has at most 201 pairs of queue and kind."""


class Point(NamedTuple):
    """Counts and times of one step.

    Attributes:
        at: start of the step.
        queue: None = all queues together.
        kind: None = all kinds together.
        failed: attempts that failed, whether the job is retried, has died, or was taken
            back from a lost worker.
        duration: number of attempts in each of DURATION_BUCKETS, and longer ones; None
            if there were none.
        wait: the same with WAIT_BUCKETS: the time from due to claimed.
    """

    at: datetime
    queue: str | None
    kind: str | None
    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    died: int = 0
    redriven: int = 0
    duration: Sequence[int] | None = None
    wait: Sequence[int] | None = None

    def duration_at(self, share: float) -> float | None:
        """Return a quantile of the durations, in seconds."""
        return quantile(share, self.duration, DURATION_BUCKETS)

    def wait_at(self, share: float) -> float | None:
        """Return a quantile of the waits, in seconds."""
        return quantile(share, self.wait, WAIT_BUCKETS)


class QueuePoint(NamedTuple):
    """Depth and workers of a queue in one step.

    Attributes:
        at: start of the step.
        queue: "" = all queues together.
        minutes: how many minutes the counts of this step cover. More than its length
            means that nothing was recorded before it.
        backlog: jobs that were due and not claimed, at most.
        running: jobs that were claimed, at most.
        workers: live workers that served the queue, the fewest.
    """

    at: datetime
    queue: str
    minutes: int
    backlog: int
    running: int
    workers: int


def read_series(  # noqa: PLR0913 # each one selects rows or sums
    conn: Connection,
    period: Period,
    queue: str | None = None,
    kind: str | None = None,
    *,
    by_queue: bool = False,
    by_kind: bool = False,
) -> list[Point]:
    """Return the steps in which something happened, oldest first.

    Without `by_queue` and `by_kind` there is one point for each step.

    Args:
        queue: only jobs of this queue; None = all.
        kind: only jobs of this kind; None = all.
        by_queue: a point for each queue.
        by_kind: a point for each kind.
    """
    asked = (*period, queue, kind, by_queue, by_kind)
    return records(conn, Point, _SERIES, period.span, *asked)


def read_unrecorded(  # noqa: PLR0913 # as of read_series
    conn: Connection,
    period: Period,
    queue: str | None = None,
    kind: str | None = None,
    *,
    by_queue: bool = False,
    by_kind: bool = False,
) -> list[Point]:
    """Return what has happened since the last recorded minute, if that is in the period.

    The arguments have the same meaning as in `read_series`. Times of jobs are not known yet.
    """
    asked = (*period, queue, kind, by_queue, by_kind)
    return records(conn, Point, _UNRECORDED, *asked)


def each_point(
    conn: Connection, period: Period, queue: str | None = None, kind: str | None = None
) -> Iterator[Point]:
    """Yield a point for each step, queue and kind in which something happened.

    The oldest comes first. A slice of the period is read at a time, so memory does not
    grow with the period.
    """
    slices = period._replace(step=SLICE_STEPS * period.step)
    for since in slices.starts():
        until = min(since + slices.step, period.until)
        part = period._replace(since=since, until=until)
        yield from read_series(conn, part, queue, kind, by_queue=True, by_kind=True)


def read_queues(
    conn: Connection, period: Period, queue: str | None = ""
) -> list[QueuePoint]:
    """Return what a queue held in each step that was recorded, oldest first.

    `queue`: "" = all together, None = a point for each queue.
    """
    return records(conn, QueuePoint, _QUEUES, period.span, *period, queue)


def listed(point: Point) -> Row:
    """Return a point as the API shows it; times are seconds."""
    return {
        "at": point.at.astimezone(UTC),
        "queue": point.queue,
        "kind": point.kind,
        "enqueued": point.enqueued,
        "completed": point.completed,
        "failed": point.failed,
        "retried": point.retried,
        "died": point.died,
        "redriven": point.redriven,
        "duration_p50": point.duration_at(0.5),
        "duration_p95": point.duration_at(0.95),
        "wait_p95": point.wait_at(0.95),
    }


def shortest(
    conn: Connection, since: datetime, until: datetime | None = None
) -> Period:
    """Return a period in minutes, or in hours if minutes are not kept for so long.

    It begins no earlier than what is kept, and ends no later than now.
    """
    now = now_of(conn)
    since = max(since, now - HOURS_KEPT)
    until = min(until or now, now)

    return times.period(since, until, now, ALL)


def filled(points: Sequence[Point], period: Period) -> list[Point]:
    """Return a point for each step, with zeros if nothing happened in it.

    The points must be of one queue and kind, or of all together.
    """
    if not points:
        return [Point(at, None, None) for at in period.starts()]

    known = {point.at: point for point in points}
    queue = points[0].queue
    kind = points[0].kind

    return [known.get(at) or Point(at, queue, kind) for at in period.starts()]


def gaps(
    points: Sequence[QueuePoint], period: Period
) -> list[tuple[datetime, datetime]]:
    """Return the spans in which nothing was recorded, from the points of queue "".

    The counts of such a span are in the step after it.
    """
    found: list[tuple[datetime, datetime]] = []
    end = None

    for point in points:
        if end is None:
            end = point.at - max(0, point.minutes - period.step // MINUTE) * MINUTE

        if end < point.at:
            found.append((end, point.at))

        end = point.at + period.step

    return found


def now_of(conn: Connection) -> datetime:
    """Return the database's time."""
    return value(conn, "select clock_timestamp()")
