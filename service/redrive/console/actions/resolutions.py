"""Changes of the console that say in which version a group is fixed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from redrive.console.actions.change import (
    Change,
    Connection,
    Done,
    Input,
    Opening,
    Order,
    Preview,
    named,
)
from redrive.console.query import Query, command
from redrive.console.security.access import Refused
from redrive.dead_letters import groups
from redrive.rules.dead_letters.fixes import worded

NO_GROUP = "no group has this prefix, or several have it"
_REMARKS = (
    "Deaths in older versions are counted.",
    "If it dies in a version with the fix, it has regressed, and an alert fires.",
    "Its open dead letters stay. Redrive or dismiss them.",
)


def _row(group: dict[str, Any]) -> dict[str, Any]:
    return group | {"state": worded(group)}


def _preview_resolve(conn: Connection, query: Query) -> Preview:
    return _preview(
        conn,
        query,
        "Resolve",
        _REMARKS,
        Input("in", "First version with the fix", hint="1.4.2, or 1.4.2, 1.3.9"),
    )


def _preview_unresolve(conn: Connection, query: Query) -> Preview:
    seen = _preview(conn, query, "Unresolve", ("It is open again.",))
    if seen.rows and seen.rows[0]["fixed_in"] is None:
        return replace(seen, obstacle="The group is not resolved.")
    return seen


def _preview(
    conn: Connection, query: Query, verb: str, remarks: tuple[str, ...], *inputs: Input
) -> Preview:
    name = named(query, "group")
    group = groups.show(conn, name)
    options = {"in": "..."} if inputs else {}
    return Preview(
        f"{verb} a group",
        1 if group else 0,
        "group",
        verb,
        command(("dlq", verb.lower(), name), None, **options, why="..."),
        query,
        ("kind", "error_class", "message", "open", "state"),
        [_row(group)] if group else [],
        remarks,
        None if group else "No group has this prefix, or several have it.",
        inputs,
    )


def _resolve(opening: Opening, order: Order) -> Done:
    versions = [part for part in order.more.get("in", "").split(",") if part.strip()]
    with opening() as conn:
        name = _name_of(conn, order)
        try:
            fixes = groups.resolve(
                conn, name, versions, actor=order.actor, why=order.why
            )
        except ValueError as error:
            raise Refused(400, str(error)) from None
    if fixes is None:
        raise Refused(404, NO_GROUP)
    return Done(
        f"The group is resolved in {', '.join(fixes)}.",
        {"group": name, "fixed_in": fixes},
        f"/groups/{name}",
    )


def _unresolve(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        name = _name_of(conn, order)
        if not groups.unresolve(conn, name, actor=order.actor, why=order.why):
            raise Refused(409, "the group is not resolved")
    return Done(
        "The group is open.", {"group": name, "fixed_in": None}, f"/groups/{name}"
    )


def _name_of(conn: Connection, order: Order) -> str:
    group = groups.show(conn, named(order.query, "group"))
    if group is None:
        raise Refused(404, NO_GROUP)
    return group["group"]


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
