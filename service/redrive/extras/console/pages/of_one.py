"""Pages of one queue and of one kind: curves, failures by cause, and what runs."""

from typing import Literal, LiteralString, NamedTuple

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from redrive.database.rows import Connection, rows
from redrive.extras.console.charts.span import Span
from redrive.extras.console.pages.filters import without_nul
from redrive.extras.console.pages.sections.privileges import readable
from redrive.extras.console.pages.time_series.curves import curves, sums
from redrive.extras.console.pages.time_series.marks import marks_of
from redrive.extras.console.pages.time_series.spans import of_page, span_of
from redrive.extras.console.running import running
from redrive.extras.console.state import SignedIn, Visit
from redrive.jobs.queues import queues as read_queues
from redrive.rules.rows import Row
from redrive.verbs.query import command
from redrive.verbs.refusal import Missing

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)

A_DAY = "24h"
OTHER = "other"
MOST_KINDS = 100
MOST_RUNNING = 10
MOST_LETTERS = 5000
"""Latest dead letters that are counted by cause."""

_CAUSES: LiteralString = """
    select d.fingerprint as "group", d.kind, d.error_class, d.category, count(*)::int as open,
           max(d.died_at) as last_seen
    from (select l.* from redrive.dead_letters l
          where l.state = 'open' and l.{} = %(name)s
            and l.died_at >= %(since)s and l.died_at < %(until)s
          order by l.died_at desc limit %(most)s) d
    group by 1, 2, 3, 4 order by open desc limit 10"""
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
        found = read_queues(conn)
        held = next((row for row in found if row["queue"] == one.name), None)
        values = _values(conn, span, one)

    if held is None and not values["parts_of"]:
        raise Missing(f"no queue {one.name} has held a job in this span")

    return _page(visit, span, one, values | {"queue": held})


@router.get("/kinds")
def list_kinds(visit: SignedIn) -> Response:
    """List the kinds that ran in a span, with their sums."""
    span = span_of(visit, A_DAY)

    with visit.reading() as conn:
        found = sums(conn, span, by_kind=True)

    kinds = sorted(found.values(), key=lambda each: (-each.died, -each.completed))

    return visit.page(
        "kinds.html",
        kinds=kinds[:MOST_KINDS],
        is_cut=len(kinds) > MOST_KINDS,
        shell=command(("top",)),
        **of_page(span, A_DAY),
    )


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
    # Among many kinds or queues, the rarest are added up as "other".
    others = () if OTHER in parts else parts
    queues, kinds = ((), others) if is_queue else (others, ())
    marks = marks_of(conn, span, **one.given, queues=queues, kinds=kinds)
    shown = curves(conn, span, marks, **one.given)
    drawn = [shown.throughput(), shown.failures(), shown.waits()]

    if is_queue:
        drawn.append(shown.backlog())

    drawn.append(shown.durations())

    return {
        "drawn": drawn,
        "marks": marks,
        "parts_of": sorted(parts.values(), key=lambda each: -each.completed),
        # The login of a viewer may not read dead letters or jobs.
        "causes": readable(lambda: _causes(conn, span, one)),
        "running": readable(
            lambda: running(
                conn,
                queue=one.given.get("queue"),
                kind=one.given.get("kind"),
                most=MOST_RUNNING,
            )
        ),
    }


def _causes(conn: Connection, span: Span, one: One) -> list[Row]:
    """Count the open dead letters of a span by cause."""
    bounds = {"since": span.since, "until": span.until, "most": MOST_LETTERS}
    # The word is one of two constants, so no text of a user gets into the query.
    return rows(conn, _CAUSES.format(one.word), name=one.name, **bounds)


def _page(visit: Visit, span: Span, one: One, values: Row) -> Response:
    shell = command(("job", "ls"), None, **one.given)
    return visit.page("one.html", one=one, shell=shell, **values, **of_page(span))
