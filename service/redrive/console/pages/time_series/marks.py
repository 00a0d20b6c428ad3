"""Changes as marks on the time axes of a page, and the change before an incident."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from redrive.console.charts.chart import Mark
from redrive.console.charts.span import Span
from redrive.database.rows import Connection
from redrive.observability.marks import read_marks
from redrive.rules import marks as rules
from redrive.rules.scheduling.instants import duration

MOST = 40
"""Most changes that a page shows, the latest."""
PAGES = {
    "deploy": "/workers",
    "worker": "/workers",
    "breaker": "/breakers",
    "limit": "/limits",
    "schedule": "/schedules",
    "edit": "/audit?action=edit",
    "purge": "/audit?action=purge",
}


def marks_of(
    conn: Connection,
    span: Span,
    *,
    queue: str | None = None,
    kind: str | None = None,
    queues: Collection[str] = (),
) -> Sequence[Mark]:
    """Return the changes in a span, oldest first, without changes of other queues.

    Args:
        queues: the queues of the kind; changes of other queues are left out.
    """
    since, until, _ = span.period
    found = read_marks(conn, since, until, queue, kind, MOST)
    return [_shown(mark) for mark in found if _is_about(mark, queues)]


def _is_about(mark: rules.Mark, queues: Collection[str]) -> bool:
    """Return False if a change is known to be about other queues."""
    if not queues or mark.queues is None:
        return True
    return not set(mark.queues).isdisjoint(queues)


def _shown(mark: rules.Mark) -> Mark:
    text = rules.sentence(mark)
    if not mark.actor:  # a name keeps its spelling
        text = text[:1].upper() + text[1:]

    label = (mark.name or "") if mark.what == "deploy" else ""

    return Mark(
        at=mark.at,
        kind=mark.what,
        text=text,
        href=_page(mark),
        label=label,
    )


def _page(mark: rules.Mark) -> str | None:
    """Return the page that tells more about a change."""
    if mark.what == "campaign" and mark.name:
        return f"/campaigns/{mark.name}"
    if mark.what == "pause" and mark.name:
        return f"/queues/{mark.name}"
    return PAGES.get(mark.what)


def sentence_before(
    conn: Connection, began: datetime, kind: str, queues: Collection[str]
) -> tuple[str, Mark | None]:
    """Return a sentence about the change before an incident, and the change or None."""
    since = began - rules.CLOSE
    # The end is exclusive, and a change at the same instant counts.
    found = read_marks(
        conn,
        since,
        began + timedelta(seconds=1),
        kind=kind,
    )
    near = [mark for mark in found if _is_about(mark, queues)]
    change = rules.change_before(near, began)
    if change is None:
        return (
            "Nothing is known to have changed in the hour before the first death.",
            None,
        )

    passed = duration((began - change.at).total_seconds())
    text = rules.sentence(change)

    return f"The first job died {passed} after this change: {text}.", _shown(change)
