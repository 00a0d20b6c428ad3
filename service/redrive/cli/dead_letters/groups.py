"""Commands of `redrive dlq` about groups: list, mute."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.exits import Exit
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import (
    Change,
    Duration,
    acting_options,
    database_option,
    json_option,
    pager_option,
    settings_of_cells,
)
from redrive.cli.support.output import listing, not_found, paged, printable
from redrive.dead_letters import groups
from redrive.dead_letters.filter import CATEGORIES

if TYPE_CHECKING:
    from redrive.settings import Settings


COLUMNS = (
    "open",
    "total",
    "kind",
    "category",
    "error_class",
    "message",
    "last_seen",
    "group",
)


@click.command("groups")
@click.option("--kind", multiple=True, metavar="KIND", help="Kind of job.")
@click.option(
    "--category", multiple=True, type=click.Choice(CATEGORIES), help="Category."
)
@click.option(
    "--new-since",
    metavar="VERSION",
    help="First seen after the first failure of this image version.",
)
@click.option(
    "--closed", is_flag=True, help="Include groups with no open dead letter left."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most this many.")
@database_option
@json_option
@pager_option
def list_groups(database_url: str | None, as_json: bool, **options: Any) -> int:
    """List the causes of dead letters, the most frequent first.

    \b
    redrive dlq groups --category bug --new-since 1.4.2
    """
    cells = settings_of_cells(database_url)
    answers, code = ask_each(cells, lambda settings: _find(settings, options))
    found = [cell | group for cell, groups in answers for group in groups]
    found.sort(key=itemgetter("open"), reverse=True)
    found = found[: options["limit"]]
    rows = found if as_json else map(_for_people, found)
    columns = ("cell", *COLUMNS) if len(cells) > 1 else COLUMNS
    right = ("open", "total")
    empty = "no open dead letters"
    with paged():
        listing(
            rows,
            columns,
            as_json=as_json,
            right=right,
            empty=empty,
        )
    return code


def _for_people(group: dict[str, Any]) -> dict[str, Any]:
    shown = dict(group)
    if group["muted_until"]:
        shown["group"] += " (muted)"
    if group["quarantined"]:
        shown["open"] = f"{group['open']} ({group['quarantined']} quarantined)"
    return shown


def _find(settings: "Settings", options: Mapping[str, Any]) -> list[dict[str, Any]]:
    with database(settings) as conn:
        found = groups.find(conn, **options)
        if not found:
            say_unknown(conn, kind=options["kind"])
        return found


@click.command()
@click.argument("group")
@click.option(
    "--for",
    "length",
    type=Duration(),
    default="1d",
    show_default=True,
    help="How long.",
)
@click.option("--off", is_flag=True, help="Unmute it.")
@acting_options
def mute(group: str, length: float, off: bool, change: Change) -> int:
    """Leave a group out of redrives for a while.

    \b
    redrive dlq mute 3f9a --for 2h --why 'the fix is being rolled out'
    """
    until = None if off else datetime.now(UTC) + timedelta(seconds=length)
    with database(change.settings) as conn:
        found = groups.show(conn, group)
        if found is None:
            return missing(group)
        change.agree(_question(found["open"], group, until))
        name, actor = found["group"], change.settings.who()
        if not groups.mute(
            conn,
            name,
            until,
            actor=actor,
            why=change.why,
        ):
            return missing(group)
    click.echo(f"{group} is {_muted(until)}")
    return Exit.DONE


def _question(count: int, group: str, until: datetime | None) -> str:
    what = f"{count} open dead letters of {printable(group)}"
    return f"Mute {what} until {printable(until)}" if until else f"Unmute {what}"


def _muted(until: datetime | None) -> str:
    return f"muted until {printable(until)}" if until else "no longer muted"


def missing(group: str) -> Exit:
    """Report that there is no such group; return the exit code."""
    return not_found(f"no group begins with {printable(group)}, or more than one does")
