"""Parts that changes of one group share: its preview, and its search by a prefix."""

from collections.abc import Sequence
from dataclasses import replace

from redrive.console.actions.change import Order, Preview, named
from redrive.console.query import Query
from redrive.console.security.access import Refused
from redrive.database.rows import Connection
from redrive.dead_letters.grouping import groups
from redrive.rules.rows import Row

NO_GROUP = "no group has this prefix, or several have it"
COLUMNS = ("kind", "error_class", "message", "open")


def preview_group(
    conn: Connection, query: Query, verb: str, shell: str, remarks: Sequence[str]
) -> Preview:
    """Preview a change of the group that the query names.

    Args:
        verb: text of the button.
        shell: shell command that makes the same change.
        remarks: sentences that the user reads before the change.

    Raises:
        Refused: the query names no group, or holds other parameters.
    """
    group = groups.show(conn, named(query, "group"))
    seen = Preview(
        title=f"{verb} a group",
        matched=0,
        unit="group",
        verb=verb,
        shell=shell,
        query=query,
        columns=COLUMNS,
        remarks=remarks,
    )

    if group is None:
        obstacle = "No group has this prefix, or several have it."
        return replace(seen, obstacle=obstacle)

    return replace(seen, matched=1, rows=[group])


def group_of(conn: Connection, order: Order) -> Row:
    """Return the group of a change.

    Raises:
        Refused: no group has the prefix, or several have it.
    """
    prefix = named(order.query, "group")
    group = groups.show(conn, prefix)
    if group is None:
        raise Refused(404, NO_GROUP)

    return group
