"""Marks of a time axis: what changed, and which change came just before an instant."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

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
        actor: who did it; None = nobody, such as a breaker that opened by itself.
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
    close = [m for m in marks if at - within <= m.at <= at and m.action not in _ENDS]
    return max(close, key=lambda mark: mark.at, default=None)


def sentence(mark: Mark) -> str:
    """Describe a mark in words that follow `just before,` or a time."""
    text = _WORDS.get(mark.action, mark.action).format(name=mark.name, n=mark.n)
    return f"{mark.actor} {text}" if mark.actor else text


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
    "edit": "edited {n} dead letters",
    "purge": "began a purge",
    "schedule changed": "schedule {name} changed",
    "pause schedule": "paused schedule {name}",
    "resume schedule": "resumed schedule {name}",
    "run schedule": "ran schedule {name}",
}
