"""What commands share: options that are settings, connections, tables for people and lines for
machines.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import click
import msgspec
import psycopg

from redrive.database import connect, migrate
from redrive.dead_letters.redrive import STATES, Filter
from redrive.errors import SchemaError, SchemaTooNew
from redrive.settings import Settings, load

logger = logging.getLogger("redrive.cli")

Command = TypeVar("Command", bound=Callable[..., Any])

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)\Z")
BELOW = ("error_class", "message")
HEAD_LINES = 3
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_CONTROL = dict.fromkeys((*range(32), *range(127, 160)), "�")


class Duration(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    """A length of time as 30d, 12h, 5m, 10s; seconds as a float."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        if isinstance(value, (int, float)):
            return float(value)
        found = _DURATION.match(str(value).strip())
        if not found:
            self.fail(f"{value!r} is no duration; write 30d, 12h, 5m or 10s", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


class Instant(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # as above
    """A point in time: ISO 8601, or a duration ago (2h)."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read it; without a zone it is UTC."""
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        found = _DURATION.match(text)
        if found:
            return datetime.now(UTC) - timedelta(seconds=float(found[1]) * _UNITS[found[2]])
        try:
            read = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{value!r} is no time; write 2026-03-01T12:00Z, or 2h for two hours ago",
                param,
                ctx,
            )
        return read if read.tzinfo else read.replace(tzinfo=UTC)


def database_option(command: Command) -> Command:
    """Add --database-url."""
    return click.option(
        "--database-url", metavar="URL", help="Postgres. [env: REDRIVE_DATABASE_URL, ..._FILE]"
    )(command)


def json_option(command: Command) -> Command:
    """Add --json."""
    return click.option(
        "--json", "as_json", is_flag=True, help="For machines: one JSON object per line."
    )(command)


def acting_options(command: Command) -> Command:
    """Add --why and --actor."""
    why = click.option("--why", metavar="TEXT", help="Why; the audit log keeps it.")
    actor = click.option(
        "--actor", metavar="NAME", help="Who. [env: REDRIVE_ACTOR; default: you, on this machine]"
    )
    return why(actor(command))


def filter_options(prefix: str | None = None) -> Callable[[Command], Command]:
    """Add the filters on dead letters; with a prefix each is also an environment variable, for Jobs
    and CronJobs.
    """

    def env(name: str) -> str | None:
        return None if prefix is None else f"{prefix}_{name.upper()}"

    def several(name: str, text: str, **more: Any) -> Callable[[Command], Command]:
        flag = f"--{name.replace('_', '-')}"
        return click.option(
            flag, name, multiple=True, metavar=name.upper(), help=text, envvar=env(name), **more
        )

    options = [
        click.option(
            "--id",
            "ids",
            multiple=True,
            type=click.INT,
            metavar="ID",
            help="Job id.",
            envvar=env("id"),
        ),
        several("kind", "Kind of job."),
        several("queue", "Queue."),
        several("reason", "Why it died: attempts_exhausted, not_retryable, ..."),
        several("category", "Category of its last failure: transient, bug, ..."),
        several("error_class", "Class of its last failure."),
        click.option(
            "--group",
            metavar="FINGERPRINT",
            help="Group; its beginning is enough.",
            envvar=env("group"),
        ),
        click.option(
            "--state",
            multiple=True,
            type=click.Choice([*STATES, "any"]),
            help="State.",
            envvar=env("state"),
        ),
        several("tenant", "Tenant."),
        several("environment", "Environment of the worker it failed on."),
        click.option(
            "--since",
            type=Instant(),
            metavar="TIME",
            help="Died since: 2h, or an instant.",
            envvar=env("since"),
        ),
        click.option(
            "--until", type=Instant(), metavar="TIME", help="Died before.", envvar=env("until")
        ),
        click.option(
            "--limit",
            type=click.IntRange(1),
            metavar="N",
            help="At most this many.",
            envvar=env("limit"),
        ),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def filter_from(options: Mapping[str, Any], *, states: Sequence[str] = ()) -> Filter:
    """The filter that the options describe; `states` when none is given."""
    chosen = tuple(cast("Sequence[str]", options.get("state") or ()))
    return Filter(
        ids=tuple(options.get("ids") or ()),
        kind=options.get("kind") or (),
        queue=options.get("queue") or (),
        reason=options.get("reason") or (),
        category=options.get("category") or (),
        error_class=options.get("error_class") or (),
        group=options.get("group"),
        state=() if "any" in chosen else chosen or tuple(states),
        tenant=options.get("tenant") or (),
        environment=options.get("environment") or (),
        since=options.get("since"),
        until=options.get("until"),
        limit=options.get("limit"),
    )


@contextmanager
def database(settings: Settings, *, any_schema: bool = False) -> Iterator[psycopg.Connection[Any]]:
    """An autocommit connection to a schema this program knows."""
    with connect.connect(settings.url(), name="redrive cli", statement_timeout="0") as conn:
        if not any_schema:
            migrate.require(conn)
        yield conn


UNREACHABLE_PATIENCE = 60.0
"""Seconds that a database may take to come up at least: it often starts beside its workers."""


def wait_for_schema(url: str, patience: float) -> None:
    """Wait until the database answers and has a schema this program knows; in a cluster all start
    at once.

    Raises:
        SchemaError, psycopg.OperationalError: it is still not so after `patience` seconds, or the
        schema is too new.
    """
    began = time.monotonic()
    while True:
        try:
            with connect.connect(url, name="redrive start") as conn:
                migrate.require(conn)
                return
        except (SchemaError, psycopg.OperationalError) as error:
            limit = (
                patience if isinstance(error, SchemaError) else max(patience, UNREACHABLE_PATIENCE)
            )
            if time.monotonic() - began > limit or isinstance(error, SchemaTooNew):
                raise
            what = "" if isinstance(error, SchemaError) else "the database is out of reach: "
            logger.warning("%s%s; trying again", what, first_line(error))
            time.sleep(1.0)


def first_line(error: Exception) -> str:
    """What went wrong in one line: libpq's own words go on with every address it tried, and never
    hold the password.
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


def settings_for(database_url: str | None = None, **flags: Any) -> Settings:
    """The settings with the flags of this command."""
    return load(database_url=database_url, **flags)


def require_why(why: str | None) -> str:
    """The why, or a usage error: what changes something says why."""
    if why is None or not why.strip():
        msg = "--why is missing: say why, the audit log keeps it"
        raise click.UsageError(msg)
    return why.strip()


def emit(value: Any) -> None:
    """One JSON line."""
    click.echo(msgspec.json.encode(value, enc_hook=str).decode())


def printable(value: Any) -> str:
    """Text from a job as a terminal may see it: control characters must not reach it."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return str(value).translate(_CONTROL)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Sequence[str] = (),
    empty: str = "none",
) -> None:
    """A table for people; on a pipe it is not cut to any width but COLUMNS.

    Where it does not fit, what a failure says goes on a line of its own: it is what people look
    for.
    """
    from rich.console import Console  # noqa: PLC0415 # only where people look

    shown = [[_cell(cell) for cell in row] for row in rows]
    if not shown:
        click.echo(empty)
        return
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200)
    drawn = _draw(columns, shown, right)
    needed = drawn.__rich_measure__(console, console.options.update(max_width=10_000)).maximum
    below = [n for n, column in enumerate(columns) if column in BELOW]
    if needed <= console.width or not below:
        console.print(drawn)
        return
    beside = [n for n in range(len(columns)) if n not in below]
    with console.capture() as captured:
        console.print(
            _draw([columns[n] for n in beside], [[row[n] for n in beside] for row in shown], right)
        )
    lines = captured.get().splitlines()
    click.echo("\n".join(lines[:HEAD_LINES]))
    for line, row in zip(lines[HEAD_LINES:], shown, strict=False):
        click.echo(f"{line}\n      " + ": ".join(row[n] for n in below))
    click.echo()


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> Any:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        drawn.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="ellipsis",
            no_wrap=True,
        )
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def _cell(value: Any) -> str:
    """As `printable`; of an instant of today the time is enough."""
    if (
        isinstance(value, datetime)
        and value.astimezone().date() == datetime.now().astimezone().date()
    ):
        return value.astimezone().strftime("%H:%M:%S")
    return printable(value)


def counted(n: int, one: str, many: str | None = None) -> str:
    """1 attempt, 2 attempts."""
    return f"{n} {one}" if n == 1 else f"{n} {many or one + 's'}"


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr while somebody watches."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda n: bar.advance(task, n)


def confirm(question: str, word: str, *, yes: bool) -> bool:
    """Whether to go on: --yes, or the word typed at a terminal. Without either, no."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return (
        click.prompt(f"{question} Type {word!r} to go on", default="", show_default=False) == word
    )
