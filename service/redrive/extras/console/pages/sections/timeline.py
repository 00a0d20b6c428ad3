"""A job's life as one timeline, and its state in one sentence."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from redrive.jobs.story import StepKind, step
from redrive.jobs.why.answer import Code
from redrive.rules.attempts.plan import why_over
from redrive.rules.brief import counted
from redrive.rules.instants import duration
from redrive.rules.model import Reason
from redrive.rules.rows import Row

CAUSES: Mapping[str, str] = {
    Reason.ATTEMPTS_EXHAUSTED: "its last attempt failed",
    Reason.NOT_RETRYABLE: "a retry would not help",
    Reason.SAME_FAILURE: "it failed the same way again and again",
    Reason.EXPIRED: "it expired before it could run",
    Reason.INVALID_PAYLOAD: "its payload is invalid",
    Reason.GAVE_UP: "its handler gave up",
    Reason.KILLED_WORKER: "it killed the process that ran it",
    Reason.UNDECRYPTABLE: "no key decrypts its payload",
}
"""Reason -> why a job died, in words."""
_SHOWN_BY_LETTER = {StepKind.EDIT, StepKind.NOTE}
"""Steps that the notes and edits of a dead letter tell better."""
_PLAIN = {"failure": None, "edit": None, "look": "off"}


def headline(job: Row, letter: Row | None) -> str:
    """Return a job's state in one sentence."""
    why = job["why"]
    # Another reason than the end itself says what comes next.
    is_over = why["code"] == Code.ENDED
    if is_over and job["state"] == "dead" and letter is not None:
        return _died(letter)

    text = why["text"]
    return f"{text[:1].upper()}{text[1:]}."


def _died(letter: Row) -> str:
    """Say how long a job took to die, and why it did."""
    after = counted(letter["attempts"], "attempt")

    seconds = letter["time_to_dlq_seconds"]
    # Other systems often do not say when a job was created.
    if seconds:
        after += f" in {duration(seconds)}"

    reason = letter["reason"]
    cause = why_over(letter["failures"]) or CAUSES.get(reason, reason)

    return f"This job died after {after}, because {cause}."


def timeline(job: Row, letter: Row | None) -> Sequence[Row]:
    """Return the steps of a job's life, oldest first.

    A step has its failure or its edit, if it is one.
    """
    steps = [*_story(job, letter)]
    if letter is not None:
        steps += map(_edit, letter["edits"])
        steps += map(_note, letter["notes"] or ())

    return sorted(steps, key=itemgetter("at"))


def _story(job: Row, letter: Row | None) -> Iterator[Row]:
    """Yield the steps of the story; a failure gets its details."""
    failed = iter(sorted(job["failures"], key=itemgetter("at")))

    for each in job["story"]:
        kind = each["kind"]
        if letter is not None and kind in _SHOWN_BY_LETTER:
            continue

        # Both are in the order of time, so the next failure is the one of this step.
        failure = next(failed) if kind == StepKind.FAILURE else None
        look = "bad" if kind in {StepKind.FAILURE, StepKind.DEATH} else "run"
        yield _PLAIN | each | {"failure": failure, "look": look}


def _edit(edit: Row) -> Row:
    what = f"edited: {', '.join(edit['paths'])}"
    told = step(StepKind.EDIT, edit["at"], what, edit["actor"], edit["why"])
    return _PLAIN | told | {"edit": edit}


def _note(note: Row) -> Row:
    at = datetime.fromisoformat(note["at"])
    return _PLAIN | step(StepKind.NOTE, at, "note", note["actor"], note["text"])
