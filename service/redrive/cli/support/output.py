"""Output of commands: tables for people, JSON lines for machines."""

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from typing import Any, cast

import click
import msgspec

from redrive.cli.support.exits import Exit
from redrive.cli.support.fit import GAP, Fit, fit
from redrive.cli.support.terminal import printed
from redrive.rules.brief import brief, clamped
from redrive.rules.cells import id_in_cell
from redrive.rules.instants import span
from redrive.rules.payloads.escape import escaped
from redrive.rules.rows import Fields, Row

HEAD_LINES = 3
PIPE_WIDTH = 200
SHOWN_CELL = "redrive.shown_cell"
"""Key in a command's context: the cell of all ids that the command prints."""
ID_COLUMNS = frozenset({"id", "campaign", "sample", "last_job"})
JSON = "redrive.json"
"""Key in a command's context: whether it prints JSON."""
PAGED = "redrive.paged"
"""Key in a command's context: whether long lists are shown in a pager."""


def wants_json() -> bool:
    """Return whether the user gave --json."""
    return bool(_kept(JSON))


def shown_cell() -> str | None:
    """Return the cell of all ids that this command prints; None without cells."""
    return _kept(SHOWN_CELL)


def _kept(key: str) -> Any:
    """Return a value of the command's context; None if it has none."""
    context = click.get_current_context(silent=True)
    if context is None:
        return None

    return context.meta.get(key)


def shown_id(number: int) -> str:
    """Return an id for people: eu:17, or 17 without cells."""
    return id_in_cell(number, shown_cell())


def _of_cell(row: Fields, column: str) -> Any:
    """Return a field; an id with its cell, if cells are on."""
    value = row[column]
    if column not in ID_COLUMNS or not isinstance(value, int):
        return value

    return id_in_cell(value, row.get("cell") or shown_cell())


def emit(value: Any) -> None:
    """Print one JSON line; if cells are on, an object names its cell."""
    cell = shown_cell()
    if cell is not None and isinstance(value, dict):
        value = {"cell": cell} | cast("Row", value)

    click.echo(escaped(msgspec.json.encode(value, enc_hook=str).decode()))


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
    cells = [list(map(_cell, columns, row)) for row in rows]
    if not cells:
        click.echo(empty)
        return

    names = [column.replace(" ", "_") for column in columns]
    fitted = fit(names, cells, screen_width())
    lines = _drawn(columns, cells, right, fitted)

    for line in lines[:HEAD_LINES]:
        click.echo(line)

    # The drawn table ends with an empty line, which belongs to no row.
    for line, row in zip(lines[HEAD_LINES:], cells, strict=False):
        click.echo(line)
        text = ": ".join(row[i] for i in fitted.below if row[i])
        if text:
            click.echo(f"      {clamped(text, screen_width() - 6)}")

    left_out = ", ".join(fitted.left_out).replace("_", " ")
    click.echo(left_out and f"\nnot shown, for lack of width: {left_out}")


def screen_width() -> int:
    """Return how wide a table may be."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return PIPE_WIDTH


def wrapped(text: str, indent: str = "") -> str:
    """Break a line for people between words, if a terminal would break it anywhere.

    Args:
        indent: what begins all lines but the first.
    """
    if not sys.stdout.isatty():
        return text

    return textwrap.fill(
        text,
        screen_width(),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _drawn(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[str],
    fitted: Fit,
) -> list[str]:
    """Return the fitted columns of a table as lines of text."""
    from rich.box import SIMPLE_HEAD, Box  # noqa: PLC0415 # only for people
    from rich.console import Console  # noqa: PLC0415 # as above
    from rich.table import Table  # noqa: PLC0415 # as above
    from rich.text import Text  # noqa: PLC0415 # as above

    # "ascii" keeps this shape in every encoding; the streams have stand-ins for its lines.
    box = Box(str(SIMPLE_HEAD), ascii=True)
    drawn = Table(box=box, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for i, width in zip(fitted.beside, fitted.widths, strict=True):
        title = columns[i].replace("_", " ")
        side = "right" if columns[i] in right else "left"
        drawn.add_column(
            title, justify=side, overflow="ellipsis", no_wrap=True, width=width
        )

    for row in cells:
        drawn.add_row(*(Text(row[i]) for i in fitted.beside))

    color = None if os.environ.get("NO_COLOR") else "auto"
    console = Console(width=screen_width(), color_system=color)
    with console.capture() as captured:
        console.print(drawn)

    text: str = captured.get()
    return text.splitlines()


def _cell(column: str, value: Any) -> str:
    """Format a cell: an instant relative to now, a message on one line."""
    if isinstance(value, datetime):
        return relative(value, datetime.now(UTC))
    if column == "message" and isinstance(value, str):
        value = brief(value)

    return printed(printable(value))


def relative(instant: datetime, now: datetime) -> str:
    """Format an instant relative to now: 3 min ago, in 2 h, now."""
    seconds = (instant - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    if seconds > 0:
        return f"in {span(seconds)}"

    return f"{span(-seconds)} ago"


def printable(value: Any) -> str:
    """Return text from a job on one line, safe for a terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return printable_json(value)

    return escaped(str(value))


def printable_fields(row: Fields) -> dict[str, str]:
    """Return all fields of a row as `printable`, for a template."""
    return {name: printable(value) for name, value in row.items()}


def bold(text: str) -> str:
    """Return text in bold, for a terminal."""
    return click.style(text, bold=True)


def printable_json(value: Any) -> str:
    """Return a value as JSON on one line, safe for a terminal."""
    return escaped(json.dumps(value, ensure_ascii=False, default=str))


def printable_facts(facts: Fields) -> str:
    """Return the known facts by name on one line: attempt 1; worker mail-1."""
    return "; ".join(
        f"{name.replace('_', ' ')} {printable(value)}"
        for name, value in facts.items()
        if value is not None
    )


def not_found(what: str) -> Exit:
    """Report on stderr that something does not exist; return the exit code."""
    warn(what)
    return Exit.NOTHING_MATCHED


def warn(text: str) -> None:
    """Print a warning to stderr, which leaves stdout to the result."""
    click.echo(escaped(f"redrive: {text}"), err=True)


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
