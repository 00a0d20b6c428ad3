"""Marks of a time axis: what changed, and which change came just before an instant."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

What = Literal[
    "deploy",
    "worker",
    "campaign",
    "pause",
    "breaker",
    "limit",
    "edit",
    "purge",
    "schedule",
]
"""What a mark is about. `worker`: a worker was lost."""

CLOSE = timedelta(hours=1)
"""How long before an instant a change may have caused what began then."""

_ENDS = frozenset({"end redrive", "reset breaker", "breaker closed", "purge"})
"""Actions that are not named as the change before something."""


class Mark(NamedTuple):
    """A change, for a time axis.

    Attributes:
        action: what happened, such as `pause redrive`, `worker lost`, `breaker open`.
        name: version, worker, breaker, limit, schedule, queue, or number of a campaign.
        actor: who did it; None = nobody, such as a breaker that opened by itself, or the
            session may not read the audit log.
        n: number of jobs or dead letters that the action was about.
        line: number in the audit log.
        queues: the queues that it is about; None = all, or unknown.
        kinds: the same with kinds; one may be a prefix (`mail.*`).
    """

    at: datetime
    what: What
    action: str
    name: str | None = None
    actor: str | None = None
    n: int | None = None
    line: int | None = None
    queues: Sequence[str] | None = None
    kinds: Sequence[str] | None = None


def change_before(
    marks: Iterable[Mark], at: datetime, within: timedelta = CLOSE
) -> Mark | None:
    """Return the last change before an instant; None if none was close."""
    found: Mark | None = None

    for mark in marks:
        if mark.action in _ENDS:
            continue
        if not at - within <= mark.at <= at:
            continue

        if found is None or mark.at >= found.at:
            found = mark

    return found


def sentence(mark: Mark) -> str:
    """Describe a mark in words that follow `just before,` or a time."""
    words = _WORDS.get(mark.action, mark.action)
    plural = "" if mark.n == 1 else "s"
    text = words.format(name=mark.name, n=mark.n, s=plural)

    if mark.actor is None:
        return text

    return f"{mark.actor} {text}"


def mark_row(mark: Mark) -> dict[str, Any]:
    """Return a mark as the command line and the API show it."""
    row = mark._asdict()
    row["at"] = mark.at.astimezone(UTC)
    row["text"] = sentence(mark)

    return row


_WORDS = {
    "deploy": "version {name} started",
    "worker lost": "worker {name} was lost",
    "breaker open": "breaker {name} opened",
    "breaker closed": "breaker {name} closed",
    "force breaker": "forced breaker {name}",
    "reset breaker": "reset breaker {name}",
    "redrive": "started campaign {name}",
    "end redrive": "ended campaign {name}",
    "abort redrive": "aborted campaign {name}",
    "cancel redrive": "cancelled campaign {name}",
    "pause redrive": "paused campaign {name}",
    "resume redrive": "resumed campaign {name}",
    "pause": "paused queue {name}",
    "resume": "resumed queue {name}",
    "set limit": "set limit {name}",
    "remove limit": "removed limit {name}",
    "edit": "edited {n} dead letter{s}",
    "purge": "began a purge",
    "schedule changed": "schedule {name} changed",
    "pause schedule": "paused schedule {name}",
    "resume schedule": "resumed schedule {name}",
    "run schedule": "ran schedule {name}",
}
