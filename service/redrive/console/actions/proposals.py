"""Changes of the console that start or reject what an agent proposes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from redrive.console.actions.change import (
    Change,
    Connection,
    Done,
    Opening,
    Order,
    Preview,
    named,
)
from redrive.console.query import Query, command, is_job_id
from redrive.console.security.access import Refused
from redrive.dead_letters import proposals
from redrive.handlers import Handlers
from redrive.rules.payloads import edit as rules

COLUMNS = ("action", "what", "proposed_by", "why", "created_at")
PATH = "/proposals"


def what(row: Mapping[str, Any]) -> str:
    """Describe a proposal in a few words."""
    detail = row["detail"]
    match row["action"]:
        case "redrive":
            return f"{detail['matched']:,} dead letters"
        case "mute":
            return f"group {detail['group']} for {detail['seconds'] / 3600:g} h"
        case _:
            return f"{len(detail['ids'])} payloads: {', '.join(rules.paths(detail['patch']))}"


def _number_of(query: Query) -> int:
    text = named(query, "proposal")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0  # noqa: PLR2004 # digits of a bigint
    if not is_job_id(number):
        raise Refused(400, f"proposal is {text!r}; it must be a whole number above 0")
    return number


def _preview(conn: Connection, query: Query, *, verb: str) -> Preview:
    number = _number_of(query)
    found = proposals.show(conn, number)
    shell = command(("proposal", verb.lower(), str(number)), why="...")
    title = f"{verb} proposal {number}"
    if found is None:
        obstacle = f"There is no open proposal {number} of an edit or a mute."
        return Preview(title, 0, "proposal", verb, shell, query, obstacle=obstacle)
    remarks = [f"{found['proposed_by']} proposes it: {found['why']}"]
    if verb == "Start" and found["action"] == "edit":
        remarks += _diffs(conn, number)
    rows = [found | {"what": what(found)}]
    return Preview(
        title, 1, "proposal", verb, shell, query, COLUMNS, rows, remarks=remarks
    )


def _diffs(conn: Connection, number: int) -> list[str]:
    """Return the redacted changes of a proposed edit, and how many payloads stay."""
    wanted = proposals.preview(conn, number, Handlers())
    lines = [line for sample in wanted.seen.samples for line in sample.diff]
    counts = dict(wanted.seen.counts) | {"changed since": wanted.changed}
    stay = [f"{n:,} stay: {cause}" for cause, n in counts.items() if n]
    return [*lines, f"{len(wanted.seen.ids):,} payloads are edited.", *stay]


def _act(opening: Opening, order: Order, *, is_started: bool) -> Done:
    number = _number_of(order.query)
    with opening() as conn:
        found = proposals.show(conn, number)
        if found is None:
            raise Refused(409, f"there is no open proposal {number}")
        why = proposals.reason(found, order.why)
        if is_started:
            checked_by = order.handlers or Handlers()
            proposals.start(conn, number, checked_by, actor=order.actor, why=why)
        else:
            proposals.reject(conn, number, actor=order.actor, why=why)
    state = "started" if is_started else "rejected"
    return Done(
        f"Proposal {number} is {state}.", {"proposal": number, "state": state}, PATH
    )


PROPOSALS: Mapping[str, Change] = {
    "proposal-start": Change(
        "Start an edit or a mute that an agent proposes.",
        partial(_preview, verb="Start"),
        partial(_act, is_started=True),
        names=("proposal",),
    ),
    "proposal-reject": Change(
        "Reject an edit or a mute that an agent proposes.",
        partial(_preview, verb="Reject"),
        partial(_act, is_started=False),
        names=("proposal",),
    ),
}
"""Word in the address -> change."""
