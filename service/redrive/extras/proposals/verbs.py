"""Changes that start or reject what an agent proposes."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from redrive.database.rows import Connection
from redrive.extras.proposals import store as proposals
from redrive.handlers import Handlers
from redrive.rules.rows import Row, Signed
from redrive.verbs.query import Query, command, is_job_id
from redrive.verbs.refusal import Conflict, Invalid
from redrive.verbs.verb import Done, Opening, Order, Preview, Verb, named

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
        raise Invalid(f"proposal is {text!r}; it must be a whole number above 0")

    return number


def _preview(conn: Connection, order: Order, *, verb: str) -> Preview:
    number = _number_of(order.query)
    found = proposals.show(conn, number)
    seen = Preview(
        title=f"{verb} proposal {number}",
        matched=0,
        unit="proposal",
        verb=verb,
        shell=command(("proposal", verb.lower(), str(number)), why="..."),
        query=order.query,
        columns=COLUMNS,
    )

    if found is None:
        obstacle = f"There is no open proposal {number} of an edit or a mute."
        return replace(seen, obstacle=obstacle)

    remarks = [f"{found['proposed_by']} proposes it: {found['why']}"]
    if verb == START:
        remarks += proposals.effects(conn, found, order.handlers or Handlers())

    rows = [found | {"what": proposals.what(found)}]
    return replace(seen, matched=1, rows=rows, remarks=remarks)


def _open_one(conn: Connection, query: Query) -> Row:
    """Return the open proposal of a query. Raises Refused if it is not open."""
    number = _number_of(query)
    found = proposals.show(conn, number)
    if found is None:
        raise Conflict(f"there is no open proposal {number}")

    return found


def _start(opening: Opening, order: Order) -> Done:
    checked_by = order.handlers or Handlers()

    with opening() as conn:
        found = _open_one(conn, order.query)
        signed = _signed(found, order)
        changed = proposals.start(conn, found["proposal"], checked_by, **signed)

    return _done(found, "started", changed=changed)


def _signed(found: Row, order: Order) -> Signed:
    return Signed(actor=order.actor, why=proposals.reason(found, order.why))


def _reject(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        found = _open_one(conn, order.query)
        proposals.reject(conn, found["proposal"], **_signed(found, order))

    return _done(found, "rejected")


def _done(found: Row, state: str, **more: int) -> Done:
    number = found["proposal"]
    return Done(
        text=f"Proposal {number} is {state}.",
        report={"proposal": number, "action": found["action"], "state": state, **more},
        path=PATH,
    )


PROPOSALS: Mapping[str, Verb] = {
    "proposal-start": Verb(
        "Start an edit or a mute that an agent proposes.",
        partial(_preview, verb=START),
        _start,
        names=("proposal",),
        decodes=True,
    ),
    "proposal-reject": Verb(
        "Reject an edit or a mute that an agent proposes.",
        partial(_preview, verb="Reject"),
        _reject,
        names=("proposal",),
    ),
}
"""Word in the address -> change."""
