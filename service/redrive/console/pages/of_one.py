"""Pages of one queue and of one kind: curves, failures by cause, and what runs."""

from typing import Any, LiteralString

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from redrive.console.charts.span import Span
from redrive.console.pages import figures
from redrive.console.pages.curves import Connection, curves, sums
from redrive.console.pages.filters import without_nul
from redrive.console.pages.marks import marks_of
from redrive.console.pages.privileges import readable
from redrive.console.pages.spans import of_page, span_of
from redrive.console.query import command
from redrive.console.security.access import Refused
from redrive.console.state import SignedIn
from redrive.live_jobs.running import running

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)

MOST_RUNNING = 10
MOST_LETTERS = 5000
"""Latest dead letters that are counted by cause."""

_CAUSES: LiteralString = """
    select d.fingerprint as "group", d.kind, d.error_class, d.category, count(*)::int as died,
           max(d.died_at) as last_seen
    from (select l.* from redrive.dead_letters l
          where l.state = 'open' and l.queue = %(queue)s
            and l.died_at >= %(since)s and l.died_at < %(until)s
          order by l.died_at desc limit %(most)s) d
    group by 1, 2, 3, 4 order by died desc limit 10"""
_CAUSES_OF_KIND: LiteralString = """
    select d.fingerprint as "group", d.kind, d.error_class, d.category, count(*)::int as died,
           max(d.died_at) as last_seen
    from (select l.* from redrive.dead_letters l
          where l.state = 'open' and l.kind = %(kind)s
            and l.died_at >= %(since)s and l.died_at < %(until)s
          order by l.died_at desc limit %(most)s) d
    group by 1, 2, 3, 4 order by died desc limit 10"""


def _causes(conn: Connection, query: LiteralString, span: Span, **of: str) -> Any:
    times = {"since": span.since, "until": span.until}
    return figures.rows(conn, query, most=MOST_LETTERS, **of, **times)


@router.get("/queues/{queue:path}")
def show_queue(visit: SignedIn, queue: str) -> Response:
    """Show one queue: what it holds, its curves, its kinds, and what runs."""
    name = without_nul("the queue", queue)
    span = span_of(visit)
    with visit.reading() as conn:
        found = [row for row in figures.queues(conn) if row["queue"] == name]
        shown = curves(conn, span, marks_of(conn, span, queue=name), queue=name)
        kinds = sums(conn, span, queue=name, by_kind=True)
        causes = readable(lambda: _causes(conn, _CAUSES, span, queue=name))
        runs = readable(lambda: running(conn, queue=name, most=MOST_RUNNING))

    if not found and not kinds:
        raise Refused(404, f"no queue {name} has held a job in this span")
    return visit.page(
        "queue.html",
        name=name,
        queue=found[0] if found else None,
        drawn=[
            *(shown.throughput(), shown.failures(), shown.waits(), shown.backlog()),
            shown.durations(),
        ],
        marks=shown.marks,
        kinds=sorted(kinds.values(), key=lambda each: -each.completed),
        causes=causes,
        running=runs,
        shell=command(("queue", "ls")),
        **of_page(span),
    )


@router.get("/kinds")
def list_kinds(visit: SignedIn) -> Response:
    """List the kinds that ran in a span, with their sums."""
    span = span_of(visit, "24h")
    with visit.reading() as conn:
        found = sums(conn, span, by_kind=True)
    kinds = sorted(found.values(), key=lambda each: (-each.died, -each.completed))
    return visit.page("kinds.html", kinds=kinds, **of_page(span, "24h"))


@router.get("/kinds/{kind:path}")
def show_kind(visit: SignedIn, kind: str) -> Response:
    """Show one kind: its curves, its queues, its failures, and what runs."""
    name = without_nul("the kind", kind)
    span = span_of(visit)
    with visit.reading() as conn:
        shown = curves(conn, span, marks_of(conn, span, kind=name), kind=name)
        queues = sums(conn, span, kind=name)
        causes = readable(lambda: _causes(conn, _CAUSES_OF_KIND, span, kind=name))
        runs = readable(lambda: running(conn, kind=name, most=MOST_RUNNING))

    return visit.page(
        "kind.html",
        name=name,
        drawn=[
            *(shown.throughput(), shown.failures(), shown.waits(), shown.durations()),
        ],
        marks=shown.marks,
        queues=sorted(queues.values(), key=lambda each: -each.completed),
        causes=causes,
        running=runs,
        shell=command(("job", "ls"), None, kind=name),
        **of_page(span),
    )
