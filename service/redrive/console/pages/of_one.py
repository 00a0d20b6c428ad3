"""Pages of one queue and of one kind: curves, failures by cause, and what runs."""

from collections.abc import Collection
from functools import partial
from typing import Any, LiteralString

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from redrive.console.charts.span import Span
from redrive.console.pages import figures
from redrive.console.pages.curves import Connection, Sums, curves, sums
from redrive.console.pages.filters import without_nul
from redrive.console.pages.marks import marks_of
from redrive.console.pages.privileges import readable
from redrive.console.pages.spans import of_page, shell_of, span_of
from redrive.console.security.access import Refused
from redrive.console.state import SignedIn
from redrive.live_jobs.running import running

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)

A_DAY = "24h"
MOST_RUNNING = 10
MOST_LETTERS = 5000
"""Latest dead letters that are counted by cause."""

_CAUSES: LiteralString = """
    select d.fingerprint as "group", d.kind, d.error_class, d.category, count(*)::int as died,
           max(d.died_at) as last_seen
    from (select l.* from redrive.dead_letters l
          where l.state = 'open' and l.queue = %(name)s
            and l.died_at >= %(since)s and l.died_at < %(until)s
          order by l.died_at desc limit %(most)s) d
    group by 1, 2, 3, 4 order by died desc limit 10"""
_CAUSES_OF_KIND: LiteralString = """
    select d.fingerprint as "group", d.kind, d.error_class, d.category, count(*)::int as died,
           max(d.died_at) as last_seen
    from (select l.* from redrive.dead_letters l
          where l.state = 'open' and l.kind = %(name)s
            and l.died_at >= %(since)s and l.died_at < %(until)s
          order by l.died_at desc limit %(most)s) d
    group by 1, 2, 3, 4 order by died desc limit 10"""


@router.get("/queues/{queue:path}")
def show_queue(visit: SignedIn, queue: str) -> Response:
    """Show one queue: its jobs, its curves, its kinds, and what runs."""
    name = without_nul("the queue", queue)
    span = span_of(visit)
    with visit.reading() as conn:
        held = _held(conn, name)
        kinds = sums(conn, span, queue=name, by_kind=True)
        if held is None and not kinds:
            raise Refused(404, f"no queue {name} has held a job in this span")
        values = _of_queue(conn, span, name)

    return visit.page(
        "queue.html",
        name=name,
        queue=held,
        kinds=sorted(kinds.values(), key=_completed),
        shell=shell_of(span, queue=name),
        **values,
        **of_page(span),
    )


def _held(conn: Connection, queue: str) -> dict[str, Any] | None:
    """Return the current figures of a queue; None if it never held a job."""
    for row in figures.queues(conn):
        if row["queue"] == queue:
            return row
    return None


def _completed(each: Sums) -> int:
    """Return the order of a row: the most completed jobs first."""
    return -each.completed


def _of_queue(conn: Connection, span: Span, queue: str) -> dict[str, Any]:
    """Return the curves of a queue, its causes of failure, and what runs."""
    marks = marks_of(conn, span, queue=queue)
    shown = curves(conn, span, marks, queue=queue)
    drawn = [
        shown.throughput(),
        shown.failures(),
        shown.waits(),
        shown.backlog(),
        shown.durations(),
    ]
    return {
        "drawn": drawn,
        "marks": marks,
        "causes": _causes(conn, _CAUSES, span, queue),
        "running": readable(lambda: running(conn, queue=queue, most=MOST_RUNNING)),
    }


@router.get("/kinds")
def list_kinds(visit: SignedIn) -> Response:
    """List the kinds that ran in a span, with their sums."""
    span = span_of(visit, A_DAY)
    with visit.reading() as conn:
        found = sums(conn, span, by_kind=True)
    return visit.page(
        "kinds.html",
        kinds=sorted(found.values(), key=_died),
        shell=shell_of(span, A_DAY),
        **of_page(span, A_DAY),
    )


def _died(each: Sums) -> tuple[int, int]:
    """Return the order of a row: the most deaths first, then the most completed."""
    return -each.died, -each.completed


@router.get("/kinds/{kind:path}")
def show_kind(visit: SignedIn, kind: str) -> Response:
    """Show one kind: its curves, its queues, its failures, and what runs."""
    name = without_nul("the kind", kind)
    span = span_of(visit)
    with visit.reading() as conn:
        queues = sums(conn, span, kind=name)
        values = _of_kind(conn, span, name, queues)

    return visit.page(
        "kind.html",
        name=name,
        queues=sorted(queues.values(), key=_completed),
        shell=shell_of(span, kind=name),
        **values,
        **of_page(span),
    )


def _of_kind(
    conn: Connection, span: Span, kind: str, queues: Collection[str]
) -> dict[str, Any]:
    """Return the curves of a kind, its causes of failure, and what runs."""
    marks = marks_of(conn, span, kind=kind, queues=queues)
    shown = curves(conn, span, marks, kind=kind)
    drawn = [shown.throughput(), shown.failures(), shown.waits(), shown.durations()]
    return {
        "drawn": drawn,
        "marks": marks,
        "causes": _causes(conn, _CAUSES_OF_KIND, span, kind),
        "running": readable(lambda: running(conn, kind=kind, most=MOST_RUNNING)),
    }


def _causes(
    conn: Connection, query: LiteralString, span: Span, name: str
) -> list[dict[str, Any]] | None:
    """Return the causes of a span's dead letters; None if the login sees none."""
    read = partial(
        figures.rows,
        conn,
        query,
        name=name,
        since=span.since,
        until=span.until,
        most=MOST_LETTERS,
    )
    return readable(read)
