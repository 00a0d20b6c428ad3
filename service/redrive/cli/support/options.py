"""Shared options, and the types of their values."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from redrive.cli.support.completion import CELL
from redrive.cli.support.connection import database
from redrive.cli.support.output import JSON, PAGED, SHOWN_CELL
from redrive.cli.support.terminal import confirm
from redrive.rules.cells import parted
from redrive.rules.instants import instant
from redrive.rules.instants import seconds as seconds_of
from redrive.rules.rows import Signed

if TYPE_CHECKING:
    from redrive.database.connections.cells import Cell
    from redrive.settings import Settings

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class InOrder(click.Group):
    """Group that lists its commands in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # of the interface
        """Return the names of the commands."""
        return list(self.commands)


class Duration(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    """Duration such as 30d, 12h, 5m or 10s; the value is seconds as a float."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the value."""
        seconds = value if isinstance(value, int | float) else seconds_of(str(value))
        if seconds is None:
            self.fail(
                f"{value!r} is not a duration; write 30d, 12h, 5m or 10s", param, ctx
            )

        return float(seconds)


class Every(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # as above
    """Interval between scheduled runs: a duration or a cron expression; 0 = never."""

    name = "every"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the value."""
        text = str(value).strip()
        if text == "never":
            return 0.0

        from redrive.rules.schedules import longest_gap  # noqa: PLC0415 # it brings cronsim

        seconds = value if isinstance(value, int | float) else seconds_of(text)
        if seconds is not None:
            return float(seconds)

        try:
            return longest_gap(text).total_seconds()
        except ValueError as error:
            hint = "write 1d, 15m, '17 3 * * *', @weekly, or never"
            self.fail(f"{error}; {hint}", param, ctx)


class Instant(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # as above
    """Instant in ISO 8601, or a duration ago (2h). UTC unless it names a zone."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Parse the value."""
        if isinstance(value, datetime):
            return value
        try:
            return instant(str(value), datetime.now(UTC))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Id(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # as above
    """Id of a job or a campaign: 17, or eu:17, which also selects the cell."""

    name = "id"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse the value, and keep its cell."""
        if isinstance(value, int):
            return value

        cell, number = parted(str(value))
        if not number.isdecimal():
            self.fail(f"{value!r} is not an id; write 17, or eu:17", param, ctx)
        if cell is not None:
            keep_cell(cell)

        return int(number)


id_argument: Decorator = click.argument("which", metavar="ID", type=Id())


def keep_cell(cell: str) -> None:
    """Keep the cell of this command.

    Raises:
        click.UsageError: another cell was kept before.
    """
    known = click.get_current_context().meta.setdefault(CELL, cell)
    if known != cell:
        raise click.UsageError(
            f"cells {known} and {cell} are named; a command works on one cell"
        )


def _keep_cell(_context: click.Context, _: click.Parameter, cell: str | None) -> None:
    if cell is not None:
        keep_cell(cell)


def database_option(command: Command) -> Command:
    """Add the options that name the database; the command gets `database_url`.

    Most commands use `conn_options`, `settings_options` or `cells_options` instead.
    """
    options = [
        click.option(
            "--database-url",
            metavar="URL",
            help="URL of the Postgres database. [env: REDRIVE_DATABASE_URL, ..._FILE]",
        ),
        click.option(
            "--cell",
            metavar="NAME",
            expose_value=False,
            callback=_keep_cell,
            help="Use this cell of REDRIVE_DATABASES. An id such as eu:17 names it,"
            " too. [env: REDRIVE_CELL]",
        ),
    ]
    return with_options(options, command)


def conn_options(command: Command) -> Command:
    """Add the options that name the database; the command gets `conn`, open."""

    @functools.wraps(command)
    def connect(*, settings: "Settings", **options: Any) -> object:
        with database(settings) as conn:
            return command(conn=conn, **options)

    return settings_options()(connect)


def settings_options(*flags: str) -> Decorator:
    """Add the options that name the database; the command gets `settings`.

    Args:
        flags: options of the command that are settings; it gets them only as such.
    """
    return lambda command: _reads("settings", settings_for, flags, command)


def cells_options(*flags: str) -> Decorator:
    """Add the options that name the database; the command gets `cells`.

    These are the settings of each cell. `flags` are as for `settings_options`.
    """
    return lambda command: _reads("cells", settings_of_cells, flags, command)


def _reads(
    name: str, read: Callable[..., object], flags: Sequence[str], command: Command
) -> Command:
    @functools.wraps(command)
    def start(*, database_url: str | None, **options: Any) -> object:
        chosen = {flag: options.pop(flag) for flag in flags}
        options[name] = read(database_url, **chosen)
        return command(**options)

    return database_option(start)


def _keep_json(context: click.Context, _: click.Parameter, as_json: bool) -> None:
    context.meta[JSON] = as_json


def _keep_pager(context: click.Context, _: click.Parameter, no_pager: bool) -> None:
    context.meta[PAGED] = not no_pager


json_option: Decorator = click.option(
    "--json",
    "as_json",
    is_flag=True,
    expose_value=False,
    callback=_keep_json,
    help="Print one JSON object per line.",
)
port_option: Decorator = click.option(
    "--http-port",
    type=click.INT,
    help="Port of /metrics, /livez and /readyz; 0 = none. [env: REDRIVE_HTTP_PORT;"
    " default: 9808]",
)
pager_option: Decorator = click.option(
    "--no-pager",
    is_flag=True,
    expose_value=False,
    callback=_keep_pager,
    help="Print a long list without a pager. The variable PAGER names the pager.",
)
actor_option: Decorator = click.option(
    "--actor",
    metavar="NAME",
    help="Your name in the audit log. [env: REDRIVE_ACTOR; default: USER@HOST]",
)


RUNS = (("migrate",), ("dlq", "redrive"), ("purge",))
"""Commands whose options are also environment variables."""


def settings_for(database_url: str | None = None, **flags: Any) -> "Settings":
    """Return the settings with the flags of this command.

    Raises:
        SettingsError: a value is not allowed, a variable is unknown, or several cells
            are configured and none is named.
    """
    settings = _read(database_url, **flags)
    if settings.databases or settings.cell:
        settings.address()  # refuse a bad address before asking the user anything
        _show_cell(settings.cells())
    return settings


def _show_cell(cells: "Sequence[Cell]") -> None:
    """Let output name the cell of each id, if all ids are of one cell."""
    if len(cells) == 1:
        click.get_current_context().meta[SHOWN_CELL] = cells[0].name


def settings_of_cells(database_url: str | None, **flags: Any) -> "list[Settings]":
    """Return the settings of every cell, as if each were named.

    Raises:
        SettingsError: a value is not allowed, or a variable is unknown.
    """
    settings = _read(database_url, **flags)
    found = settings.cells()
    _show_cell(found)
    cells = [settings.model_copy(update={"cell": cell.name}) for cell in found]

    # Without cells, there is one database, and the settings are its own.
    return cells or [settings]


def _read(database_url: str | None, **flags: Any) -> "Settings":
    from redrive.settings import load, refuse_unknown  # noqa: PLC0415 # --help reads none

    refuse_unknown(lambda: variables(click.get_current_context().find_root()))
    context = click.get_current_context()
    cell: str | None = context.meta.get(CELL)

    options = {
        param.name: param.opts[0] for param in context.command.params if param.name
    }
    settings = load(options, database_url=database_url, cell=cell, **flags)
    if database_url is None:
        return settings
    if cell is not None:
        raise click.UsageError("give --database-url or --cell, not both")

    # The URL names the database, so the cells of the environment do not count.
    return settings.model_copy(update={"databases": None, "cell": None})


def variables(root: click.Context) -> Iterator[str]:
    """Yield the environment variables for options of any command."""
    for path in RUNS:
        command: click.Command | None = root.command
        for name in path:
            assert isinstance(command, click.Group)  # noqa: S101 # by RUNS
            command = command.get_command(root, name)

        assert command is not None  # noqa: S101 # as above
        for param in command.params:
            variable = param.envvar
            if isinstance(variable, str):
                yield variable


def require_why(why: str | None) -> str:
    """Return the reason without blanks around it.

    Raises:
        click.UsageError: there is no reason, and every change needs one.
    """
    if why is None or not why.strip():
        raise click.UsageError(
            "--why is missing; give the reason, which the audit log keeps"
        )
    return why.strip()


def reveal_options(command: Command) -> Command:
    """Add the options to see secrets; the command gets `reveal`, None = redacted."""

    @functools.wraps(command)
    def act(*, reveal: bool, why: str | None, yes: bool, **options: Any) -> object:
        if why is not None and not reveal:
            raise click.UsageError("--why is for --reveal, which is missing")

        chosen = Reveal(require_why(why), yes) if reveal else None
        return command(reveal=chosen, **options)

    shown = click.option(
        "--reveal",
        is_flag=True,
        help="Do not redact secrets. The audit log records who saw them, and why.",
    )
    why = why_option("required with --reveal")

    return with_options([shown, why, actor_option, _yes()], act)


@dataclass(frozen=True, slots=True)
class Reveal:
    """Request to see the secrets of a job. With `yes`, it asks for no confirmation."""

    why: str
    yes: bool

    def agree(self, settings: "Settings", job: str) -> None:
        """Ask for consent to show the secrets of a job, before it shows anything."""
        run = Run(settings, self.why, every=None, dry_run=False, yes=self.yes)
        if (
            run.consent(f"Show the payload of job {job} with its secrets?", "yes")
            is None
        ):
            raise click.UsageError("nothing was shown; without a terminal, add --yes")


def _yes(prefix: str | None = None) -> Decorator:
    return option(prefix, "--yes", is_flag=True, help="Do not ask for confirmation.")


def why_option(wanted: str, prefix: str | None = None, **more: Any) -> Decorator:
    """Add --why; `wanted` says when it is required."""
    text = f"Reason, for the audit log. [{wanted}]"
    return option(prefix, "--why", metavar="TEXT", help=text, **more)


def option(prefix: str | None, flag: str, *name: str, **more: Any) -> Decorator:
    """Add an option; with a prefix also the environment variable PREFIX_FLAG.

    Jobs and CronJobs set these variables. `name` and `more` are click's.
    """
    variable = flag.removeprefix("--").replace("-", "_").upper()
    return click.option(flag, *name, envvar=prefix and f"{prefix}_{variable}", **more)


def with_options(options: Sequence[Decorator], command: Command) -> Command:
    """Add options, in the order in which help shows them."""
    for add in reversed(options):
        command = add(command)
    return command


@dataclass(frozen=True, slots=True)
class Run:
    """Run that changes many rows, as its options or environment request it.

    Attributes:
        every: seconds between two scheduled runs; None = not scheduled; 0 = no alert.
        dry_run: only preview.
        yes: do not ask for confirmation.
    """

    settings: "Settings"
    why: str | None
    every: float | None
    dry_run: bool
    yes: bool

    @property
    def acts(self) -> bool:
        """Return True if the user has agreed beforehand."""
        return self.yes and not self.dry_run

    def consent(self, question: str, word: str) -> str | None:
        """Return the reason for the run after consent; None = only preview.

        Args:
            word: text that the user types to agree.

        Raises:
            click.UsageError: the run needs a reason and has none.
        """
        if self.dry_run:
            return None
        if self.yes:
            return require_why(self.why)
        if not confirm(question, word):
            return None

        return require_why(self.why or click.prompt("Why"))

    def signed(self, why: str) -> Signed:
        """Return who makes the changes of the run, and why."""
        return Signed(actor=self.settings.who(), why=why)

    def unchanged(self) -> str:
        """Return the text for a run that only showed what it would do."""
        hint = "" if self.dry_run else "; add --yes to do it"
        return f"nothing was changed{hint}"


def run_options(
    prefix: str | None = None,
    *,
    why: str | None = None,
    reason: Decorator | None = None,
) -> Decorator:
    """Add the options of a run; the command gets it as `run`.

    Args:
        prefix: prefix of the environment variables for the options; None = no
            variables, and the run is never scheduled.
        why: default of --why.
        reason: argument that has the reason, in place of --why.
    """
    wanted = f"default: {why}" if why else "required to act"
    every = option(
        prefix,
        "--every",
        type=Every(),
        metavar="SCHEDULE",
        help="How often this is scheduled: 1d, or a cron expression. An alert fires if"
        " the runs stop.",
    )

    options = [
        reason or why_option(wanted, prefix, default=why),
        actor_option,
        *([every] if prefix else ()),
        option(prefix, "--dry-run", is_flag=True, help="Only show what would change."),
        _yes(prefix),
        database_option,
    ]
    return lambda command: with_options(options, _gets_run(command))


def plain_run_options(command: Command) -> Command:
    """Add the options of a change that needs no reason; the command gets it as `run`."""

    @functools.wraps(command)
    def start(*, actor: str | None, database_url: str | None, **others: Any) -> object:
        settings = settings_for(database_url, actor=actor)
        run = Run(settings, why="", every=None, dry_run=False, yes=True)
        return command(run=run, **others)

    return with_options([actor_option, database_option], start)


def _gets_run(command: Command) -> Command:
    @functools.wraps(command)
    def start(
        *,
        why: str | None,
        actor: str | None,
        dry_run: bool,
        yes: bool,
        database_url: str | None,
        every: float | None = None,
        **others: Any,
    ) -> object:
        settings = settings_for(database_url, actor=actor)
        return command(run=Run(settings, why, every, dry_run, yes), **others)

    return start
