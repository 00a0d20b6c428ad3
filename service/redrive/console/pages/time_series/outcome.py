"""The curve of a campaign: the outcome of its jobs, by the time of their redrive."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import LiteralString

from redrive.console.charts.chart import Chart, Line, Mark
from redrive.console.charts.span import Span, read, written
from redrive.console.pages.time_series.marks import marks_of
from redrive.database.rows import Connection, rows
from redrive.rules.rows import Row

MOST = 100_000
"""Dead letters of a campaign that its chart counts."""
LOOKS = (
    ("succeeded", "good"),
    ("dead_again", "bad"),
    ("cancelled", "off"),
    ("in_flight", "run"),
)
MARGIN = timedelta(minutes=2)

_OUTCOMES: LiteralString = """
    select date_bin(%(step)s, d.settled_at, timestamptz '2000-01-01 00:00:00+00') as at,
           coalesce(d.outcome, 'in_flight') as outcome, count(*)::int as jobs
    from (select l.settled_at, l.outcome from redrive.dead_letters l
          where l.campaign = %(campaign)s and l.settled_at is not null limit %(most)s) d
    group by 1, 2"""


def outcome(conn: Connection, campaign: Row) -> tuple[Chart, Sequence[Mark]] | None:
    """Return the chart of a campaign and the changes in its time, if it has started."""
    began = campaign["started_at"]
    if began is None or not campaign["redriven"]:
        return None

    span = _span(began, campaign["ended_at"])
    counts = _counts(conn, campaign["campaign"], span)
    starts = span.starts()
    lines = [
        Line(
            name.replace("_", " "),
            [counts[start, name] for start in starts],
            look,
        )
        for name, look in LOOKS
    ]
    marks = marks_of(conn, span)
    title = "Outcome by the time of the redrive"
    chart = Chart(
        name="outcome",
        title=title,
        lines=lines,
        span=span,
        marks=marks,
        is_stacked=True,
        is_summed=True,
    )

    return chart, marks


def _span(began: datetime, ended: datetime | None) -> Span:
    """Return the span of a campaign; jobs may end a while after the last redrive."""
    now = datetime.now(UTC)
    # the clock of the database may be ahead of this machine's
    given = {"from": written(min(began, now) - MARGIN)}
    if ended is not None and ended + MARGIN < now:
        given["to"] = written(ended + MARGIN)

    return read(given, now)


def _counts(
    conn: Connection, campaign: int, span: Span
) -> Counter[tuple[datetime, str]]:
    found = rows(
        conn,
        _OUTCOMES,
        campaign=campaign,
        step=span.step,
        most=MOST,
    )
    return Counter({(row["at"], row["outcome"]): row["jobs"] for row in found})
