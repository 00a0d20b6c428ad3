"""Everything known about one job, live or not, with its events, oldest first."""

from collections.abc import Sequence
from operator import itemgetter
from typing import LiteralString, NamedTuple

from redrive.database.rows import Connection, first_row
from redrive.dead_letters import find as dead_letters
from redrive.encryption import shown_noted, shown_payload
from redrive.jobs import failing
from redrive.jobs.filter import JobFilter
from redrive.jobs.find import FACTS, LISTED, find, listed, progress_of
from redrive.jobs.history import ended
from redrive.jobs.story import deaths_of, lines_of, story
from redrive.jobs.why.answer import Code, Why
from redrive.jobs.why.facts import why_letter
from redrive.rules.attempts.plan import why_over
from redrive.rules.payloads.redact import redact, secret_values
from redrive.rules.rows import Fields, Row, fields_of


class Shown(NamedTuple):
    """A job with its story, and its latest death with all that is known of it."""

    job: Row
    letter: Row | None


_PAYLOAD: LiteralString = """
    select id, kind, queue, payload, headers, tenant, idempotency_key, ordering_key,
           case when failed_at is not null then fingerprint end as "group"
    from redrive.jobs where id = %s"""
_CHECKPOINT: LiteralString = """
    select at, deliveries, data from redrive.checkpoints where job = %s"""
_STATES = {
    ("open", None): "dead",
    ("dismissed", None): "dismissed",
    ("resolved", "succeeded"): "completed",
    ("resolved", "cancelled"): "cancelled",
}
"""Maps the state and outcome of a dead letter to the state of its ended job."""

_OF_DEATH = ("group", "reason", "redrives", "blocked")
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


def show(conn: Connection, job: int) -> Row | None:
    """Return a job with its story and why it does not run, or None.

    The payload is redacted. The result is None if nothing is on record of the job.
    """
    shown = show_with_letter(conn, job)
    return shown and shown.job


def show_with_letter(conn: Connection, job: int) -> Shown | None:
    """Return a job as `show` does, and the dead letter that it is or was.

    Failures and side effects are read once, for both.
    """
    deaths = deaths_of(conn, job)
    lines = lines_of(conn, job)
    letter = dead_letters.show(conn, job) if deaths else None
    source = letter or {
        "failures": dead_letters.failures_of(conn, job),
        "side_effects": dead_letters.side_effects_of(conn, job),
    }
    failures = source["failures"]

    found = _live(conn, job, failures) or _over(conn, job, deaths, letter, lines)
    if found is None:
        return None

    # Not every source knows the schedule, and only a live job can be failing.
    found = {"schedule": None, "cause": None} | found
    checkpoint = first_row(conn, _CHECKPOINT, job)
    whole = found | {
        "failures": failures,
        "side_effects": source["side_effects"],
        "story": story(found, source, deaths, lines),
        "progress": progress_of(conn, [job]).get(job),
        "checkpoint": checkpoint and _checkpoint(job, checkpoint, failures),
    }
    return Shown(whole, letter)


def facts(job: Fields, letter: Fields | None) -> Row:
    """Return the facts of a job by name, and of its latest death."""
    found = {name: job[name] for name in FACTS}
    if letter is not None:
        found |= {name: letter[name] for name in _OF_DEATH} | dead_letters.facts(letter)
    return found


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
        "why": live["why"].fields(),
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
        return _died(conn, letter, deaths[-1])

    if lines:
        return _gone(job, lines[-1])
    return None


def _kept(row: Fields) -> Row:
    """Return a job from the history of its queue."""
    payload = shown_payload(row)
    secrets = secret_values([payload, row["headers"]])
    return listed(row) | {
        "payload": redact(payload, (), secrets),
        "why": _ended(f"it has ended: {row['state']}"),
        "ended_at": row["ended_at"],
    }


def _died(conn: Connection, letter: Fields, death: Fields) -> Row:
    """Return a job that died, and its outcome since."""
    state = _STATES.get((death["state"], death["outcome"]), "completed")
    why = _ended(f"it has ended: {state}")
    if state == "dead":
        why = why_letter(conn, letter, why_over(letter["failures"])).fields()

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
        "why": why,
    }


def _gone(job: int, line: Fields) -> Row:
    """Return a job that only the audit log knows."""
    action = line["action"]
    is_cancelled = action in {"cancel", "end cancel"}
    return dict.fromkeys(LISTED) | {
        "id": job,
        "state": "cancelled" if is_cancelled else "gone",
        "payload": None,
        "why": _ended(f"it is gone; its last entry in the audit log: {action}"),
    }


def _schedule_of(headers: Fields) -> dict[str, str] | None:
    """Return the schedule that enqueued a job, and its slot.

    None means that a producer enqueued it.
    """
    headers = fields_of(headers)
    name = headers.get("schedule")
    slot = headers.get("scheduled_for")
    # A producer may use headers with these names.
    if isinstance(name, str) and isinstance(slot, str):
        return {"name": name, "scheduled_for": slot}

    return None


def _ended(text: str) -> dict[str, str]:
    return Why(Code.ENDED, text).fields()
