"""Everything known about one job, live or not, with its events, oldest first."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import chain
from operator import itemgetter
from typing import LiteralString, NamedTuple

from redrive.database.rows import Connection, first_row, rows
from redrive.dead_letters import find as dead_letters
from redrive.encryption import shown_noted, shown_payload
from redrive.jobs import failing
from redrive.jobs.filter import JobFilter
from redrive.jobs.find import LISTED, find, listed, progress_of
from redrive.jobs.history import ended
from redrive.jobs.why.answer import Code, Why
from redrive.rules.attempts.plan import why_over
from redrive.rules.instants import span
from redrive.rules.payloads.redact import redact, secret_values
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


class Told(NamedTuple):
    """A job with its story, and its latest death with all that is known of it."""

    job: Row
    letter: Row | None


_PAYLOAD: LiteralString = """
    select id, kind, queue, payload, headers, tenant, idempotency_key, ordering_key,
           case when failed_at is not null then fingerprint end as "group"
    from redrive.jobs where id = %s"""
_CHECKPOINT: LiteralString = """
    select at, deliveries, data from redrive.checkpoints where job = %s"""
_DEATHS: LiteralString = """
    select d.deliveries, d.died_at, d.reason, d.state, d.settled_at, d.outcome, d.campaign,
           c.actor, c.why, c.conditions ->> 'to_queue' as to_queue
    from redrive.dead_letters d left join redrive.campaigns c on c.id = d.campaign
    where d.id = %s order by d.redrives"""
_AUDIT: LiteralString = """
    select a.at, a.actor, a.action, a.why, a.detail -> 'paths' as paths from redrive.audit a
    where a.detail -> 'ids' @> to_jsonb(%s::bigint) order by a.id"""

_STATES = {
    ("open", None): "dead",
    ("dismissed", None): "dismissed",
    ("resolved", "succeeded"): "completed",
    ("resolved", "cancelled"): "cancelled",
}
"""Maps the state and outcome of a dead letter to the state of its ended job."""

_BY_CAMPAIGN = "redrive"
"""Action of the audit log that a dead letter's own columns describe."""

_SAME_FIELDS = (
    "id",
    "kind",
    "queue",
    "deliveries",
    "created_at",
    "ordering_key",
    "tenant",
)
"""Fields of a dead letter that have the same name in the list of jobs."""

_ACTS = {"edit": StepKind.EDIT, "note": StepKind.NOTE}
"""Maps actions of the audit log to kinds; all others are acts."""


def show(conn: Connection, job: int) -> Row | None:
    """Return a job with its story and why it does not run, or None.

    The payload is redacted. The result is None if nothing is on record of the job.
    """
    told = tell(conn, job)
    return told and told.job


def tell(conn: Connection, job: int) -> Told | None:
    """Return a job as `show` does, and the dead letter that it is or was.

    Failures and side effects are read once, for both.
    """
    deaths = rows(conn, _DEATHS, job)
    lines = rows(conn, _AUDIT, job)
    letter = dead_letters.show(conn, job) if deaths else None
    source = letter or {
        "failures": dead_letters.failures_of(conn, job),
        "side_effects": dead_letters.side_effects_of(conn, job),
    }
    failures = source["failures"]
    effects = source["side_effects"]

    found = _live(conn, job, failures) or _over(conn, job, deaths, letter, lines)
    if found is None:
        return None

    # Not every source knows the schedule, and only a live job can be failing.
    found = {"schedule": None, "cause": None} | found
    story = (
        _beginning(found),
        _failures(failures),
        _side_effects(effects),
        _deaths(deaths, failures),
        _acts(lines),
        _end(found),
    )
    steps = sorted(chain.from_iterable(story), key=itemgetter("at"))

    whole = found | {
        "failures": failures,
        "side_effects": effects,
        "story": steps,
        **_notes(conn, job, failures),
    }
    return Told(whole, letter)


def _notes(conn: Connection, job: int, failures: list[Row]) -> Row:
    """Return the progress and the checkpoint that the handler reported."""
    checkpoint = first_row(conn, _CHECKPOINT, job)
    return {
        "progress": progress_of(conn, [job]).get(job),
        "checkpoint": checkpoint and _checkpoint(job, checkpoint, failures),
    }


def _checkpoint(job: int, row: Fields, failures: list[Row]) -> Row:
    """Return the checkpoint that the next attempt starts from, without secrets."""
    noted = shown_noted(
        row["data"], what="checkpoint", job=job, delivery=row["deliveries"]
    )
    declared = dead_letters.declared_secret(failures)
    return {
        # A note that does not open has no data, and is shown with the reason.
        "data": redact(noted.get("data", noted), declared),
        "at": row["at"],
        "delivery": row["deliveries"],
    }


def _live(conn: Connection, job: int, failures: list[Row]) -> Row | None:
    """Return a live job; None if it is not live."""
    live = next(find(conn, JobFilter(ids=(job,))), None)
    row = first_row(conn, _PAYLOAD, job)
    if live is None or row is None:
        return None

    payload = shown_payload(row)
    headers = row["headers"]
    declared = dead_letters.declared_secret(failures)
    # The value of a secret field is removed wherever else it stands, too.
    secrets = secret_values([payload, headers], declared)
    shown = redact(headers, declared, secrets)

    return listed(live) | {
        "schedule": _schedule_of(shown),
        "payload": redact(payload, declared, secrets),
        "why": _answer(live["why"]),
        "cause": _cause(conn, row),
    }


