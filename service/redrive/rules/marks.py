"""Marks of a time axis: what changed, and which change came just before an instant."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from redrive.rules.model import Category

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

_ENDS = frozenset(
    {
        "end redrive",
        "reset breaker",
        "breaker half-open",
        "breaker closed",
        "purge",
        "set limit",
        "remove limit",
    }
)
"""Actions that are not named as the change before something, because they fail no job."""

_OF_OTHERS = frozenset({Category.TRANSIENT, Category.THROTTLED, Category.AUTH})
"""Categories of failures that are no fault of the handler's code."""


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


def is_about(mark: Mark, queues: Collection[str], kinds: Collection[str]) -> bool:
    """Return False if a change is known to be about other queues or other kinds only.

    Args:
        queues: empty = any.
        kinds: empty = any.
    """
    if queues and mark.queues is not None and set(mark.queues).isdisjoint(queues):
        return False
    if not kinds or mark.kinds is None:
        return True

    prefixes = tuple(name[:-1] for name in mark.kinds if name.endswith("*"))
    return any(kind in mark.kinds or kind.startswith(prefixes) for kind in kinds)


def may_cause(mark: Mark, category: str, versions: Collection[str]) -> bool:
    """Return False if a change cannot be why jobs began to fail in this way.

    Args:
        category: of the failures.
        versions: in which they failed; empty = unknown.
    """
    if mark.action in _ENDS:
        return False
    if mark.what == "deploy":
        # New code does not make a provider answer 401 or 503.
        is_of_code = category not in _OF_OTHERS
        return is_of_code and (not versions or mark.name in versions)
    if mark.what == "breaker":
        # It is about the kinds that depend on it. If no worker names them, nobody knows.
        return mark.kinds is not None

    return True


def lasting(marks: Sequence[Mark]) -> list[Mark]:
    """Leave out the marks of breakers that were half-open for a moment only."""
    last = {mark.name: mark for mark in marks if mark.what == "breaker"}
    return [
        mark
        for mark in marks
        if mark.action != "breaker half-open" or last[mark.name] is mark
    ]


def change_before(
    marks: Iterable[Mark], at: datetime, within: timedelta = CLOSE
) -> Mark | None:
    """Return the last change before an instant; None if none was close."""
    close = [mark for mark in marks if at - within <= mark.at <= at]
    # Of several at one instant, the latest counts.
    return max(reversed(close), key=attrgetter("at"), default=None)


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
    "breaker half-open": "breaker {name} is half-open",
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
