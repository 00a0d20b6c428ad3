"""The curve of a campaign: the outcome of its jobs, by the time of their redrive."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.extras.console.charts.chart import Chart, Line, Mark
from redrive.extras.console.charts.span import Span, read, written
from redrive.extras.console.pages.time_series.marks import marks_of
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
           case when j.state = 'redriven' then 'in_flight'
                else coalesce(j.state, d.outcome, 'in_flight') end as outcome,
           count(*)::int as jobs
    from (select l.id, l.redrives, l.settled_at, l.outcome from redrive.dead_letters l
          where l.campaign = %(campaign)s and l.settled_at is not null limit %(most)s) d
    left join redrive.campaign_jobs j
        on j.campaign = %(campaign)s and j.id = d.id and j.redrives = d.redrives
    group by 1, 2"""
"""A job has ended when its campaign has counted it, as in the campaign's own figures."""


def outcome(conn: Connection, campaign: Row) -> tuple[Chart, Sequence[Mark]] | None:
    """Return the chart of a campaign and the changes in its time, if it has started."""
    began = campaign["started_at"]
    # The jobs of a retry are not recorded one by one when they succeed.
    if began is None or not campaign["redriven"] or campaign["is_retry"]:
        return None

    span = _span(began, campaign["ended_at"])
    found = rows(
        conn, _OUTCOMES, campaign=campaign["campaign"], step=span.step, most=MOST
    )
    counts = Counter({(row["at"], row["outcome"]): row["jobs"] for row in found})
    starts = span.starts()
    lines = [
        Line(name.replace("_", " "), [counts[start, name] for start in starts], look)
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
