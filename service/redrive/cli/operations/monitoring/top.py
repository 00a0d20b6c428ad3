"""redrive top: what runs and what is wrong, live in a terminal."""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import psycopg

from redrive.cli.operations.monitoring.series import seconds
from redrive.cli.support.connection import database, explain
from redrive.cli.support.options import settings_options
from redrive.cli.support.output import counted, printable, screen_width
from redrive.console.pages.sections import figures
from redrive.database.rows import Connection
from redrive.dead_letters.grouping import groups
from redrive.live_jobs.surroundings import workers
from redrive.observability.series import Point, filled, now_of, read_queues, read_series
from redrive.rules.rows import Row
from redrive.rules.scheduling.instants import duration
from redrive.rules.sparkline import sparkline
from redrive.rules.times import MINUTE, Period, period

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redrive.settings import Settings

MINUTES = 20
RECENT = timedelta(minutes=MINUTES)
MOST_QUEUES = 12
MOST_WORKERS = 8
MOST_CAUSES = 5
MOST_TROUBLES = 5
COMPLETED, FAILED = "completed/min", "failed/min"
WIDE = 110
"""Columns of the screen from which there is room for long sparklines."""
WIDE_SPARK, NARROW_SPARK = MINUTES, 8
"""Minutes that a sparkline shows."""
QUIT = {b"q", b"Q", b""}
STYLES = {
    COMPLETED: "green",
    FAILED: "red",
    "dead": "red",
    "open": "red",
}
"""Colours of columns. A pipe gets no colours."""


class Screen(NamedTuple):
    """Figures of one screen.

    Attributes:
        at: the database's time.
        queues: the fullest first.
        points: the last minutes of each queue.
        causes: the largest groups of dead letters; None = this login may not read them.
    """

    at: datetime
    queues: Sequence[Row]
    points: Mapping[str, Sequence[Point]]
    workers: Sequence[Row]
    causes: Sequence[Row] | None
    troubles: Sequence[str]


@click.command()
@click.option("--once", is_flag=True, help="Print the figures once, and end.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Read the figures this often.",
)
@settings_options()
def top(once: bool, interval: float, settings: "Settings") -> None:
    """Show live what runs and what is wrong; q or Ctrl-C ends it.

    \b
    redrive top
    redrive top --once

    It shows what is wrong now, the queues with their last 20 minutes, the workers, and the largest
    groups of dead letters. Without a terminal it prints the figures once.
    """
    if once or not sys.stdout.isatty():
        with database(settings) as conn:
            screen = read(conn)

        _print(screen)
        return

    with _keys() as keys, suppress(KeyboardInterrupt):
        _follow(settings, interval, keys)


# ---------------------------------------------------------------------- reading


def read(conn: Connection) -> Screen:
    """Read the figures of one screen."""
    now = figures.now(conn)
    at = now_of(conn)
    last = last_minutes(conn, at)

    return Screen(
        at=at,
        queues=sorted(now["queues"], key=_fullness),
        points=_points(conn, last),
        workers=workers.find(conn),
        causes=_causes(conn),
        troubles=[text for text, _ in now["troubles"]],
    )


def last_minutes(conn: Connection, at: datetime) -> Period:
    """Return the last minutes that are over.

    A minute is recorded some seconds after its end. Until then it would look as if
    nothing happened in it, so it is left out.
    """
    last = period(
        at - RECENT - MINUTE,
        at - MINUTE,
        at,
        MINUTES + 1,
    )

    *_, latest = last.starts()
    recorded = read_queues(conn, last)
    if recorded and recorded[-1].at < latest:
        return last._replace(until=latest)

    return last


def _fullness(queue: Row) -> tuple[int, str]:
    held = queue["ready"] + queue["running"] + queue["retrying"]
    return -held, queue["queue"]


def _points(conn: Connection, last: Period) -> dict[str, Sequence[Point]]:
    """Return the last minutes of each queue, with zeros."""
    of_queue: dict[str, list[Point]] = {}

    for point in read_series(conn, last, by_queue=True):
        name = point.queue or ""
        of_queue.setdefault(name, []).append(point)

    return {name: filled(points, last) for name, points in of_queue.items()}


def _causes(conn: Connection) -> list[Row] | None:
    try:
        return groups.find(conn, limit=MOST_CAUSES)
    except psycopg.errors.InsufficientPrivilege:
        return None


# ---------------------------------------------------------------------- drawing


def draw(screen: Screen, width: int) -> "RenderableType":
    """Draw a screen of this many columns."""
    from rich.console import Group  # noqa: PLC0415 # only for people

    return Group(
        _headline(screen),
        _troubles(screen.troubles),
        _queues(screen, width),
        _workers(screen),
        _groups(screen.causes),
    )


def _headline(screen: Screen) -> "RenderableType":
    from rich.text import Text  # noqa: PLC0415 # as above

    sums = {
        name: sum(queue[name] for queue in screen.queues)
        for name in ("ready", "running", "retrying", "dead")
    }

    alive = sum(worker["state"] == "working" for worker in screen.workers)
    text = Text(f"{screen.at.astimezone():%H:%M:%S}   ", style="bold")

    for name, count in sums.items():
        text.append(f"{count:,} {name}   ")

    text.append(counted(alive, "worker"))
    return text


def _troubles(troubles: Sequence[str]) -> "RenderableType":
    from rich.text import Text  # noqa: PLC0415 # as above

    if not troubles:
        return Text("Nothing is wrong.", style="green")

    shown = list(troubles[:MOST_TROUBLES])
    more = len(troubles) - len(shown)
    if more > 0:
        shown.append(f"{more} more: redrive queue ls")

    lines = map(printable, shown)
    return Text("\n".join(lines), style="bold red")


