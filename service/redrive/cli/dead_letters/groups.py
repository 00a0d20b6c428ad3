"""Commands of `redrive dlq` about groups: list, resolve, mute."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from redrive.cli.support.completion import Known
from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.exits import NotFound
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import cells_options, json_option, pager_option
from redrive.cli.support.output import listing
from redrive.cli.support.verbs import Asked, verb_options
from redrive.database.rows import Connection
from redrive.dead_letters.filter import CATEGORIES
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.groups.fixes import state_of, worded
from redrive.rules.rows import Fields, Row
from redrive.verbs.groups import GROUPS

if TYPE_CHECKING:
    from redrive.settings import Settings


COLUMNS = (
    "failing",
    "open",
    "total",
    "kind",
    "category",
    "error_class",
    "message",
    "last_seen",
    "state",
    "owner",
    "group",
)


@click.command("groups")
@click.option(
    "--kind", multiple=True, type=Known("kind"), metavar="KIND", help="Kind of job."
)
@click.option(
    "--category", multiple=True, type=click.Choice(CATEGORIES), help="Category."
)
@click.option(
    "--state",
    multiple=True,
    type=click.Choice(groups.STATES),
    help="State, with failing jobs and open dead letters or not.",
)
@click.option(
    "--new-since",
    type=Known("version"),
    metavar="VERSION",
    help="First seen after the first failure of this image version.",
)
@click.option("--owner", metavar="NAME", help="Owner: redrive owner ls.")
@click.option("--unacknowledged", is_flag=True, help="Nobody has acknowledged it.")
@click.option("--failing", is_flag=True, help="Only with failing jobs.")
@click.option("--dead", is_flag=True, help="Only with open dead letters.")
@click.option("--closed", is_flag=True, help="Include groups with none of either left.")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True)
@cells_options()
@json_option
@pager_option
def list_groups(cells: "Sequence[Settings]", **options: Any) -> int:
    """List the causes of dead letters and of failing jobs.

    \b
    redrive dlq groups --category bug --new-since 1.4.2
    redrive dlq groups --state regressed

    failing: live jobs that have failed for this cause and are retried.
    """
    most = options["limit"]
    # One more than is shown tells whether there are more.
    answers, code = ask_each(
        cells, lambda settings: _find(settings, {**options, "limit": most + 1})
    )
    found = [cell | group for cell, groups in answers for group in groups]
    found.sort(key=lambda group: group["failing"] + group["open"], reverse=True)
    if len(found) > most:
        click.echo(f"only the largest are listed; --limit is {most}", err=True)

    listing(
        found[:most],
        _columns(found, has_cell=len(cells) > 1),
        right=("failing", "open", "total"),
        empty=_empty(options),
        for_people=_for_people,
    )
    return code


def _columns(found: Sequence[Fields], *, has_cell: bool) -> list[str]:
    """Return the columns; leave out the state and the owner if no group has any."""
    shown = {
        "cell": has_cell,
        "failing": any(group["failing"] for group in found),
        "owner": any(group["owner"] for group in found),
        "state": any(state_of(group) != "open" for group in found),
    }
    return [name for name in ("cell", *COLUMNS) if shown.get(name, True)]


def _empty(options: Fields) -> str:
    """Return the text in place of a table without groups."""
    narrower = ("owner", "unacknowledged", "state", "failing", "dead")
    if any(options[name] for name in narrower):
        return "no such groups"
    return "no open dead letters, and no failing jobs"


def _for_people(group: Row) -> Row:
    shown = dict(group)
    shown["state"] = worded(group)

    if person := group["acknowledged_by"]:
        shown["message"] = f"acknowledged by {person}, {group['message']}"

    if group["muted_until"]:
        shown["group"] += " (muted)"

    if quarantined := group["quarantined"]:
        shown["open"] = f"{group['open']} ({quarantined} quarantined)"

    return shown


def _find(settings: "Settings", options: Fields) -> list[Row]:
    with database(settings) as conn:
        found = groups.find(conn, **options)
        if not found:
            say_unknown(conn, kind=options["kind"])
        return found


@click.command()
@verb_options(GROUPS["mute"])
@click.option("--off", is_flag=True, help="Unmute it.")
def mute(off: bool, asked: Asked) -> int:
    """Leave a group out of redrives for a while.

    \b
    redrive dlq mute 3f9a --for 2h --why 'the fix is being rolled out'
    """
    return asked.perform(GROUPS["unmute"] if off else None)


def the_group(conn: Connection, name: str) -> Row:
    """Return a group by the beginning of its name. Raises NotFound."""
    found = groups.show(conn, name)
    if found is None:
        raise NotFound(groups.missing(name, groups.named(conn, name)))
    return found
