"""Pages of one queue and of one kind: curves, failures by cause, and what runs."""

from typing import Literal, LiteralString, NamedTuple

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from redrive.console.charts.span import Span
from redrive.console.pages.filters import without_nul
from redrive.console.pages.sections import figures
from redrive.console.pages.sections.privileges import readable
from redrive.console.pages.time_series.curves import Sums, curves, sums
from redrive.console.pages.time_series.marks import marks_of
from redrive.console.pages.time_series.spans import of_page, shell_of, span_of
from redrive.console.security.access import Refused
from redrive.console.state import SignedIn, Visit
from redrive.database.rows import Connection, rows
from redrive.live_jobs.surroundings.running import running
from redrive.rules.rows import Row

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)

A_DAY = "24h"
MOST_KINDS = 100
MOST_RUNNING = 10
MOST_LETTERS = 5000
"""Latest dead letters that are counted by cause."""

_CAUSES: LiteralString = """
    select d.fingerprint as "group", d.kind, d.error_class, d.category, count(*)::int as died,
           max(d.died_at) as last_seen
    from (select l.* from redrive.dead_letters l
          where l.state = 'open' and l.{} = %(name)s
            and l.died_at >= %(since)s and l.died_at < %(until)s
          order by l.died_at desc limit %(most)s) d
    group by 1, 2, 3, 4 order by died desc limit 10"""
"""Query with a place for the column; an index has each."""


class One(NamedTuple):
    """A queue or a kind, by its name."""

    word: Literal["queue", "kind"]
    name: str

    @property
    def given(self) -> dict[str, str]:
        """Return the name as a filter."""
        return {self.word: self.name}


@router.get("/queues/{queue:path}")
def show_queue(visit: SignedIn, queue: str) -> Response:
    """Show one queue: its jobs, its curves, its kinds, and what runs."""
    one = One("queue", without_nul("the queue", queue))
    span = span_of(visit)

    with visit.reading() as conn:
        held = _held(conn, one.name)
        values = _values(conn, span, one)

    if held is None and not values["parts_of"]:
        raise Refused(404, f"no queue {one.name} has held a job in this span")

    return _page(visit, span, one, values | {"queue": held})


def _held(conn: Connection, queue: str) -> Row | None:
    """Return the current figures of a queue; None if it never held a job."""
    found = figures.queues(conn)
    return next(
        (row for row in found if row["queue"] == queue),
        None,
    )


@router.get("/kinds")
def list_kinds(visit: SignedIn) -> Response:
    """List the kinds that ran in a span, with their sums."""
    span = span_of(visit, A_DAY)

    with visit.reading() as conn:
        found = sums(conn, span, by_kind=True)

    kinds = sorted(found.values(), key=_died)

    return visit.page(
        "kinds.html",
        kinds=kinds[:MOST_KINDS],
        is_cut=len(kinds) > MOST_KINDS,
        shell=shell_of(span, A_DAY),
        **of_page(span, A_DAY),
    )


def _died(each: Sums) -> tuple[int, int]:
    """Return the order of a row: the most deaths first, then the most completed."""
    return -each.died, -each.completed


@router.get("/kinds/{kind:path}")
def show_kind(visit: SignedIn, kind: str) -> Response:
    """Show one kind: its curves, its queues, its failures, and what runs."""
    one = One("kind", without_nul("the kind", kind))
    span = span_of(visit)

    with visit.reading() as conn:
        values = _values(conn, span, one)

    return _page(visit, span, one, values | {"queue": None})


def _values(conn: Connection, span: Span, one: One) -> Row:
    """Return the curves of a queue or kind, its causes of failure, and what runs."""
    is_queue = one.word == "queue"
    parts = sums(conn, span, **one.given, by_kind=is_queue)
    marks = marks_of(
        conn,
        span,
        **one.given,
        queues=() if is_queue else parts,
    )
    shown = curves(conn, span, marks, **one.given)
    drawn = [
        shown.throughput(),
        shown.failures(),
        shown.waits(),
    ]

    if is_queue:
        drawn.append(shown.backlog())

    drawn.append(shown.durations())

    return {
        "drawn": drawn,
        "marks": marks,
        "parts_of": sorted(parts.values(), key=_completed),
        # The login of a viewer may not read dead letters or jobs.
        "causes": readable(lambda: _causes(conn, span, one)),
        "running": readable(lambda: _running(conn, one)),
    }


def _completed(each: Sums) -> int:
    """Return the order of a row: the most completed jobs first."""
    return -each.completed


def _running(conn: Connection, one: One) -> list[Row]:
    """Return the longest-running jobs of a queue or kind."""
    return running(
        conn,
        queue=one.given.get("queue"),
        kind=one.given.get("kind"),
        most=MOST_RUNNING,
    )


def _causes(conn: Connection, span: Span, one: One) -> list[Row]:
    """Count the open dead letters of a span by cause."""
    bounds = {
        "since": span.since,
        "until": span.until,
        "most": MOST_LETTERS,
    }
    # The word is one of two constants, so no text of a user gets into the query.
    query = _CAUSES.format(one.word)
    return rows(conn, query, name=one.name, **bounds)


def _page(visit: Visit, span: Span, one: One, values: Row) -> Response:
    shell = shell_of(span, **one.given)
    return visit.page(
        "one.html",
        one=one,
        shell=shell,
        **values,
        **of_page(span),
    )
