"""Changes as marks on the time axes of a page, and the change before an incident."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import LiteralString

from redrive.database.rows import Connection, value
from redrive.extras.console.charts.chart import Mark
from redrive.extras.console.charts.span import Span
from redrive.observability.marks import read_marks
from redrive.rules import marks as rules
from redrive.rules.instants import duration
from redrive.rules.rows import Row

FIRST_LETTERS = 100
"""Dead letters of a group that tell when its first job failed."""
_FIRST_FAILURE: LiteralString = """
    select min(d.first_failed_at) from (
        select o.first_failed_at from redrive.dead_letters o
        where o.fingerprint = %s order by o.died_at limit %s) d"""
PAGES = {
    "deploy": "/workers",
    "worker": "/workers",
    "breaker": "/breakers",
    "limit": "/limits",
    "schedule": "/schedules",
    "edit": "/audit?action=edit",
    "purge": "/audit?action=purge",
}


_NOTHING_CHANGED = (
    "Nothing that could cause this is known to have changed in the hour before."
)


def marks_of(  # noqa: PLR0913 # what the changes are about
    conn: Connection,
    span: Span,
    *,
    queue: str | None = None,
    kind: str | None = None,
    queues: Collection[str] = (),
    kinds: Collection[str] = (),
) -> Sequence[Mark]:
    """Return the changes in a span, oldest first, without changes of others.

    Args:
        queues: the queues of the kind; changes of other queues are left out.
        kinds: the kinds of the queue; changes of other kinds are left out.
    """
    since, until, _ = span.period
    found = read_marks(conn, since, until, queue, kind)
    about = [mark for mark in found if rules.is_about(mark, queues, kinds)]
    return [_shown(mark) for mark in rules.lasting(about)]


def _shown(mark: rules.Mark) -> Mark:
    text = rules.sentence(mark)
    if not mark.actor:  # a name keeps its spelling
        text = text[:1].upper() + text[1:]

    label = (mark.name or "") if mark.what == "deploy" else ""
    is_good = mark.action == "breaker closed"
    kind = "breaker-closed" if is_good else mark.what

    return Mark(at=mark.at, kind=kind, text=text, href=_page(mark), label=label)


def _page(mark: rules.Mark) -> str | None:
    """Return the page that tells more about a change."""
    if mark.what == "campaign" and mark.name:
        return f"/campaigns/{mark.name}"
    if mark.what == "pause" and mark.name:
        return f"/queues/{mark.name}"
    return PAGES.get(mark.what)


def sentence_before(
    conn: Connection, group: Row, queues: Collection[str]
) -> tuple[str, Mark | None]:
    """Return a sentence about the change before an incident, and the change or None.

    With retries, the first job died long after it first failed.

    Args:
        group: one that `groups.find` returns.
        queues: of its dead letters.
    """
    first = value(conn, _FIRST_FAILURE, group["group"], FIRST_LETTERS)
    began = min(first or group["first_seen"], group["first_seen"])
    # The end is exclusive, and a change at the same instant counts.
    until = began + timedelta(seconds=1)
    found = read_marks(conn, began - rules.CLOSE, until, kind=group["kind"])
    near = [
        mark
        for mark in found
        if rules.is_about(mark, queues, ())
        and rules.may_cause(mark, group["category"], group["versions"])
    ]
    change = rules.change_before(near, began)
    if change is None:
        return _NOTHING_CHANGED, None

    seconds = round((began - change.at).total_seconds())
    passed = f"{duration(seconds)} after" if seconds else "right after"
    text = rules.sentence(change)

    return f"The first job failed {passed} this change: {text}.", _shown(change)