def _cause(conn: Connection, job: Fields) -> Row | None:
    """Return why a job fails that is retried, with all jobs that fail for this cause."""
    if job["group"] is None:
        return None

    same = itemgetter("group", "queue")
    causes = failing.find(conn, kind=[job["kind"]])
    return next((cause for cause in causes if same(cause) == same(job)), None)


def _over(
    conn: Connection,
    job: int,
    deaths: Sequence[Fields],
    letter: Row | None,
    lines: Sequence[Fields],
) -> Row | None:
    """Return a job that is no longer live, from the source that knows most."""
    if (row := ended(conn, job)) is not None:
        return _kept(row)
    if letter is not None:
        return _ended(letter, deaths[-1])

    if lines:
        return _gone(job, lines[-1])
    return None


def _kept(row: Fields) -> Row:
    """Return a job from the history of its queue."""
    payload = shown_payload(row)
    secrets = secret_values([payload, row["headers"]])
    return listed(row) | {
        "payload": redact(payload, (), secrets),
        "why": _ended_because(f"it has ended: {row['state']}"),
        "ended_at": row["ended_at"],
    }


def _ended(letter: Fields, death: Fields) -> Row:
    """Return a job that died, and its outcome since."""
    state = _STATES.get((death["state"], death["outcome"]), "completed")
    text = f"it has ended: {state}"
    if state == "dead":
        text = _died(letter)

    same = {name: letter[name] for name in _SAME_FIELDS}
    failure = {name: letter[name] for name in ("error_class", "message", "category")}

    return dict.fromkeys(LISTED) | {
        **same,
        "state": state,
        "attempt": letter["attempts"],
        "key": letter["idempotency_key"],
        "last_failure": failure | {"at": letter["died_at"]},
        "schedule": _schedule_of(letter["headers"]),
        "payload": letter["payload"],
        "why": _ended_because(text),
    }


def _gone(job: int, line: Fields) -> Row:
    """Return a job that only the audit log knows."""
    action = line["action"]
    is_cancelled = action in {"cancel", "end cancel"}
    return dict.fromkeys(LISTED) | {
        "id": job,
        "state": "cancelled" if is_cancelled else "gone",
        "payload": None,
        "why": _ended_because(f"it is gone; its last entry in the audit log: {action}"),
    }


def _beginning(job: Fields) -> Iterator[Step]:
    if job["created_at"] is not None:
        yield _step(StepKind.ENQUEUED, job["created_at"], _enqueued(job["schedule"]))


def _failures(failures: list[Row]) -> Iterator[Step]:
    for failure in failures:
        what = "attempt {attempt} failed: {error_class}: {message}".format_map(failure)
        yield _step(StepKind.FAILURE, failure["at"], what, failure["worker"])


def _side_effects(effects: list[Row]) -> Iterator[Step]:
    for effect in effects:
        what = f"side effect: {effect['what']}"
        yield _step(StepKind.SIDE_EFFECT, effect["at"], what)


def _deaths(deaths: Sequence[Fields], failures: list[Row]) -> Iterator[Step]:
    """Yield each death, and the redrive after it."""
    failed_at = {failure["deliveries"]: failure["at"] for failure in failures}
    for death in deaths:
        died_at = death["died_at"]
        # The same statement wrote its last failure, whose clock may have been read
        # later.
        last = failed_at.get(death["deliveries"], died_at)
        yield _step(StepKind.DEATH, max(died_at, last), f"died: {death['reason']}")

        settled_at = death["settled_at"]
        is_redriven = death["state"] in {"redriven", "resolved"}
        if is_redriven and settled_at is not None:
            what = _redriven(death)
            yield _step(
                StepKind.REDRIVE, settled_at, what, death["actor"], death["why"]
            )


def _died(letter: Fields) -> str:
    """Say why a job died, and what redrives it."""
    cause = letter["reason"]
    over = why_over(letter["failures"])
    if over:
        cause += f", because {over}"

    return f"it died: {cause}; to redrive it: redrive dlq redrive {letter['id']}"


def _redriven(death: Fields) -> str:
    text = "redriven"
    if death["campaign"]:
        text += f" by campaign {death['campaign']}"
    if death["to_queue"]:
        text += f" to the queue {death['to_queue']}"

    return text


def _acts(lines: Sequence[Fields]) -> Iterator[Step]:
    """Yield the acts in the audit log that no dead letter records."""
    for line in lines:
        if line["action"] != _BY_CAMPAIGN:
            kind = _ACTS.get(line["action"], StepKind.ACT)
            yield _step(kind, line["at"], _act(line), line["actor"], line["why"])


def _act(line: Fields) -> str:
    """Return the act that a line of the audit log describes."""
    action: str = line["action"]
    if action == StepKind.EDIT:
        return f"edited: {', '.join(line['paths'])}"
    return action


def _schedule_of(headers: Fields) -> dict[str, str] | None:
    """Return the schedule that enqueued a job, and its slot.

    None means that a producer enqueued it.
    """
    name = headers.get("schedule")
    slot = headers.get("scheduled_for")
    # A producer may use headers with these names.
    if isinstance(name, str) and isinstance(slot, str):
        return {"name": name, "scheduled_for": slot}

    return None


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

    yield _step(StepKind.END, job["ended_at"], what, job["worker"])


def _step(
    kind: StepKind,
    at: datetime,
    what: str,
    by: str | None = None,
    why: str | None = None,
) -> Step:
    return {"at": at, "kind": str(kind), "what": what, "by": by, "why": why}


def _answer(why: Why) -> dict[str, str]:
    return {"code": str(why.code), "text": why.text}


def _ended_because(text: str) -> dict[str, str]:
    return _answer(Why(Code.ENDED, text))
