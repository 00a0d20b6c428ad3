"""Output of commands: tables for people, JSON lines for machines."""

import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from itertools import compress
from typing import Any, NamedTuple, cast

import click
import msgspec

from redrive.cli.support.exits import Exit
from redrive.rules.payloads.escape import escaped
from redrive.rules.rows import Fields, Row
from redrive.rules.scheduling.cells import id_in_cell

BELOW = ("error_class", "message", "why", "start")
"""Columns that get lines of their own if a table is too wide."""
HEAD_LINES = 3
PIPE_WIDTH = 200
SHOWN_CELL = "redrive.shown_cell"
"""Key in a command's context: the cell of all ids that the command prints."""
ID_COLUMNS = frozenset({"id", "campaign", "sample", "last_job"})
JSON = "redrive.json"
"""Key in a command's context: whether it prints JSON."""
PAGED = "redrive.paged"
"""Key in a command's context: whether long lists are shown in a pager."""


class _Unit(NamedTuple):
    """Unit of a duration, and the shortest one that is written in it."""

    name: str
    size: int
    least: int


UNITS = (
    _Unit("d", 86_400, least=172_800),
    _Unit("h", 3_600, least=7_200),
    _Unit("min", 60, least=120),
    _Unit("s", 1, least=0),
)
"""Units from large to small: 2 d, 47 h, 2 min, 90 s."""


def wants_json() -> bool:
    """Return whether the user gave --json."""
    return bool(_kept(JSON))


def shown_cell() -> str | None:
    """Return the cell of all ids that this command prints; None without cells."""
    return _kept(SHOWN_CELL)


def _kept(key: str) -> Any:
    """Return a value of the command's context; None if it has none."""
    context = click.get_current_context(silent=True)
    return context.meta.get(key) if context else None


def shown_id(number: int) -> str:
    """Return an id for people: eu:17, or 17 without cells."""
    return id_in_cell(number, shown_cell())


def _of_cell(row: Fields, column: str) -> Any:
    """Return a field; an id with its cell, if cells are on."""
    value = row[column]
    if column not in ID_COLUMNS or not isinstance(value, int):
        return value

    cell = row.get("cell") or shown_cell()
    return id_in_cell(value, cell)


def emit(value: Any) -> None:
    """Print one JSON line; if cells are on, an object names its cell."""
    cell = shown_cell()
    if cell is not None and isinstance(value, dict):
        value = {"cell": cell} | cast("Row", value)

    encoded = msgspec.json.encode(value, enc_hook=str)
    line = escaped(encoded.decode())
    click.echo(line)


def emit_each(rows: Iterable[Any]) -> None:
    """Print each row as a JSON line."""
    for row in rows:
        emit(row)


def listing(
    rows: Iterable[Row],
    columns: Sequence[str] | Mapping[str, str],
    *,
    for_people: Callable[[Row], Row] = lambda row: row,
    right: Sequence[str] = (),
    empty: str = "none",
) -> None:
    """Print rows as JSON lines with all fields, or as a table of these columns.

    A long table is shown in a pager, if the command has the option for it.

    Args:
        columns: fields of the table, or its columns and the field of each.
        for_people: returns a row as the table shows it.
    """
    fields = columns.values() if isinstance(columns, Mapping) else columns
    # A generator, because JSON lines need no cells, and `rows` may be read only once.
    cells = (
        [_of_cell(row, field) for field in fields] for row in map(for_people, rows)
    )

    with paged():
        if wants_json():
            emit_each(rows)
        else:
            table(tuple(columns), cells, right=right, empty=empty)


@contextmanager
def paged() -> Iterator[None]:
    """Show long output in a pager, if the command has the option and a terminal.

    PAGER names the pager.
    """
    if not (sys.stdout.isatty() and _kept(PAGED)):
        yield
        return

    columns, lines = shutil.get_terminal_size()
    # Captured output is no terminal, so tables take their width from COLUMNS.
    os.environ.setdefault("COLUMNS", str(columns))

    with redirect_stdout(io.StringIO()) as captured:
        yield

    text = captured.getvalue()
    show = click.echo_via_pager if text.count("\n") >= lines else click.echo
    show(text.rstrip("\n"))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Sequence[str] = (),
    empty: str = "none",
) -> None:
    """Print a table for people; on a pipe it is as wide as COLUMNS or PIPE_WIDTH.

    Args:
        right: columns that are aligned to the right.
        empty: text in place of a table without rows.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        click.echo(empty)
        return

    console = _console()
    drawn = _draw(columns, cells, right)
    if _excess(console, drawn) <= 0:
        console.print(drawn)
    elif not set(BELOW) & set(columns):
        _print_cut(console, drawn)
    else:
        _print_in_two(console, columns, cells, right)


def screen_width() -> int:
    """Return how wide a table may be."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return PIPE_WIDTH


