"""redrive series: counts and times over time, and what changed then."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from redrive.cli.support.connection import database
from redrive.cli.support.options import (
    Instant,
    database_option,
    json_option,
    pager_option,
    settings_for,
)
from redrive.cli.support.output import listing, paged, screen_width
from redrive.observability.marks import read_marks
from redrive.observability.series import (
    Connection,
    Point,
    QueuePoint,
    gaps,
    listed,
    now_of,
    read_queues,
    read_series,
    shortest,
)
from redrive.rules.marks import Mark, mark_row, sentence
from redrive.rules.scheduling.instants import duration
from redrive.rules.times import Period, period

COUNTS = ("enqueued", "completed", "failed", "retried", "died", "redriven")
TIMES = ("duration_p50", "duration_p95", "wait_p95")
DEPTHS = ("backlog", "running", "workers")
COLUMNS = ("at", *COUNTS, *TIMES, *DEPTHS)
MARK_COLUMNS = ("at", "change", "audit")
LEAST = (
    "retried",
    "running",
    "redriven",
    "workers",
    "duration_p50",
    "wait_p95",
    "backlog",
)
"""Columns that a narrow screen has no room for, the least important one first."""
SPACE = 3
"""Columns of the screen between two columns of the table."""
AROUND = 6
"""Lines of the terminal that the table cannot use."""
PIPE_STEPS = 36
"""Steps to show if the output goes to no terminal."""
SHORT_SECONDS = 60
DAY = timedelta(days=1)
Row = dict[str, Any]


@click.command()
@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option("--kind", metavar="NAME", help="Only this kind.")
@click.option(
    "--since",
    type=Instant(),
    default="6h",
    show_default=True,
    metavar="TIME",
    help="Begin at this time: 6h, 7d, or an instant.",
)
@click.option(
    "--marks",
    "are_marks",
    is_flag=True,
    help="List what changed then: deploys, campaigns, pauses, lost workers, ...",
)
@database_option
@json_option
@pager_option
def series(  # its options
    queue: str | None,
    kind: str | None,
    since: datetime,
    are_marks: bool,
    database_url: str | None,
    as_json: bool,
) -> None:
    """Show counts and times over time, and what changed then.

    \b
    redrive series --queue mail --since 2h
    redrive series --since 7d --marks

    The table chooses a step so that it fits your screen, and leaves out columns that do not fit.
    A gap is a time in which neither a worker nor the exporter ran. The counts of a gap are in the
    step after it. --json prints an object for each minute, queue and kind in which something
    happened. Minutes are kept for 26 hours, and hours for 35 days. If --since is more than 26 hours
    ago, each object is about an hour. A minute is shown a few seconds after its end.
    """
    show = _show_marks if are_marks else _show_series
    with database(settings_for(database_url)) as conn:
        rows, columns = show(conn, since, queue, kind, as_json)

    with paged():
        listing(
            rows, columns, as_json=as_json, right=COLUMNS[1:], empty=_empty(are_marks)
        )


def _empty(are_marks: bool) -> str:
    if are_marks:
        return "nothing changed"
    return (
        "nothing is recorded; a worker or the exporter records each minute at its end"
    )


def _show_series(
    conn: Connection,
    since: datetime,
    queue: str | None,
    kind: str | None,
    as_json: bool,
) -> tuple[list[Row], Sequence[str]]:
    """Return the rows of the series, and the columns of the table."""
    if as_json:
        points = read_series(
            conn, shortest(conn, since), queue, kind, by_queue=True, by_kind=True
        )
        return [listed(point) for point in points], COLUMNS

    now = now_of(conn)
    shown = period(since, now, now, _most_steps())
    points = read_series(conn, shown, queue, kind)
    recorded = read_queues(conn, shown)
    depths = recorded if queue is None else read_queues(conn, shown, queue)
    rows = list(_rows(shown, points, recorded, depths))
    columns = COLUMNS if kind is None else COLUMNS[: -len(DEPTHS)]
    return rows, list(_fitting(rows, columns))


def _fitting(rows: Sequence[Row], columns: Sequence[str]) -> Iterator[str]:
    """Yield the columns that fit on the screen, the least important ones left out."""
    widths = {
        column: max(len(column), *(len(str(row[column])) for row in rows), 0)
        for column in columns
    }
    excess = sum(widths.values()) + SPACE * len(widths) - screen_width()
    left_out: set[str] = set()

    for column in LEAST:
        if excess > 0 and column in widths:
            left_out.add(column)
            excess -= widths[column] + SPACE

    for column in columns:
        if column not in left_out:
            yield column


def _most_steps() -> int:
    if not sys.stdout.isatty():
        return PIPE_STEPS
    return max(10, shutil.get_terminal_size().lines - AROUND)


def _rows(
    shown: Period,
    points: Sequence[Point],
    recorded: Sequence[QueuePoint],
    depths: Sequence[QueuePoint],
) -> Iterator[Row]:
    """Yield a row for each step that was recorded, and for what was not recorded."""
    counts = {point.at: point for point in points}
    of_queue = {point.at: point for point in depths}
    steps = {point.at for point in recorded}
    missed = {until: since for since, until in gaps(recorded, shown)}

    for at in shown.starts():
        if at in missed:
            yield _gap(missed[at], at)

        if at in steps:
            point = counts.get(at, Point(at, None, None))
            yield _row(shown, point, of_queue.get(at))


def _gap(since: datetime, until: datetime) -> Row:
    """Return the row of a time in which nothing was recorded."""
    length = duration((until - since).total_seconds())
    blank: Row = dict.fromkeys(COLUMNS, "")
    blank["at"] = f"({length} gap)"
    return blank


def _row(shown: Period, point: Point, depth: QueuePoint | None) -> Row:
    row = listed(point)
    row["at"] = _time(point.at, shown)

    for name in TIMES:
        row[name] = seconds(row[name])
    for name in DEPTHS:
        row[name] = getattr(depth, name, "")

    return row


def _time(at: datetime, shown: Period) -> str:
    local = at.astimezone()
    is_short = shown.until - shown.since < DAY
    return f"{local:%H:%M}" if is_short else f"{local:%m-%d %H:%M}"


def seconds(value: float | None) -> str:
    """Format a time: 2.52 ms, 4.2 s, 3 min."""
    if value is None:
        return ""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < SHORT_SECONDS:
        return f"{value:.1f} s"
    return duration(value)


def _show_marks(
    conn: Connection,
    since: datetime,
    queue: str | None,
    kind: str | None,
    as_json: bool,
) -> tuple[list[Row], Sequence[str]]:
    """Return the marks as rows, and the columns of their table."""
    marks = read_marks(conn, since, now_of(conn), queue, kind)
    if as_json:
        return [mark_row(mark) for mark in marks], MARK_COLUMNS
    return [_mark_for_people(mark) for mark in marks], MARK_COLUMNS


def _mark_for_people(mark: Mark) -> Row:
    local = mark.at.astimezone()
    return {
        "at": f"{local:%Y-%m-%d %H:%M:%S}",
        "change": sentence(mark),
        "audit": mark.line,
    }
