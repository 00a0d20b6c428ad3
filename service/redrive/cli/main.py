"""The command group, and the conversion of an error to one line and an exit code."""

import os
import signal
import sys
from collections.abc import Sequence
from io import StringIO

import click
import psycopg

from redrive.cli.support.connection import explain
from redrive.cli.support.exits import Exit
from redrive.cli.support.lazy import LazyGroup, missing, with_help
from redrive.cli.support.misplaced import plain, where_it_goes
from redrive.errors import CannotImport, RedriveError
from redrive.rules.nearest import nearest
from redrive.rules.payloads.escape import escaped, escaped_lines

COMMANDS = {
    "worker": "redrive.cli.operations.worker",
    "migrate": "redrive.cli.operations.migrate",
    "check": "redrive.cli.operations.check",
    "enqueue": "redrive.cli.jobs.enqueue",
    "job": "redrive.cli.jobs.job",
    "batch": "redrive.cli.jobs.batch",
    "queue": "redrive.cli.jobs.queue",
    "schedule": "redrive.cli.jobs.schedule",
    "limit": "redrive.cli.jobs.limit",
    "dlq": "redrive.cli.dead_letters.dlq",
    "campaign": "redrive.cli.dead_letters.campaign",
    "purge": "redrive.cli.dead_letters.purge",
    "retention": "redrive.cli.operations.retention",
    "top": "redrive.cli.operations.top",
    "audit": "redrive.cli.operations.audit",
    "breaker": "redrive.cli.jobs.breaker",
    "policy": "redrive.cli.jobs.policy",
    "objective": "redrive.cli.operations.objective",
    "owner": "redrive.cli.operations.owner",
    "exporter": "redrive.cli.operations.exporter",
}
"""Commands of the core: name -> the module with the function of this name.

Modules are imported when used, so that each command starts fast. The commands of extras
are entry points of `redrive.commands`.
"""


class _Group(LazyGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known:
            suggestion = nearest(name, known)
            if suggestion:
                ctx.fail(f"No such command {name!r}. Did you mean {suggestion!r}?")

        return super().resolve_command(ctx, args)


_CODES = "; ".join(f"{code:d} {code.meaning}" for code in Exit)


@click.group(
    cls=_Group,
    core=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Exit codes: {_CODES}.",
)
@click.version_option(package_name="redrive", prog_name="redrive")
def cli() -> None:
    """Run background jobs from Postgres, and redrive the failed ones safely.

    \b
    REDRIVE_DATABASE_URL, or --database-url of each command, names the database.
    A first look:        redrive queue ls
    Why a job waits:     redrive job ls;  redrive job show ID
    What died, and why:  redrive dlq ls;  redrive dlq show ID
    Back to work:        redrive dlq redrive --kind KIND --why 'fixed in 1.4.2'
    Very many of them:   redrive campaign plan --kind KIND
                         redrive campaign start PLAN
    Shell completion:    eval "$(_REDRIVE_COMPLETE=bash_source redrive)"
                         or zsh_source, or fish_source
    """


with_help(cli)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    signal.signal(signal.SIGTERM, _stop)
    if arguments is None:
        arguments = sys.argv[1:]

    typed = list(arguments)
    try:
        return _run_or_explain(typed)
    except OSError as error:
        _leave_output()
        # The reader of our output has gone, as with `| head`.
        return Exit.FAILED if isinstance(error, BrokenPipeError) else _report(error)


def _run_or_explain(typed: list[str]) -> int:
    try:
        return _run(typed)
    except click.exceptions.NoArgsIsHelpError as error:
        return _show_help(error)
    except click.ClickException as error:
        return _show_usage(error)
    except ModuleNotFoundError as error:
        text = missing(error, typed)
        if text is None:
            raise
        click.echo(f"redrive: {escaped(text)}", err=True)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt, RedriveError, psycopg.Error) as error:
        return _report(error)


def _leave_output() -> None:
    """Drop what stdout does not take: Python flushes it at its end, and would fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_help(error: click.exceptions.NoArgsIsHelpError) -> Exit:
    text = error.format_message()
    if error.ctx:
        text = error.ctx.get_help()

    click.echo(text)
    return Exit.USAGE


def _show_usage(error: click.ClickException) -> Exit:
    shown = StringIO()
    plain(where_it_goes(error)).show(shown)
    click.echo(escaped_lines(shown.getvalue()), err=True, nl=False)

    return Exit.USAGE


def _run(arguments: list[str]) -> int:
    is_colourless = bool(os.environ.get("NO_COLOR"))
    result = cli.main(
        args=arguments,
        prog_name="redrive",
        # Otherwise click prints errors and ends the process with its own exit codes.
        standalone_mode=False,
        color=False if is_colourless else None,  # None: only on a terminal
    )
    return result if isinstance(result, int) else Exit.DONE


def _report(error: BaseException) -> Exit:
    code, text = explain(error)
    # The text of CannotImport has lines of its own: the place in the user's code.
    escape = escaped_lines if isinstance(error, CannotImport) else escaped
    click.echo(f"redrive: {escape(text)}", err=True)

    return code


def _stop(_number: int, _frame: object) -> None:
    """End a one-shot command at SIGTERM.

    As process 1 of a container, it would ignore the signal by default.
    """
    raise KeyboardInterrupt
