"""Changes of the console: acknowledge a group of dead letters, or take that back."""

from dataclasses import replace
from functools import partial

from redrive.console.actions.change import (
    Change,
    Done,
    Opening,
    Order,
    Preview,
    named,
)
from redrive.console.actions.group import group_of, preview_group
from redrive.console.query import Query, command
from redrive.console.security.access import Refused
from redrive.database.rows import Connection
from redrive.dead_letters.grouping.acknowledgements import acknowledge, unacknowledge


def _preview(
    conn: Connection, query: Query, *, verb: str, word: str, remark: str
) -> Preview:
    words = ("dlq", word, named(query, "group"))
    shell = command(words, why="...")
    seen = preview_group(conn, query, verb, shell, (remark,))
    if seen.rows and not seen.rows[0]["open"]:
        return replace(seen, obstacle="The group has no open dead letters.")

    return seen


def _make(opening: Opening, order: Order, *, is_acknowledged: bool) -> Done:
    act = acknowledge if is_acknowledged else unacknowledge

    with opening() as conn:
        name = group_of(conn, order)["group"]
        if not act(conn, [name], **order.signed):
            raise Refused(409, "the group has no open dead letters")

    state = "acknowledged" if is_acknowledged else "no longer acknowledged"

    return Done(
        text=f"The group is {state}.",
        report={"group": name, "acknowledged": is_acknowledged},
        path=f"/groups/{name}",
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