def _table(title: str, *columns: str, right: Sequence[str] = ()) -> Any:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 # as above
    from rich.table import Table  # noqa: PLC0415 # as above

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )

    for column in columns:
        table.add_column(
            column,
            style=STYLES.get(column),
            justify="right" if column in right else "left",
            no_wrap=True,
            overflow="ellipsis",
        )

    return table


def _fill(table: Any, rows: Sequence[Sequence[Any]], most: int) -> Any:
    """Add rows, and say how many there are no room for. Without rows, say so."""
    from rich.text import Text  # noqa: PLC0415 # as above

    if not rows:
        return Text(f"{table.title}: none", style="bold")

    for row in rows[:most]:
        cells = [Text(printable(value)) for value in row]
        table.add_row(*cells)

    more = len(rows) - most
    if more > 0:
        table.caption = f"and {more} more"
        table.caption_justify = "left"

    return table


def _queues(screen: Screen, width: int) -> "RenderableType":
    is_wide = width >= WIDE
    numbers = ["ready", "running", "dead"]
    if is_wide:
        numbers.insert(2, "retrying")

    table = _table(
        "Queues",
        "queue",
        *numbers,
        COMPLETED,
        FAILED,
        "p95",
        right=(*numbers, COMPLETED, FAILED, "p95"),
    )
    rows = [
        _queue(
            queue,
            numbers=numbers,
            points=screen.points.get(queue["queue"], ()),
            spark=WIDE_SPARK if is_wide else NARROW_SPARK,
        )
        for queue in screen.queues
    ]

    return _fill(table, rows, MOST_QUEUES)


def _queue(
    queue: Row, numbers: Sequence[str], points: Sequence[Point], spark: int
) -> list[Any]:
    completed = [point.completed for point in points]
    failed = [point.failed for point in points]
    latest = next((p for p in reversed(points) if p.duration), None)

    return [
        queue["queue"] + (" (paused)" if queue["paused"] else ""),
        *(queue[name] for name in numbers),
        _spark(completed, spark),
        _spark(failed, spark),
        seconds(latest.duration_at(0.95)) if latest else "",
    ]


def _spark(values: Sequence[int], width: int) -> str:
    """Draw a sparkline with the number of the last minute."""
    last = values[-1] if values else 0
    return f"{sparkline(values, width)} {last:>4}"


def _workers(screen: Screen) -> "RenderableType":
    columns = ("worker", "version", "state", "jobs", "heard")
    table = _table("Workers", *columns, right=("jobs",))
    rows = [
        (
            worker["name"],
            worker["version"],
            worker["state"],
            f"{worker['inflight']}/{worker['slots'] or '?'}",
            f"{duration(worker['heartbeat_age_seconds'])} ago",
        )
        for worker in screen.workers
    ]

    return _fill(table, rows, MOST_WORKERS)


def _groups(causes: Sequence[Row] | None) -> "RenderableType":
    from rich.text import Text  # noqa: PLC0415 # as above

    if causes is None:
        return Text(
            "Causes of dead letters: this login may not read them",
            style="bold",
        )

    columns = ("open", "kind", "error", "message")
    table = _table("Causes of dead letters", *columns, right=("open",))
    rows = [
        (cause["open"], cause["kind"], cause["error_class"], cause["message"])
        for cause in causes
    ]

    return _fill(table, rows, MOST_CAUSES)


def _print(screen: Screen) -> None:
    from rich.console import Console  # noqa: PLC0415 # as above

    width = screen_width()
    console = Console(width=width)
    console.print(draw(screen, width))


# ---------------------------------------------------------------------- following


def _follow(settings: "Settings", interval: float, keys: "Keys") -> None:
    """Show the figures until q is typed; a lost connection is opened again."""
    from rich.live import Live  # noqa: PLC0415 # as above

    with Live(
        screen=True,
        auto_refresh=False,
        vertical_overflow="crop",
    ) as live:
        while True:
            try:
                _show_until_quit(live, settings, interval, keys)
            except psycopg.OperationalError as error:
                _, text = explain(error)
                live.update(printable(text), refresh=True)
                if keys.is_quit(interval):
                    return
            else:
                return


def _show_until_quit(
    live: Any, settings: "Settings", interval: float, keys: "Keys"
) -> None:
    with database(settings) as conn:
        while True:
            screen = read(conn)
            drawn = draw(screen, live.console.width)
            live.update(drawn, refresh=True)

            if keys.is_quit(interval):
                return


class Keys:
    """Keys that are typed. Input from a pipe has no keys."""

    was_interrupted = False

    def interrupt(self, *_: object) -> None:
        """Note Ctrl-C, and raise KeyboardInterrupt, which a query may swallow."""
        self.was_interrupted = True
        raise KeyboardInterrupt

    def is_quit(self, patience: float) -> bool:
        """Wait for a key; return True if it was q, or the terminal has gone."""
        if self.was_interrupted:
            return True
        if not sys.stdin.isatty():
            time.sleep(patience)
            return False

        ready, _, _ = select.select([sys.stdin], [], [], patience)
        return bool(ready) and _read_key() in QUIT


def _read_key() -> bytes:
    """Return the next key; nothing if the terminal has gone."""
    try:
        return os.read(sys.stdin.fileno(), 1)
    except OSError:
        return b""


@contextmanager
def _keys() -> Iterator[Keys]:
    """Read keys one by one, without Enter and without showing them; note Ctrl-C."""
    keys = Keys()
    signal.signal(signal.SIGINT, keys.interrupt)
    if not sys.stdin.isatty():
        yield keys
        return

    import termios  # noqa: PLC0415 # not on Windows
    import tty  # noqa: PLC0415 # as above

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin.fileno())

    try:
        yield keys
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
