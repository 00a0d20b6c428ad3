"""redrive audit: show and export the audit log, and verify that it is unchanged."""

from typing import Any

import click

from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.options import conn_options, json_option, pager_option
from redrive.cli.support.output import answer, emit, listing
from redrive.database import audit as log
from redrive.database.rows import Connection

COLUMNS = ("id", "at", "actor", "login", "action", "n", "why")


class _SealType(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    name = "line:hash"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> log.Seal:
        line, _, seal = str(value).partition(":")
        if not line.isdigit() or not seal:
            text = f"{value!r} is not a line and its seal; write 812:3fa9..."
            self.fail(text, param, ctx)

        return log.Seal(int(line), seal.lower())


@click.group()
def audit() -> None:
    """List who changed what, when and why."""


@audit.command("ls")
@filter_options(of=log.Choice)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@conn_options
@json_option
@pager_option
def list_lines(chosen: log.Choice, limit: int, conn: Connection) -> None:
    """List the audit log, the newest line first.

    \b
    redrive audit ls --since 7d --action redrive

    The actor is the name that the user gave. The login is the user's name in Postgres.
    A redrive, a purge and a re-encryption have two lines: one at the beginning, and one
    at the end with the result. --json also has the detail.
    """
    found = log.newest(conn, chosen, limit)

    listing(found, COLUMNS, right=("id", "n"), empty="no line")


@audit.command()
@filter_options(of=log.Choice)
@conn_options
def export(chosen: log.Choice, conn: Connection) -> None:
    """Print the log as JSON lines with their seals, oldest first.

    \b
    redrive audit export --since 2026-01-01 > audit.jsonl
    """
    for line in log.lines(conn, chosen):
        emit(line)


@audit.command()
@click.option(
    "--known",
    type=_SealType(),
    metavar="LINE:HASH",
    help="Line and seal that this command printed before, and that you kept elsewhere.",
)
@conn_options
@json_option
def verify(known: log.Seal | None, conn: Connection) -> int:
    """Check that nobody has changed the audit log.

    \b
    redrive audit verify --known 812:3fa9...

    The seal of each line includes the line before it. So the check finds each line that
    was changed, added or deleted. A user with all rights could seal all lines again. To
    find that too, keep the printed seal where such a user cannot reach it, and give it
    to --known later. Exit code 1: something is wrong.
    """
    count, fault = log.verify(conn)
    if fault is None and known is not None:
        fault = log.compare(conn, known)

    seal = log.newest_seal(conn)
    report = {"ok": fault is None, "lines": count, "fault": fault, **seal._asdict()}
    answer(report, fault or f"{count} lines are unchanged; the newest is {seal}")

    return Exit.FAILED if fault else Exit.DONE
