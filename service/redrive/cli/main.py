"""The command group, and how an error becomes one line and an exit code.

| code | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | nothing matched where something had to |
| 64 | usage or settings |
| 69 | database out of reach |
| 75 | another one is at it |
| 78 | schema missing, too old or too new |
"""

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version

import click
import psycopg

from redrive.cli.common import first_line
from redrive.dead_letters.redrive import Busy
from redrive.errors import InvalidJob, RedriveError, SchemaError, SettingsError

FAILED, NOTHING, USAGE, UNREACHABLE, BUSY, SCHEMA = 1, 2, 64, 69, 75, 78

COMMANDS = {
    "worker": "redrive.cli.worker",
    "migrate": "redrive.cli.database",
    "check": "redrive.cli.database",
    "enqueue": "redrive.cli.enqueue",
    "queue": "redrive.cli.queue",
    "dlq": "redrive.cli.dlq",
    "purge": "redrive.cli.purge",
    "breaker": "redrive.cli.breaker",
    "policy": "redrive.cli.policy",
    "objective": "redrive.cli.objective",
    "exporter": "redrive.cli.exporter",
    "reencrypt": "redrive.cli.reencrypt",
    "demo": "redrive.cli.demo",
}
"""Command -> module with a function of that name; imported when it is used, so that each starts
fast.
"""


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        return getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(version("redrive"), prog_name="redrive")
def cli() -> None:
    """Run background jobs from Postgres, and get the failed ones back to work safely.

    \b
    The database is REDRIVE_DATABASE_URL, or --database-url of each command.
    A first look:        redrive queue ls
    What died, and why:  redrive dlq ls;  redrive dlq show ID
    Back to work:        redrive dlq redrive --kind KIND --why 'fixed in 1.4.2'
    Shell completion:    eval "$(_REDRIVE_COMPLETE=bash_source redrive)"   (or zsh_source, fish_source)
    """


def main(arguments: Sequence[str] | None = None) -> int:  # noqa: PLR0911 # one per exit code
    """Run a command. Returns its exit code."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name="redrive",
            standalone_mode=False,
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        return USAGE
    except click.ClickException as error:
        error.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return _say("stopped", FAILED)
    except (SettingsError, InvalidJob) as error:
        return _say(error, USAGE)
    except SchemaError as error:
        return _say(error, SCHEMA)
    except Busy as error:
        return _say(error, BUSY)
    except RedriveError as error:
        return _say(error, FAILED)
    except psycopg.OperationalError as error:
        if error.sqlstate is None:
            return _say("the database is out of reach: " + first_line(error), UNREACHABLE)
        return _say(_database_error(error), FAILED)
    except psycopg.Error as error:
        return _say(_database_error(error), FAILED)
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def _stop(_number: int, _frame: object) -> None:
    """A one-shot command ends at SIGTERM, also as process 1 of a container, where nothing does so
    by itself.
    """
    raise KeyboardInterrupt


def _say(what: object, code: int) -> int:
    click.echo(f"redrive: {what}", err=True)
    return code


def _database_error(error: psycopg.Error) -> str:
    """The server's message without its DETAIL, which holds values of rows."""
    return f"the database refused: {error.diag.message_primary or type(error).__name__} ({error.sqlstate})"
