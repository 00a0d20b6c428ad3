"""Report of a replay, for people and for programs."""

from collections.abc import Iterator
from pathlib import Path

import click

from redrive.cli.support.output import printable, shown_id
from redrive.extras.replay.bundle import Bundle
from redrive.extras.replay.calls import SOMEWHERE
from redrive.extras.replay.places import own_place_of, place_of
from redrive.extras.replay.replay import Replayed
from redrive.observability.tracebacks import traceback_lines
from redrive.rules.rows import Row
from redrive.testing.past import NO_CLOCK, can_set_clock

_WORDS = {
    "same": "the same failure at the same line",
    "same_failure": "the same failure",
    "moved": "the same failure in the same function, at another line",
    "other": "another failure",
    None: "it failed",
}
"""How a failure compares with the one on record."""


def facts(bundle: Bundle, found: Replayed) -> Row:
    """Return a replay as `job replay --json` prints it."""
    result = found.result
    failure = result and result.failure
    place = None if failure is None else place_of(failure)

    return {
        "id": bundle.id,
        "kind": bundle.kind,
        "attempt": bundle.attempt,
        "time": bundle.started_at,
        "seed": bundle.seed,
        "outcome": result.outcome if result else None,
        "same_line": None if result is None else result.verdict == "same",
        "verdict": result and result.verdict,
        "error_class": failure and failure["error_class"],
        "message": failure and failure["message"],
        "place": None if place is None else place._asdict(),
        "refused_calls": len(found.targets),
        "refused_targets": _targets(found),
        "redacted": bundle.hidden,
        "end": found.end,
    }


def lines(bundle: Bundle, found: Replayed) -> Iterator[str]:
    """Yield what people read of a replay."""
    shown = shown_id(bundle.id)
    title = click.style(f"job {shown}", bold=True)
    kind = printable(bundle.kind)
    at = printable(bundle.started_at)
    yield f"{title}  {kind}  attempt {bundle.attempt}, as of {at}"

    result = found.result
    if result is None:
        yield f"it did not end: {found.end}"
    elif result.failure is None:
        reason = f" ({printable(result.reason)})" if result.reason else ""
        yield f"it did not fail: {result.outcome}{reason}"
    elif found.targets and not (result.is_same or result.has_moved):
        yield f"it ended with {printable(result.failure['error_class'])}"
    else:
        yield f"{_WORDS[result.verdict]}:"
        yield from traceback_lines(result.failure)

    is_same = result is not None and result.is_same
    if not is_same:
        yield from _hints(bundle, found)


def _targets(found: Replayed) -> list[str]:
    """Return where refused calls would have gone, each once.

    A host name was looked up in vain, so its address is not known.
    """
    lookups = found.result.lookups if found.result and found.targets else []
    known = dict.fromkeys([*found.targets, *lookups])
    if len(known) > 1:
        known.pop(SOMEWHERE, None)

    return list(known)


def _refusals(found: Replayed) -> Iterator[str]:
    """Yield one sentence for each target of refused calls."""
    caller = printable(_caller(found))
    for target in _targets(found):
        tried = f"{caller} tried to connect to {printable(target)}"
        if target == SOMEWHERE:
            how = "--no-sandbox lets it through, at your own risk"
        else:
            how = f"allow it with --allow {printable(target)}"

        yield f"{tried}; replay refuses connections; {how}"


def _caller(found: Replayed) -> str:
    """Return the frame of the application that failed at a refused connection."""
    failure = found.result and found.result.failure
    place = failure and own_place_of(failure)
    if not place:
        return "the handler"

    return str(place).removeprefix(f"{Path.cwd()}/")


def _hints(bundle: Bundle, found: Replayed) -> Iterator[str]:
    """Yield why it may not fail as it did, and what to try."""
    before = bundle.failure
    if before is not None:
        place = place_of({"detail": before.detail})
        at = f" at {place}" if place else ""
        yield f"on record is: {printable(before.error_class)}{printable(at)}"

    has_moved = found.result is not None and found.result.has_moved
    if found.targets and not has_moved:
        yield from _refusals(found)

    if bundle.hidden:
        fields = printable(", ".join(bundle.hidden))
        yield f"redacted: {fields}; give values by --payload FILE, or --reveal --why TEXT"

    if not can_set_clock():
        yield f"the clock was not set back: {NO_CLOCK}"
