"""The command group, and the conversion of an error to one line and an exit code."""

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from io import StringIO

import click
import psycopg

from redrive.cli.support.connection import explain
from redrive.cli.support.exits import Exit
from redrive.cli.support.misplaced import where_it_goes
from redrive.errors import CannotImport, RedriveError
from redrive.rules.nearest import nearest
from redrive.rules.payloads.escape import escaped, escaped_lines

COMMANDS = {
    "worker": "redrive.cli.operations.processes.worker",
    "migrate": "redrive.cli.operations.migrate",
    "check": "redrive.cli.operations.monitoring.check",
    "enqueue": "redrive.cli.jobs.enqueue",
    "job": "redrive.cli.jobs.job",
    "batch": "redrive.cli.jobs.batch",
    "queue": "redrive.cli.jobs.queue",
    "schedule": "redrive.cli.jobs.schedule",
    "limit": "redrive.cli.jobs.limit",
    "dlq": "redrive.cli.dead_letters.dlq",
    "campaign": "redrive.cli.dead_letters.campaign",
    "proposal": "redrive.cli.dead_letters.proposal",
    "purge": "redrive.cli.dead_letters.purge",
    "retention": "redrive.cli.operations.declarations.retention",
    "series": "redrive.cli.operations.monitoring.series",
    "top": "redrive.cli.operations.monitoring.top",
    "audit": "redrive.cli.operations.audit",
    "breaker": "redrive.cli.jobs.breaker",
    "policy": "redrive.cli.jobs.policy",
    "objective": "redrive.cli.operations.declarations.objective",
    "owner": "redrive.cli.operations.declarations.owner",
    "cell": "redrive.cli.operations.cell",
    "exporter": "redrive.cli.operations.processes.exporter",
    "gateway": "redrive.cli.operations.processes.gateway",
    "console": "redrive.cli.operations.processes.console",
    "mcp": "redrive.cli.operations.processes.mcp",
    "reencrypt": "redrive.cli.operations.reencrypt",
    "dev": "redrive.cli.operations.development.dev",
    "quickstart": "redrive.cli.operations.development.quickstart",
    "demo": "redrive.cli.operations.development.demo",
}
"""Maps a command to the module with its function.

Modules are imported when used, so that each command starts fast.
"""


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # of the interface
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 # as above
        if cmd_name not in COMMANDS:
            return None

        module = importlib.import_module(COMMANDS[cmd_name])
        return getattr(module, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS:
            suggestion = nearest(name, COMMANDS)
            if suggestion:
                ctx.fail(f"No such command {name!r}. Did you mean {suggestion!r}?")

        return super().resolve_command(ctx, args)


_CODES = "; ".join(f"{code:d} {code.meaning}" for code in Exit)


@click.group(
    cls=_Group,
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
    Very many of them:   redrive campaign plan --kind KIND;  redrive campaign start PLAN
    Shell completion:    eval "$(_REDRIVE_COMPLETE=bash_source redrive)"   (or zsh_, fish_source)
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    signal.signal(signal.SIGTERM, _stop)
    typed = sys.argv[1:] if arguments is None else list(arguments)

    try:
        return _run(typed)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        return Exit.USAGE
    except click.ClickException as error:
        text = StringIO()
        where_it_goes(error, typed).show(text)
        click.echo(escaped_lines(text.getvalue()), err=True, nl=False)
        return Exit.USAGE
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        # Python flushes stdout at its end, which would fail once more.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        return Exit.DONE
    except (click.Abort, KeyboardInterrupt, RedriveError, psycopg.Error) as error:
        return _report(error)


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
