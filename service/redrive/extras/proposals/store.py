"""Proposals of agents, which take effect only when a person starts them.

A proposed redrive is a planned campaign with `proposed_by`. The database keeps the
others for a person to start within a day: edits, mutes, and changes of a group's
failing jobs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import LiteralString, NamedTuple

from psycopg.types.json import Jsonb

from redrive.database.rows import Connection, rows, value
from redrive.dead_letters.campaigns.store import MAX_REDRIVES
from redrive.dead_letters.edit import patch as rules
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import Patch
from redrive.dead_letters.edit.store import Letter, Preview
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups import store as groups
from redrive.errors import InvalidJob
from redrive.handlers import Handlers
from redrive.rules.rows import Fields, Row, fields_of
from redrive.verbs.edits import remarks
from redrive.verbs.failing import FAILING

PROPOSAL = "proposal"
MOST_EDITED = 100
"""Dead letters that one proposal may edit."""

_OPEN: LiteralString = """
    select p.id as proposal, null::bigint as campaign, p.action, p.proposed_by, p.why,
           p.created_at, p.detail - 'digests' as detail
    from redrive.proposals p
    where p.state = 'open' and p.created_at > clock_timestamp() - interval '1 day'
      and p.id = coalesce(%(id)s, p.id)
    union all
    select null, c.id, 'redrive', c.proposed_by, c.why, c.created_at,
           jsonb_build_object('filter', c.filter, 'matched', c.matched)
    from redrive.campaigns c
    where c.state = 'planned' and c.proposed_by is not null and %(id)s::bigint is null
      and c.created_at > clock_timestamp() - interval '1 day'
    order by created_at desc limit 200"""


REASON_LENGTH = 2_000
"""Characters of a reason that the audit log keeps."""


class Agent(NamedTuple):
    """An agent and the person it works for; the person has the budget."""

    name: str
    person: str
    may_propose: bool = True
    """False if the role of the person allows no changes."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A proposed edit and its effect now; `changed` counts payloads that are different
    or no longer open since the agent proposed it.
    """

    patch: Patch
    seen: Preview
    changed: int


def charge(
    conn: Connection,
    agent: Agent,
    tool: str,
    arguments: object,
    *,
    most: tuple[int, int],
) -> str | None:
    """Record a call in the audit log and charge its budget.

    Args:
        most: calls and proposals that are allowed in an hour.

    Returns None, or the name of the budget that is used up.
    """
    return value(
        conn,
        "select redrive.call_tool_v1(%s, %s, %s, %s, %s, %s)",
        *(agent.name, agent.person, tool, Jsonb(arguments), *most),
    )


def propose_campaign(conn: Connection, agent: Agent, chosen: Filter, why: str) -> Row:
    """Freeze a plan; return the report of `redrive.plan_campaign_v1`."""
    selects = Jsonb(chosen.described())
    return value(
        conn,
        "select redrive.propose_campaign_v1(%s, %s, %s, %s, %s)",
        *(selects, MAX_REDRIVES, agent.name, agent.person, why),
    )


def propose_edit(
    conn: Connection, agent: Agent, letters: Sequence[Letter], patch: Patch, why: str
) -> int:
    """Keep an edit of these dead letters as they are now; return its id."""
    digests = {str(letter.id): letter.digest.hex() for letter in letters}
    detail = {"ids": [*map(int, digests)], "digests": digests, "patch": patch}

    return propose(conn, "edit", agent, why, detail)


def propose(
    conn: Connection, action: str, agent: Agent, why: str, detail: Fields
) -> int:
    """Keep a change that a person may start; return its id.

    Args:
        action: edit, mute, or a word of `redrive.verbs.failing`.
        detail: see the table `redrive.proposals`.
    """
    return value(
        conn,
        "select redrive.propose_v1(%s, %s, %s, %s, %s::jsonb)",
        *(action, agent.name, agent.person, why, rules.encode(detail)),
    )


def find(conn: Connection, proposal: int | None = None) -> list[Row]:
    """List the open proposals, newest first; a proposed redrive has a campaign.

    Args:
        proposal: only this one, which is no redrive.
    """
    return rows(conn, _OPEN, id=proposal)


def show(conn: Connection, proposal: int) -> Row | None:
    """Return an open proposal other than a redrive; None if it is not open."""
    return next(iter(find(conn, proposal)), None)


def preview(conn: Connection, proposal: int, handlers: Handlers) -> Edit:
    """Preview a proposed edit of the payloads that are as the agent saw them."""
    query: LiteralString = "select detail::text from redrive.proposals where id = %s"
    detail = rules.decode(value(conn, query, proposal))

    letters = edits.find(conn, Filter(ids=detail["ids"]))
    digests = fields_of(detail.get("digests"))
    same = [
        letter
        for letter in letters
        if not isinstance(letter, int)
        and letter.digest.hex() == digests.get(str(letter.id))
    ]
    seen = edits.preview(same, detail["patch"], handlers)

    return Edit(
        patch=detail["patch"], seen=seen, changed=len(detail["ids"]) - seen.matched
    )


UNREADABLE = "unreadable: reject it"


def what(row: Fields) -> str:
    """Describe a proposal in a few words.

    A program with the login of an agent can store anything as its detail.
    """
    try:
        return _what(row)
    except (AttributeError, LookupError, TypeError, ValueError):
        return UNREADABLE


def _what(row: Fields) -> str:
    detail = row["detail"]
    if row["action"] == "redrive":
        return f"{detail['matched']} dead letters"
    if row["action"] == "mute":
        hours = detail["seconds"] / 3600
        return f"group {detail['group']} for {hours:g} h"
    if row["action"] in FAILING:
        return f"failing jobs of group {detail['group']}"

    return f"{len(detail['ids'])} payloads: {', '.join(rules.paths(detail['patch']))}"


def effects(conn: Connection, row: Fields, handlers: Handlers) -> list[str]:
    """Return what a start would change: diffs and sentences; secrets are redacted.

    Raises:
        InvalidJob: the proposal has no meaning.
    """
    if what(row) == UNREADABLE:
        raise InvalidJob(PROPOSAL, UNREADABLE)

    if row["action"] == "mute":
        group = groups.show(conn, row["detail"]["group"])
        count = group["open"] if group else 0
        return [f"{count} open dead letters are left out of redrives"]

    return list(_effects_of_edit(preview(conn, row["proposal"], handlers)))


def _effects_of_edit(wanted: Edit) -> Iterator[str]:
    # The values are the proposer's own text. Nobody may approve what they cannot read.
    yield from map(rules.told, wanted.patch)

    yield from remarks(wanted.patch, wanted.seen)
    if wanted.changed:
        yield f"{wanted.changed} will stay: changed since"


def start(
    conn: Connection, proposal: int, handlers: Handlers, *, actor: str, why: str
) -> int:
    """Start an edit or a mute once; return how many groups or payloads it changed.

    Raises:
        InvalidJob: none of the payloads can be edited; the proposal stays open.
    """
    with conn.transaction():
        # Decided first: that locks the proposal, so two people cannot both start it.
        action = decide(conn, proposal, actor=actor, why=why, is_started=True)
        if action == "mute":
            return 1

        wanted = preview(conn, proposal, handlers)
        causes = edits.edit(
            conn, wanted.seen, wanted.patch, handlers=handlers, why=why, actor=actor
        )
        if not causes[None]:
            rule = "none of its payloads can be edited; they have changed, or it does not apply"
            raise InvalidJob(PROPOSAL, rule)

        return causes[None]


def decide(
    conn: Connection, proposal: int, *, actor: str, why: str, is_started: bool
) -> str:
    """Mark a proposal as started or rejected, once; a mute begins. Return its action."""
    return value(
        conn,
        "select action from redrive.decide_v1(%s, %s, %s, %s)",
        *(proposal, is_started, actor, why),
    )


def reason(proposal: Fields, why: str) -> str:
    """Return the reason for the audit log: whose proposal, and why it was started."""
    number = proposal["proposal"]
    proposer = proposal["proposed_by"]

    return f"proposal {number} of {proposer}: {why}"[:REASON_LENGTH]
