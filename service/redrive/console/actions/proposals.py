"""Changes of the console that start or reject what an agent proposes."""

from collections.abc import Mapping
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
from redrive.console.query import Query, command, is_job_id
from redrive.console.security.access import Refused
from redrive.database.rows import Connection
from redrive.dead_letters import proposals
from redrive.handlers import Handlers
from redrive.rules.rows import Row

COLUMNS = ("action", "what", "proposed_by", "why", "created_at")
PATH = "/proposals"
START = "Start"
MOST_DIGITS = 19
"""Digits of the largest bigint."""


def _number_of(query: Query) -> int:
    text = named(query, "proposal")
    is_number = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    number = int(text) if is_number else 0
    if not is_job_id(number):
        raise Refused(400, f"proposal is {text!r}; it must be a whole number above 0")

    return number


def _preview(conn: Connection, query: Query, *, verb: str) -> Preview:
    number = _number_of(query)
    found = proposals.show(conn, number)
    seen = Preview(
        title=f"{verb} proposal {number}",
        matched=0,
        unit="proposal",
        verb=verb,
        shell=command(("proposal", verb.lower(), str(number)), why="..."),
        query=query,
        columns=COLUMNS,
    )

    if found is None:
        obstacle = f"There is no open proposal {number} of an edit or a mute."
        return replace(seen, obstacle=obstacle)

    remarks = [f"{found['proposed_by']} proposes it: {found['why']}"]
    if verb == START:
        remarks += proposals.effects(conn, found, Handlers())

    rows = [found | {"what": proposals.what(found)}]
    return replace(
        seen,
        matched=1,
        rows=rows,
        remarks=remarks,
    )


def _open_one(conn: Connection, query: Query) -> Row:
    """Return the open proposal of a query. Raises Refused if it is not open."""
    number = _number_of(query)
    found = proposals.show(conn, number)
    if found is None:
        raise Refused(409, f"there is no open proposal {number}")

    return found


def _start(opening: Opening, order: Order) -> Done:
    checked_by = order.handlers or Handlers()

    with opening() as conn:
        found = _open_one(conn, order.query)
        proposals.start(
            conn,
            found["proposal"],
            checked_by,
            actor=order.actor,
            why=proposals.reason(found, order.why),
        )

    return _done(found["proposal"], "started")


def _reject(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        found = _open_one(conn, order.query)
        proposals.reject(
            conn,
            found["proposal"],
            actor=order.actor,
            why=proposals.reason(found, order.why),
        )

    return _done(found["proposal"], "rejected")


def _done(number: int, state: str) -> Done:
    return Done(
        text=f"Proposal {number} is {state}.",
        report={"proposal": number, "state": state},
        path=PATH,
    )


PROPOSALS: Mapping[str, Change] = {
    "proposal-start": Change(
        "Start an edit or a mute that an agent proposes.",
        partial(_preview, verb=START),
        _start,
        names=("proposal",),
    ),
    "proposal-reject": Change(
        "Reject an edit or a mute that an agent proposes.",
        partial(_preview, verb="Reject"),
        _reject,
        names=("proposal",),
    ),
}
"""Word in the address -> change."""
