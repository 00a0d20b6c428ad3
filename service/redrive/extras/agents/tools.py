"""The tools: what each one returns for its arguments."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from redrive.database.rows import Connection
from redrive.dead_letters import find
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import read_patch
from redrive.dead_letters.edit.store import Letter
from redrive.dead_letters.explain import facts as explain
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.report import incident
from redrive.dead_letters.report import review as rules
from redrive.dead_letters.report import weekly as review
from redrive.extras.agents import arguments as given
from redrive.extras.agents.arguments import filter_of, when
from redrive.extras.proposals import store as proposals
from redrive.extras.proposals.store import MOST_EDITED, Agent
from redrive.handlers import Handlers
from redrive.jobs import failing, show
from redrive.observability.marks import read_marks
from redrive.observability.series import Point, now_of, read_series
from redrive.rules.marks import sentence
from redrive.rules.rows import Row
from redrive.rules.times import period

MOST_BACK = timedelta(days=35)
MOST_STEPS, MOST_MARKS = 60, 50
CONTENT = frozenset({"payload", "headers", "checkpoint", "progress", "result"})
COUNTS = ("at", "enqueued", "completed", "failed", "retried", "died", "redriven")


class Refused(Exception):
    """The call is refused; the text tells the agent why."""


def _found(value: Any, what: str) -> Any:
    if value is None:
        msg = f"there is no {what}"
        raise Refused(msg)
    return value


def _instant(text: str) -> datetime:
    try:
        at = when(text)
    except (ValueError, OverflowError):
        at = None

    now = datetime.now(UTC)
    if at is None or not now - MOST_BACK <= at <= now:
        msg = "since must be a past instant, or a length such as 6h or 7d"
        raise Refused(msg)

    return at


# ---------------------------------------------------------------------- look


def _list_groups(conn: Connection, _: Agent, asked: given.ListGroups) -> Any:
    kinds = () if asked.kind is None else (asked.kind,)
    texts = {cause["group"]: cause["text"] for cause in failing.find(conn, kind=kinds)}
    found = groups.find(conn, kind=kinds, limit=asked.limit)

    return [group | {"now": texts.get(group["group"])} for group in found]


def _explain_group(conn: Connection, _: Agent, asked: given.ExplainGroup) -> Any:
    return _found(explain.explain(conn, asked.group), "group of this name")


def _show_dead_letter(conn: Connection, _: Agent, asked: given.ShowDeadLetter) -> Any:
    return _found(find.show(conn, asked.job), "dead letter of this job")


def _why_job(conn: Connection, _: Agent, asked: given.WhyJob) -> Any:
    """Return what is known about a job, without its content.

    Which fields a handler declares secret is recorded with a failure. A job that never
    failed has none, so its payload cannot be redacted safely.
    """
    found = _found(show.show(conn, asked.job), "record of this job")

    return {name: value for name, value in found.items() if name not in CONTENT}


def _series(conn: Connection, _: Agent, asked: given.Series) -> Any:
    """Return the counts of at most 60 steps, and what people and deploys changed."""
    now = now_of(conn)
    axis = period(_instant(asked.since), now, now, MOST_STEPS)
    about = (asked.queue, asked.kind)
    points = read_series(conn, axis, *about)
    marks = read_marks(conn, axis.since, axis.until, *about, MOST_MARKS)

    return {
        "step_seconds": axis.step.total_seconds(),
        "steps": [_step(point) for point in points],
        "changes": [{"at": mark.at, "what": sentence(mark)} for mark in marks],
    }


def _step(point: Point) -> Row:
    """Return the counts and times of a step."""
    return {
        **{name: getattr(point, name) for name in COUNTS},
        "duration_p50": point.duration_at(0.5),
        "duration_p95": point.duration_at(0.95),
        "wait_p95": point.wait_at(0.95),
    }


def _report(conn: Connection, _: Agent, asked: given.Report) -> Any:
    if asked.group is not None:
        return _found(incident.report(conn, asked.group), "group of this name")

    causes = failing.find(conn, messages=False)
    return rules.shown(review.review(conn, _instant(asked.since), causes), None)


# ---------------------------------------------------------------------- propose


def _propose_campaign(
    conn: Connection, agent: Agent, asked: given.ProposeCampaign
) -> Any:
    report = proposals.propose_campaign(conn, agent, _selection(asked), asked.why)
    # No plan is kept if no dead letter matches.
    _found(report["plan"], "open dead letter that matches")

    shown = ("plan", "matched", "missing", "blocked", "kinds", "queues")
    start = f"a person starts it with: redrive campaign start {report['plan']}"

    return {name: report[name] for name in shown} | {"next": start}


def _propose_edit(conn: Connection, agent: Agent, asked: given.ProposeEdit) -> Any:
    """Propose an edit.

    The answer has no diff, and does not count payloads that stay the same: both would
    tell whether a guessed value is right.
    """
    patch = read_patch(msgspec.json.encode(asked.patch).decode())

    letters = _letters(conn, asked)
    seen = edits.preview(letters, patch, Handlers())
    left = seen.counts["not_applicable"] + seen.counts["in_campaign"]

    number = proposals.propose_edit(conn, agent, letters, patch, asked.why)

    return {**_proposed(number), "matched": seen.matched, "stay": left}


def _letters(conn: Connection, asked: given.ProposeEdit) -> list[Letter]:
    """Return the dead letters to edit. Raises Refused for zero or too many."""
    chosen = _selection(asked, MOST_EDITED + 1)
    letters = [one for one in edits.find(conn, chosen) if isinstance(one, Letter)]
    if not 0 < len(letters) <= MOST_EDITED:
        count = len(letters)
        msg = f"{count} dead letters match; there must be 1 to {MOST_EDITED}"
        raise Refused(msg)

    return letters


def _propose_change(conn: Connection, agent: Agent, asked: given.ProposeChange) -> Any:
    found = _found(groups.show(conn, asked.group), "group of this name")
    detail = {"group": found["group"]}
    if asked.action == "mute":
        detail["seconds"] = asked.hours * 3600

    number = proposals.propose(conn, asked.action, agent, asked.why, detail)

    return {**_proposed(number), **detail}


def _selection(
    asked: given.ProposeCampaign | given.ProposeEdit, most: int | None = None
) -> Any:
    try:
        chosen = filter_of(asked, most)
    except (ValueError, OverflowError):
        msg = "since and until must be instants, or lengths such as 6h"
        raise Refused(msg) from None

    if not chosen.narrows():
        msg = "choose dead letters by ids, a group or another field"
        raise Refused(msg)

    return chosen


def _proposed(number: int) -> Row:
    start = f"a person starts it with: redrive proposal start {number}"
    return {"proposal": number, "next": start}


Tool = Callable[[Connection, Agent, Any], Any]
Tools = Mapping[str, tuple[type[given.Arguments], Tool]]
"""Name -> the class of its arguments, and what it does."""

LOOKS: Tools = {
    "list_groups": (given.ListGroups, _list_groups),
    "explain_group": (given.ExplainGroup, _explain_group),
    "show_dead_letter": (given.ShowDeadLetter, _show_dead_letter),
    "why_job": (given.WhyJob, _why_job),
    "series": (given.Series, _series),
    "report": (given.Report, _report),
}

PROPOSES: Tools = {
    "propose_campaign": (given.ProposeCampaign, _propose_campaign),
    "propose_edit": (given.ProposeEdit, _propose_edit),
    "propose_change": (given.ProposeChange, _propose_change),
}

TOOLS: Tools = {**LOOKS, **PROPOSES}


def tools_of(agent: Agent) -> Tools:
    """Return the tools that an agent may use."""
    return TOOLS if agent.may_propose else LOOKS
