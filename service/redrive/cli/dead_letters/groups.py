"""Commands of `redrive dlq` about groups: list, resolve, mute."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.exits import NotFound
from redrive.cli.support.names import say_unknown
from redrive.cli.support.options import (
    Change,
    Duration,
    acting_options,
    cells_options,
    json_option,
    pager_option,
)
from redrive.cli.support.output import listing, printable
from redrive.database.rows import Connection
from redrive.dead_letters.filter import CATEGORIES
from redrive.dead_letters.grouping import groups
from redrive.rules.dead_letters.fixes import order_of, state_of, worded
from redrive.rules.rows import Fields, Row

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
    "state",
    "owner",
    "group",
)


COLUMNS_TOGETHER = (
    "open",
    "total",
    "cells",
    "kind",
    "category",
    "error_class",
    "message",
    "last_seen",
    "group",
)

IN_CELL = ("open", "total", "state", "first_seen", "last_seen", "owner", "muted_until")
"""Fields of a group that may differ from cell to cell."""
SHARED = ("group", "kind", "category", "error_class", "message")
"""Fields of a group that are the same in all cells, or nearly so."""


@click.command("groups")
@click.option(
    "--kind",
    multiple=True,
    metavar="KIND",
    help="Kind of job.",
)
@click.option(
    "--category",
    multiple=True,
    type=click.Choice(CATEGORIES),
    help="Category.",
)
@click.option(
    "--state",
    multiple=True,
    type=click.Choice(groups.STATES),
    help="State, with open dead letters or not.",
)
@click.option(
    "--new-since",
    metavar="VERSION",
    help="First seen after the first failure of this image version.",
)
@click.option("--owner", metavar="NAME", help="Owner: redrive owner ls.")
@click.option("--unacknowledged", is_flag=True, help="Nobody has acknowledged it.")
@click.option(
    "--closed", is_flag=True, help="Include groups with no open dead letter left."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="At most this many.",
)
@click.option(
    "--together", is_flag=True, help="One line for each cause, over all cells."
)
@cells_options()
@json_option
@pager_option
def list_groups(cells: "Sequence[Settings]", together: bool, **options: Any) -> int:
    """List the causes of dead letters, the most frequent first.

    \b
    redrive dlq groups --category bug --new-since 1.4.2
    redrive dlq groups --state regressed
    """
    are_several = len(cells) > 1
    together = together and are_several

    asked = dict(options)
    if together:
        # The largest groups of all cells together need not be the largest of any cell.
        asked["limit"] = None

    answers, code = ask_each(cells, lambda settings: _find(settings, asked))
    found = [cell | group for cell, groups in answers for group in groups]
    if together:
        found = _together(found)

    found.sort(key=itemgetter("open"), reverse=True)
    # Each cell has given up to that many.
    found = found[: options["limit"]]

    show = partial(listing, right=("open", "total"), empty=_empty(options))
    if together:
        show(found, COLUMNS_TOGETHER, for_people=_cells_for_people)
    else:
        columns = _columns(found, has_cell=are_several)
        show(found, columns, for_people=_for_people)

    return code


def _together(found: list[Row]) -> list[Row]:
    """Return one line for each cause, with the counts and the state in each cell."""
    name = itemgetter("group")
    causes = [list(same) for _, same in groupby(sorted(found, key=name), name)]
    return [_one(cause) for cause in causes]


def _one(cause: Sequence[Fields]) -> Row:
    # Texts may differ a little from cell to cell. The largest group's are shown.
    by_size = sorted(cause, key=itemgetter("open"), reverse=True)
    largest = by_size[0]

    cells: dict[str, Row] = {}
    for group in by_size:
        cell = group["cell"]
        cells[cell] = {name: group[name] for name in IN_CELL}

    return {
        "open": sum(group["open"] for group in cause),
        "total": sum(group["total"] for group in cause),
        "first_seen": min(_seen(cause, "first_seen"), default=None),
        "last_seen": max(_seen(cause, "last_seen"), default=None),
        **{name: largest[name] for name in SHARED},
        "cells": cells,
    }


def _seen(cause: Sequence[Fields], name: str) -> list[str]:
    return [group[name] for group in cause if group[name]]


def _cells_for_people(group: Row) -> Row:
    counts = {cell: here["open"] for cell, here in group["cells"].items()}
    texts = (f"{cell} {count}" for cell, count in counts.items())
    return group | {"cells": ", ".join(texts)}


def _columns(found: Sequence[Fields], *, has_cell: bool) -> list[str]:
    """Return the columns; leave out the state and the owner if no group has any."""
    useless = set[str]()
    if not has_cell:
        useless.add("cell")
    if not any(group["owner"] for group in found):
        useless.add("owner")
    if all(state_of(group) == "open" for group in found):
        useless.add("state")

    return [name for name in ("cell", *COLUMNS) if name not in useless]


def _empty(options: Fields) -> str:
    """Return the text in place of a table without groups."""
    if options["owner"] or options["unacknowledged"] or options["state"]:
        return "no such groups"
    return "no open dead letters"


def _for_people(group: Row) -> Row:
    shown = dict(group) | {"state": worded(group)}

    if group["acknowledged_by"]:
        person = group["acknowledged_by"]
        shown["message"] = f"acknowledged by {person}, {group['message']}"

    if group["muted_until"]:
        shown["group"] += " (muted)"
    if group["quarantined"]:
        shown["open"] = f"{group['open']} ({group['quarantined']} quarantined)"

    return shown


def _find(settings: "Settings", options: Fields) -> list[Row]:
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
def mute(group: str, length: float, off: bool, change: Change) -> None:
    """Leave a group out of redrives for a while.

    \b
    redrive dlq mute 3f9a --for 2h --why 'the fix is being rolled out'
    """
    until = None if off else datetime.now(UTC) + timedelta(seconds=length)
    with database(change.settings) as conn:
        found = the_group(conn, group)
        change.agree(_question(found["open"], group, until))
        if not groups.mute(conn, found["group"], until, **change.signed):
            raise NotFound(missing(group))

    click.echo(f"{group} is {_muted(until)}")


@click.command()
@click.argument("group")
@click.option(
    "--in",
    "versions",
    required=True,
    multiple=True,
    metavar="VERSION",
    help="First version with the fix. Repeat it for each release line with a backport.",
)
@acting_options
def resolve(group: str, versions: tuple[str, ...], change: Change) -> None:
    """Say in which version a group is fixed.

    \b
    redrive dlq resolve 3f9a --in 1.4.2 --why 'the amount may be null'
    redrive dlq resolve 3f9a --in 1.4.2 --in 1.3.9 --why 'with a backport'

    Deaths in older versions are counted. If the group dies in a version with the fix, it
    has regressed, and an alert fires. Its open dead letters stay: redrive or dismiss
    them.
    """
    with database(change.settings) as conn:
        found = the_group(conn, group)
        shown = printable(", ".join(versions))
        change.agree(f"Resolve {printable(group)} in {shown}")
        name = found["group"]

        try:
            fixes = groups.resolve(conn, name, versions, **change.signed)
        except ValueError as error:
            # The text begins with the name of the option.
            raise click.UsageError(f"--{error}") from None

    if fixes is None:
        raise NotFound(missing(group))

    shown = ", ".join(fixes)
    click.echo(f"{group} is resolved in {shown}")
    if found["open"]:
        click.echo(
            f"{found['open']} dead letters are still open; once {fixes[-1]} runs:"
            f" redrive dlq redrive --group {name}"
        )

    _warn_of_unordered(found["versions"])


def _warn_of_unordered(versions: Mapping[str, str]) -> None:
    """Name a version that cannot show a regression."""
    unordered = [version for version in versions if order_of(version) is None]
    if unordered:
        click.echo(
            f"warning: {printable(unordered[0])} has no order, so a death in such a"
            " version never shows a regression; set REDRIVE_VERSION to one such as 1.4.2",
            err=True,
        )


@click.command()
@click.argument("group")
@acting_options
def unresolve(group: str, change: Change) -> None:
    """Open a resolved or regressed group again.

    \b
    redrive dlq unresolve 3f9a --why 'the fix was not the fix'
    """
    with database(change.settings) as conn:
        found = the_group(conn, group)
        shown = printable(group)
        state = worded(found)
        change.agree(f"Open {shown} again, which is {state}")
        if not groups.unresolve(conn, found["group"], **change.signed):
            raise NotFound(f"{shown} is not resolved")

    click.echo(f"{group} is open")


def _question(count: int, group: str, until: datetime | None) -> str:
    what = f"{count} open dead letters of {printable(group)}"
    if until:
        return f"Mute {what} until {printable(until)}"
    return f"Unmute {what}"


def _muted(until: datetime | None) -> str:
    if until:
        return f"muted until {printable(until)}"
    return "no longer muted"


def the_group(conn: Connection, name: str) -> Row:
    """Return a group by the beginning of its name. Raises NotFound."""
    found = groups.show(conn, name)
    if found is None:
        raise NotFound(missing(name))
    return found


def missing(group: str) -> str:
    """Return the text about a name that selects no group, or several."""
    return f"no group begins with {printable(group)}, or more than one does"
