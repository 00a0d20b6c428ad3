"""redrive series: counts and times over time, and what changed then."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import click

from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import Instant, conn_options, json_option, pager_option
from redrive.cli.support.output import emit, listing, screen_width, wants_json
from redrive.database.rows import Connection
from redrive.observability.marks import read_marks
from redrive.observability.series import (
    Point,
    QueuePoint,
    each_point,
    gaps,
    listed,
    now_of,
    read_queues,
    read_series,
    shortest,
)
from redrive.rules.marks import Mark, mark_row, sentence
from redrive.rules.rows import Row
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
NOTHING = "nothing is recorded; a worker or the exporter records each minute at its end"
SHORT_SECONDS = 60
DAY = timedelta(days=1)


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
@conn_options
@json_option
@pager_option
def series(  # its options
    queue: str | None,
    kind: str | None,
    since: datetime,
    are_marks: bool,
    conn: Connection,
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
    asked = _Asked(
        since=since,
        queue=queue,
        kind=kind,
    )
    show = _print_json if wants_json() else _print_table
    if not show(conn, asked, are_marks=are_marks):
        given = {"queue": queue, "kind": kind}
        names = {what: [name] for what, name in given.items() if name}
        say_unknown(conn, **names)


class _Asked(NamedTuple):
    """The part that was asked for; None = all queues or kinds."""

    since: datetime
    queue: str | None
    kind: str | None


def _print_json(conn: Connection, asked: _Asked, *, are_marks: bool) -> bool:
    """Print each object as it is read; return whether there was one."""
    since, queue, kind = asked
    if are_marks:
        rows = map(mark_row, read_marks(conn, since, now_of(conn), queue, kind))
    else:
        rows = map(listed, each_point(conn, shortest(conn, since), queue, kind))

    found = 0
    for row in rows:
        emit(row)
        found += 1

    return found > 0


def _print_table(conn: Connection, asked: _Asked, *, are_marks: bool) -> bool:
    """Print the table; return whether something happened in it."""
    if are_marks:
        marks = read_marks(conn, asked.since, now_of(conn), asked.queue, asked.kind)
        rows = [_mark_for_people(mark) for mark in marks]
        _print(rows, MARK_COLUMNS, "nothing changed")

        return bool(marks)

    rows, is_found = _steps(conn, asked)
    # Depths are recorded by queue, and not by kind.
    columns = COLUMNS if asked.kind is None else COLUMNS[: -len(DEPTHS)]
    _print(rows, list(_fitting(rows, columns)), NOTHING)

    return is_found


def _print(rows: Sequence[Row], columns: Sequence[str], empty: str) -> None:
    listing(
        rows,
        columns,
        right=COLUMNS[1:],
        empty=empty,
    )


def _steps(conn: Connection, asked: _Asked) -> tuple[list[Row], bool]:
    """Return a row for each step, and whether something happened in one."""
    now = now_of(conn)
    shown = period(asked.since, now, now, _most_steps())
    points = read_series(conn, shown, asked.queue, asked.kind)

    recorded = read_queues(conn, shown)
    depths = recorded
    if asked.queue is not None:
        depths = read_queues(conn, shown, asked.queue)

    return list(_rows(shown, points, recorded, depths)), bool(points)


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
    # A step is recorded even if only other queues had jobs in it.
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
    if shown.until - shown.since < DAY:
        return f"{local:%H:%M}"
    return f"{local:%m-%d %H:%M}"


def seconds(value: float | None) -> str:
    """Format a time: 2.52 ms, 4.2 s, 3 min."""
    if value is None:
        return ""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < SHORT_SECONDS:
        return f"{value:.1f} s"

    return duration(value)


def _mark_for_people(mark: Mark) -> Row:
    local = mark.at.astimezone()
    return {
        "at": f"{local:%Y-%m-%d %H:%M:%S}",
        "change": sentence(mark),
        "audit": mark.line,
    }
