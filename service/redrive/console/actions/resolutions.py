"""Changes of the console that say in which version a group is fixed."""

from collections.abc import Mapping
from dataclasses import replace

from redrive.console.actions.change import (
    Change,
    Done,
    Input,
    Opening,
    Order,
    Preview,
    named,
)
from redrive.console.actions.group import (
    COLUMNS,
    NO_GROUP,
    group_of,
    preview_group,
)
from redrive.console.query import Query, command
from redrive.console.security.access import Refused
from redrive.database.rows import Connection
from redrive.dead_letters.grouping import groups
from redrive.rules.dead_letters.fixes import worded

_REMARKS = (
    "Deaths in older versions are counted.",
    "If it dies in a version with the fix, it has regressed, and an alert fires.",
    "Its open dead letters stay. Redrive or dismiss them.",
)


_VERSIONS = Input("in", "First version with the fix", hint="1.4.2, or 1.4.2, 1.3.9")


def _preview_resolve(conn: Connection, query: Query) -> Preview:
    words = ("dlq", "resolve", named(query, "group"))
    shell = command(words, None, **{"in": "..."}, why="...")
    seen = preview_group(
        conn,
        query=query,
        verb="Resolve",
        shell=shell,
        remarks=_REMARKS,
    )

    return replace(_with_state(seen), inputs=(_VERSIONS,))


def _preview_unresolve(conn: Connection, query: Query) -> Preview:
    words = ("dlq", "unresolve", named(query, "group"))
    shell = command(words, why="...")
    seen = preview_group(
        conn,
        query=query,
        verb="Unresolve",
        shell=shell,
        remarks=("It is open again.",),
    )
    if seen.rows and seen.rows[0]["fixed_in"] is None:
        seen = replace(seen, obstacle="The group is not resolved.")

    return _with_state(seen)


def _with_state(seen: Preview) -> Preview:
    """Show the state of the group, too."""
    rows = [{**group, "state": worded(group)} for group in seen.rows]
    columns = (*COLUMNS, "state")

    return replace(seen, columns=columns, rows=rows)


def _resolve(opening: Opening, order: Order) -> Done:
    versions = [part for part in order.more.get("in", "").split(",") if part.strip()]

    with opening() as conn:
        name = group_of(conn, order)["group"]
        try:
            fixes = groups.resolve(conn, name, versions, **order.signed)
        except ValueError as error:
            raise Refused(400, str(error)) from None

    if fixes is None:
        raise Refused(404, NO_GROUP)

    shown = ", ".join(fixes)

    return Done(
        text=f"The group is resolved in {shown}.",
        report={"group": name, "fixed_in": fixes},
        path=f"/groups/{name}",
    )


def _unresolve(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        name = group_of(conn, order)["group"]
        if not groups.unresolve(conn, name, **order.signed):
            raise Refused(409, "the group is not resolved")

    return Done(
        text="The group is open.",
        report={"group": name, "fixed_in": None},
        path=f"/groups/{name}",
    )


RESOLUTIONS: Mapping[str, Change] = {
    "resolve": Change(
        "Say in which version a group is fixed.",
        _preview_resolve,
        _resolve,
        names=("group",),
    ),
    "unresolve": Change(
        "Open a resolved or regressed group again.",
        _preview_unresolve,
        _unresolve,
        names=("group",),
    ),
}
"""Word in the address -> change."""
