"""The story of a job: its events in order, as command line and console tell them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import chain
from operator import itemgetter
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.rules.instants import span
from redrive.rules.rows import Fields, Row

Step = Row
"""Event of a job's life: at, kind, what, by, why."""


class StepKind(StrEnum):
    """Kind of a step of a job's story."""

    ENQUEUED = "enqueued"
    FAILURE = "failure"
    SIDE_EFFECT = "side_effect"
    DEATH = "death"
    REDRIVE = "redrive"
    EDIT = "edit"
    NOTE = "note"
    ACT = "act"
    """Any other entry of the audit log."""
    END = "end"


_DEATHS: LiteralString = """
    select d.deliveries, d.died_at, d.reason, d.state, d.settled_at, d.outcome, d.campaign,
           c.actor, c.why, c.conditions ->> 'to_queue' as to_queue
    from redrive.dead_letters d left join redrive.campaigns c on c.id = d.campaign
    where d.id = %s order by d.redrives"""
_AUDIT: LiteralString = """
    select a.at, a.actor, a.action, a.why, a.detail -> 'paths' as paths from redrive.audit a
    where a.detail -> 'ids' @> to_jsonb(%s::bigint) order by a.id"""

_BY_CAMPAIGN = "redrive"
"""Action of the audit log that a dead letter's own columns describe."""

_ENDS = {"succeeded": "; then completed", "cancelled": "; then cancelled"}
"""Maps outcomes of a redrive to words; a job that died again has its next death."""

_ACTS = {"edit": StepKind.EDIT, "note": StepKind.NOTE}
"""Maps actions of the audit log to kinds; all others are acts."""


def deaths_of(conn: Connection, job: int) -> list[Row]:
    """Return the deaths of a job, oldest first, each with the redrive after it."""
    return rows(conn, _DEATHS, job)


def lines_of(conn: Connection, job: int) -> list[Row]:
    """Return the entries of the audit log about a job, oldest first."""
    return rows(conn, _AUDIT, job)


def story(
    job: Row, source: Row, deaths: Sequence[Fields], lines: Sequence[Fields]
) -> list[Step]:
    """Return the steps of a job, oldest first.

    Args:
        source: has its `failures` and its `side_effects`.
        deaths: from `deaths_of`.
        lines: from `lines_of`.
    """
    failures = source["failures"]
    steps = (
        _beginning(job),
        _failures(failures),
        _side_effects(source["side_effects"]),
        _deaths(deaths, failures),
        _acts(lines),
        _end(job),
    )
    return sorted(chain.from_iterable(steps), key=itemgetter("at"))


def _beginning(job: Fields) -> Iterator[Step]:
    if job["created_at"] is not None:
        yield step(StepKind.ENQUEUED, job["created_at"], _enqueued(job["schedule"]))


def _failures(failures: list[Row]) -> Iterator[Step]:
    for failure in failures:
        what = "attempt {attempt} failed: {error_class}: {message}".format_map(failure)
        yield step(StepKind.FAILURE, failure["at"], what, failure["worker"])


def _side_effects(effects: list[Row]) -> Iterator[Step]:
    for effect in effects:
        what = f"side effect: {effect['what']}"
        yield step(StepKind.SIDE_EFFECT, effect["at"], what)


def _deaths(deaths: Sequence[Fields], failures: list[Row]) -> Iterator[Step]:
    """Yield each death, and the redrive after it."""
    failed_at = {failure["deliveries"]: failure["at"] for failure in failures}
    for death in deaths:
        died_at = death["died_at"]
        # The same statement wrote its last failure, whose clock may have been read
        # later.
        last = failed_at.get(death["deliveries"], died_at)
        yield step(StepKind.DEATH, max(died_at, last), f"died: {death['reason']}")

        settled_at = death["settled_at"]
        is_redriven = death["state"] in {"redriven", "resolved"}
        if is_redriven and settled_at is not None:
            what = _redriven(death)
            yield step(StepKind.REDRIVE, settled_at, what, death["actor"], death["why"])


def _redriven(death: Fields) -> str:
    text = "redriven"
    if death["campaign"]:
        text += f" by campaign {death['campaign']}"
    if death["to_queue"]:
        text += f" to the queue {death['to_queue']}"
    # Without a history, nothing else tells of the job's end.
    text += _ENDS.get(death["outcome"], "")

    return text


def _acts(lines: Sequence[Fields]) -> Iterator[Step]:
    """Yield the acts in the audit log that no dead letter records."""
    for line in lines:
        what = line["action"]
        if what == _BY_CAMPAIGN:
            continue

        kind = _ACTS.get(what, StepKind.ACT)
        if kind is StepKind.EDIT:
            what = f"edited: {', '.join(line['paths'])}"

        yield step(kind, line["at"], what, line["actor"], line["why"])


def _enqueued(schedule: Mapping[str, str] | None) -> str:
    if schedule is None:
        return "enqueued"
    return "enqueued by schedule {name} for {scheduled_for}".format_map(schedule)


def _end(job: Fields) -> Iterator[Step]:
    """Yield the end of a job that the history has kept."""
    if "ended_at" not in job:
        return

    what = job["state"]
    if what == "completed":
        length = span((job["ended_at"] - job["run_at"]).total_seconds())
        what = f"{what} in attempt {job['attempt']}, {length} after it was due"

    yield step(StepKind.END, job["ended_at"], what, job["worker"])


def step(
    kind: StepKind,
    at: datetime,
    what: str,
    by: str | None = None,
    why: str | None = None,
) -> Step:
    """Return an event of a job's life. `by` is a person, a worker or None."""
    return {"at": at, "kind": str(kind), "what": what, "by": by, "why": why}
