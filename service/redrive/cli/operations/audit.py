"""redrive audit: show and export the audit log, and verify that it is unchanged."""

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any

import click

from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import (
    Command,
    Instant,
    database_option,
    json_option,
    pager_option,
    settings_for,
    with_options,
)
from redrive.cli.support.output import emit, listing, paged
from redrive.database import audit as log

COLUMNS = ("id", "at", "actor", "login", "action", "n", "why")


class _SealType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    name = "line:hash"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> log.Seal:
        line, _, seal = str(value).partition(":")
        if not line.isdigit() or not seal:
            self.fail(
                f"{value!r} is not a line and its seal; write 812:3fa9...", param, ctx
            )
        return log.Seal(int(line), seal.lower())


def _choice_options(command: Command) -> Command:
    """Add options that select lines; the command gets them as `chosen`."""

    @wraps(command)
    def choose(
        *,
        since: datetime | None,
        until: datetime | None,
        actor: str | None,
        login: str | None,
        action: str | None,
        **options: Any,
    ) -> object:
        return command(chosen=log.Choice(since, until, actor, login, action), **options)

    options: list[Callable[[Command], Command]] = [
        click.option(
            "--since", type=Instant(), help="At or after: an instant, or 2h ago."
        ),
        click.option("--until", type=Instant(), help="Before: an instant, or 2h ago."),
        click.option("--actor", metavar="NAME", help="Who they said they were."),
        click.option("--login", metavar="NAME", help="Who was logged in to Postgres."),
        click.option(
            "--action", metavar="NAME", help="What was done: redrive, purge, pause, ..."
        ),
    ]
    return with_options(options, choose)


@click.group()
def audit() -> None:
    """List who changed what, when and why."""


@audit.command("ls")
@_choice_options
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@database_option
@json_option
@pager_option
def list_lines(
    chosen: log.Choice, limit: int, database_url: str | None, as_json: bool
) -> None:
    """List the audit log, the newest line first.

    \b
    redrive audit ls --since 7d --action redrive

    The actor is who they said they were, the login who Postgres knew they were. A redrive, a purge
    and a re-encryption have two lines: one at the beginning, one at the end with what came of it.
    --json has the detail as well.
    """
    with database(settings_for(database_url)) as conn:
        found = log.newest(conn, chosen, limit)
    with paged():
        listing(found, COLUMNS, as_json=as_json, right=("id", "n"), empty="no line")


@audit.command()
@_choice_options
@database_option
def export(chosen: log.Choice, database_url: str | None) -> None:
    """Print the log as JSON lines with their seals, oldest first.

    \b
    redrive audit export --since 2026-01-01 > audit.jsonl
    """
    with database(settings_for(database_url)) as conn:
        for line in log.lines(conn, chosen):
            emit(line)


@audit.command()
@click.option(
    "--known",
    type=_SealType(),
    metavar="LINE:HASH",
    help="A line whose seal was kept elsewhere, as this command printed it.",
)
@database_option
@json_option
def verify(known: log.Seal | None, database_url: str | None, as_json: bool) -> int:
    """See whether the audit log is as it was written.

    \b
    redrive audit verify --known 812:3fa9...

    Each line is sealed with the one before it: a line that was changed, added or deleted shows,
    whoever did it. Whoever may do anything could seal all lines anew; keep what this prints where
    they cannot reach it, and give it to --known later. Exit code 1 when something is wrong.
    """
    with database(settings_for(database_url)) as conn:
        count, fault = log.verify(conn)
        if fault is None and known is not None:
            fault = log.compare(conn, known)
        seal = log.newest_seal(conn)
    if as_json:
        emit({"ok": fault is None, "lines": count, "fault": fault, **seal._asdict()})
    else:
        click.echo(
            fault or f"{count} lines are as they were written, the newest is {seal}"
        )
    return Exit.FAILED if fault else Exit.DONE
