"""Terms of a redrive: its inputs, an estimate, and its command."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from redrive.dead_letters.campaigns.obstacles import Allow
from redrive.dead_letters.campaigns.pace import ABORT_SHARE, pace
from redrive.dead_letters.campaigns.store import MAX_REDRIVES
from redrive.dead_letters.campaigns.terms import (
    TERM_NAMES,
    BadTerm,
    Terms,
    usual_canaries,
)
from redrive.dead_letters.filter import Filter
from redrive.rules.instants import span
from redrive.verbs.refusal import Invalid
from redrive.verbs.verb import Input

MOST_REDRIVES = 1_000_000

INPUTS = (
    Input("rate", "Jobs per second, at most", kind="number"),
    Input("canaries", "Canaries", hint="jobs to run first; 0 for none", kind="integer"),
    Input(
        "abort-share",
        "Abort above",
        default=f"{ABORT_SHARE:g}",
        hint="share of jobs that die again",
        kind="number",
    ),
    Input("not-before", "Not before", hint="2h from now, or 2026-03-01T22:00Z"),
    Input("when-breaker", "While a breaker is", hint="smtp:closed", takes_many=True),
    Input("when-version", "Workers' version", hint=">=1.4.2"),
    Input("to-queue", "Queue to run in", hint="by default where each died"),
)
"""Terms of a start."""

REDRIVES = Input(
    "max-redrives",
    "Leave out what was redriven this often already",
    default=str(MAX_REDRIVES),
    kind="integer",
)
QUARANTINED = Input(
    "include-quarantined",
    "Redrive quarantined dead letters, which died again of the same cause",
    word="include",
    kind="boolean",
)
INVALID = Input(
    "include-invalid",
    "Redrive invalid payloads that nobody has corrected",
    word="include",
    kind="boolean",
)
REPEAT = Input(
    "repeat",
    "Run jobs again that must not run twice",
    word="repeat",
    kind="boolean",
    asks=True,
)
CONFIRMS = (QUARANTINED, INVALID, REPEAT)
FIELDS = (
    *TERM_NAMES,
    *(each.name for each in (REDRIVES, *CONFIRMS)),
    "seen",
    "allowed",
)
"""Fields of the form besides the reason."""


def terms_of(more: Mapping[str, str], canaries: int) -> Terms:
    """Parse the terms in a form.

    Args:
        more: fields of the form.
        canaries: number of canaries if the form gives none.

    Raises:
        Refused: a term is invalid; the message names the field.
    """
    try:
        return Terms.read(more, datetime.now(UTC), canaries)
    except BadTerm as error:
        raise Invalid(str(error)) from None


def allow_of(more: Mapping[str, str], chosen: Filter) -> Allow:
    """Return what a form confirms.

    Raises:
        Refused: a field is invalid, or `repeat` is confirmed without ids.
    """
    allow = Allow(*(_is_confirmed(more, each) for each in CONFIRMS))
    if allow.repeat and not chosen.ids:
        raise Invalid("repeat needs ids: name each job that may run again")
    return allow


def _is_confirmed(more: Mapping[str, str], field: Input) -> bool:
    text = more.get(field.name, "").strip()
    if text.lower() in {"", "false"}:
        return False
    if text.lower() in {field.word, "true"}:
        return True

    raise Invalid(f"{field.name} is {text!r}; type {field.word}, or leave it empty")


def confirmations(chosen: Filter, blocked: Mapping[str, int]) -> list[Input]:
    """Return the inputs that confirm obstacles of a selection."""
    asked = dict(
        zip(("quarantined", "invalid", "not_repeatable"), CONFIRMS, strict=True)
    )
    # A filter cannot confirm `repeat`: each of these jobs must be named by its id.
    return [
        each
        for cause, each in asked.items()
        if cause in blocked and (chosen.ids or not each.asks)
    ]


def most_redrives(more: Mapping[str, str]) -> int:
    """Return how often a dead letter may have been redriven. Raises Invalid."""
    text = more.get(REDRIVES.name, "").strip() or str(MAX_REDRIVES)
    is_number = text.isascii() and text.isdigit()
    if not is_number or not 1 <= int(text[:20]) <= MOST_REDRIVES:
        rule = f"it must be a whole number from 1 to {MOST_REDRIVES}"
        raise Invalid(f"{REDRIVES.name} is {text!r}; {rule}")
    return int(text)


def canaries_of(chosen: Filter, matched: int) -> int:
    """Return the number of canaries if nobody gives one."""
    return usual_canaries(matched, are_named=bool(chosen.ids))


def estimate(
    matched: int, terms: Terms, allowed: float | None, again: str = "die again"
) -> str:
    """Estimate how long a redrive takes and what it risks, in a sentence.

    Args:
        matched: number of dead letters; the sentence is empty if it is 0.
        allowed: redrives per second that its handlers allow; None = any number.
        again: what jobs do if their cause is not fixed.
    """
    if not matched:
        return ""

    lasts = "Runs without a fixed rate"
    least = least_seconds(matched, terms, allowed)
    if least:
        lasts = f"Takes {span(least)} at least"

    if not terms.canaries:
        return f"{lasts}. There are no canaries, so all jobs may {again}."

    return f"{lasts}. {terms.risk(matched, again)}."


def least_seconds(matched: int, terms: Terms, allowed: float | None) -> int | None:
    """Return how long a redrive takes at least; None if nothing limits its rate."""
    fastest = pace(terms.rate, {} if allowed is None else {"": allowed}, kinds=1)
    return math.ceil(matched / fastest) if fastest else None