def _console() -> Any:
    from rich.console import Console  # noqa: PLC0415 # only for people

    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    color = None if os.environ.get("NO_COLOR") else "auto"

    return Console(width=None if has_width else PIPE_WIDTH, color_system=color)


def _excess(console: Any, drawn: Any) -> int:
    """Return how many characters the table is too wide; no cell is cut if it is 0."""
    # No table is that wide, so this measures each column at its full width.
    unbounded = console.options.update(max_width=10_000)
    return console.measure(drawn, options=unbounded).maximum - console.width


def _print_cut(console: Any, drawn: Any) -> None:
    """Print a table, with its widest columns cut. Short ones, such as ids, stay whole."""
    widths = [_width(column) for column in drawn.columns]
    for _ in range(_excess(console, drawn)):
        widest = widths.index(max(widths))
        widths[widest] -= 1

    for column, width in zip(drawn.columns, widths, strict=True):
        column.width = max(width, 1)

    console.print(drawn)


def _width(column: Any) -> int:
    from rich.cells import cell_len  # noqa: PLC0415 # only for people

    texts = map(str, column.cells)
    return max(map(cell_len, [column.header, *texts]))


def _print_in_two(
    console: Any,
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[str],
) -> None:
    """Print the table without the columns of BELOW, and these under each row."""
    is_below = [column in BELOW for column in columns]
    is_beside = [not below for below in is_below]

    beside = list(compress(columns, is_beside))
    rows = [list(compress(row, is_beside)) for row in cells]
    lines = _drawn_lines(console, beside, rows, right)

    for line in lines[:HEAD_LINES]:
        click.echo(line)

    # The drawn table ends with an empty line, which belongs to no row.
    for line, row in zip(lines[HEAD_LINES:], cells, strict=False):
        click.echo(line)
        below = filter(None, compress(row, is_below))
        if text := ": ".join(below):
            click.echo(f"      {text}")

    click.echo()


def _drawn_lines(
    console: Any,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
) -> list[str]:
    """Return a table as lines of text."""
    with console.capture() as captured:
        _print_cut(console, _draw(columns, rows, right))
    text: str = captured.get()
    return text.splitlines()


def _draw(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[str]
) -> Any:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 # only for people
    from rich.table import Table  # noqa: PLC0415 # as above
    from rich.text import Text  # noqa: PLC0415 # as above

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        title = column.replace("_", " ")
        side = "right" if column in right else "left"
        drawn.add_column(
            title,
            justify=side,
            overflow="ellipsis",
            no_wrap=True,
        )

    for row in cells:
        drawn.add_row(*map(Text, row))

    return drawn


def _cell(value: Any) -> str:
    """Format a cell as `printable` does, and an instant relative to now."""
    if isinstance(value, datetime):
        return relative(value, datetime.now(UTC))
    return printable(value)


def relative(instant: datetime, now: datetime) -> str:
    """Format an instant relative to now: 3 min ago, in 2 h, now."""
    seconds = (instant - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    if seconds > 0:
        return f"in {length(seconds)}"

    return f"{length(-seconds)} ago"


def length(seconds: float) -> str:
    """Format a duration in its largest accurate unit: 90 s, 2 min, 47 h, 30 d."""
    if 0 < seconds < 1:
        return f"{seconds:g} s"

    unit = next(unit for unit in UNITS if seconds >= unit.least)
    number = int(seconds // unit.size)

    return f"{number} {unit.name}"


def printable(value: Any) -> str:
    """Return text from a job on one line, safe for a terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return escaped(json.dumps(value, ensure_ascii=False, default=str))

    return escaped(str(value))


def printable_fields(row: Fields) -> dict[str, str]:
    """Return all fields of a row as `printable`, for a template."""
    return {name: printable(value) for name, value in row.items()}


def counted(n: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun: 1 attempt, 2 attempts."""
    if n == 1:
        return f"{n} {one}"
    return f"{n} {many or one + 's'}"


def not_found(what: str) -> Exit:
    """Report on stderr that something does not exist; return the exit code."""
    click.echo(f"redrive: {escaped(what)}", err=True)
    return Exit.NOTHING_MATCHED


def no_letter(job: int, what: str = "no dead letter") -> str:
    """Return the text about a job that has no such dead letter."""
    shown = shown_id(job)
    look = f"redrive job show {shown} shows what happened to it"
    return f"job {shown} has {what}; {look}"


def answer(report: Any, text: str | None) -> None:
    """Print the result of a command: a report as JSON, or a text for people.

    Without a text, people have seen the result already.
    """
    if wants_json():
        emit(report)
    elif text is not None:
        click.echo(text)
