"""Changes of the console: acknowledge a group of dead letters, or take that back."""

from functools import partial

from redrive.console.actions.change import (
    Change,
    Connection,
    Done,
    Opening,
    Order,
    Preview,
    named,
)
from redrive.console.query import Query, command
from redrive.console.security.access import Refused
from redrive.dead_letters import groups
from redrive.dead_letters.acknowledgements import acknowledge, unacknowledge


def _preview(
    conn: Connection, query: Query, *, verb: str, word: str, remark: str
) -> Preview:
    name = named(query, "group")
    group = groups.show(conn, name)
    obstacle = None if group else "No group has this prefix, or several have it."
    if group and not group["open"]:
        obstacle = "The group has no open dead letters."
    return Preview(
        f"{verb} a group",
        1 if group else 0,
        "group",
        verb,
        command(("dlq", word, name), why="..."),
        query,
        ("kind", "error_class", "message", "open"),
        [group] if group else [],
        (remark,),
        obstacle,
    )


def _make(opening: Opening, order: Order, *, is_acknowledged: bool) -> Done:
    prefix = named(order.query, "group")
    act = acknowledge if is_acknowledged else unacknowledge
    with opening() as conn:
        group = groups.show(conn, prefix)
        if group is None:
            raise Refused(404, "no group has this prefix, or several have it")
        name = group["group"]
        if not act(conn, [name], actor=order.actor, why=order.why):
            raise Refused(409, "the group has no open dead letters")
    state = "acknowledged" if is_acknowledged else "no longer acknowledged"
    return Done(
        f"The group is {state}.",
        {"group": name, "acknowledged": is_acknowledged},
        f"/groups/{name}",
    )


ACKNOWLEDGE = Change(
    "Say that you work on a group.",
    partial(
        _preview,
        verb="Acknowledge",
        word="ack",
        remark="It lasts until the group has no open dead letters left.",
    ),
    partial(_make, is_acknowledged=True),
    names=("group",),
)
UNACKNOWLEDGE = Change(
    "Say that nobody works on a group.",
    partial(
        _preview,
        verb="Unacknowledge",
        word="unack",
        remark="The group counts again as one that nobody looked at.",
    ),
    partial(_make, is_acknowledged=False),
    names=("group",),
)
