"""Pages of the system: the overview, its parts, and the audit log.

The parts are queues, workers, breakers, limits and schedules.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from redrive.database.rows import Connection, value
from redrive.dead_letters.groups import store as groups
from redrive.extras.console.charts.span import Span
from redrive.extras.console.pages.filters import audit_page, part, skipped
from redrive.extras.console.pages.listing import PAGE
from redrive.extras.console.pages.sections.privileges import readable
from redrive.extras.console.pages.time_series.curves import curves, sums
from redrive.extras.console.pages.time_series.marks import marks_of, sentence_before
from redrive.extras.console.pages.time_series.spans import of_page, span_of
from redrive.extras.console.running import of_workers
from redrive.extras.console.state import SignedIn, Visit
from redrive.jobs import breakers, limits, schedules, workers
from redrive.jobs.queues import queues as read_queues
from redrive.overview import figures
from redrive.rules.rows import Row
from redrive.verbs.query import command, url

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)
MOST_CAUSES = 6
MOST_WORKERS = 48
MOST_OF_WORKER = 8
"""Most jobs that the page lists for a worker, the longest."""


@router.get("/")
def show_overview(visit: SignedIn) -> Response:
    """Show what is wrong now, how it went lately, and the largest causes."""
    span = span_of(visit)

    with visit.reading() as conn:
        values = figures.now(conn)
        shown = curves(conn, span, marks_of(conn, span))
        by_queue = sums(conn, span)
        # The login of a viewer may not read groups.
        causes = readable(lambda: _causes(conn, span))
        names = [row["group"] for row in causes or ()]
        deaths = figures.deaths(conn, names, span.sparks)

    return visit.page(
        "overview.html",
        **values,
        drawn=[shown.throughput(), shown.failures(), shown.waits(), shown.backlog()],
        marks=shown.marks,
        sums=by_queue,
        is_new=not values["queues"] and not by_queue,
        is_blind=causes is None,
        causes=causes,
        deaths=deaths,
        shell=command(("queue", "ls")),
        **of_page(span),
    )


def _causes(conn: Connection, span: Span) -> list[Row]:
    """Return the largest groups, and groups of the span that are over by now.

    A group that began in the span tells what changed before.
    """
    most = groups.find(conn, closed=True, limit=MOST_CAUSES)
    found = [
        row
        for row in most
        if row["open"]
        or row["failing"]
        or (row["total"] and row["last_seen"] >= span.since)
    ]

    for row in found:
        began = row["first_seen"]
        row["began"] = None
        if span.since <= began < span.until:
            queue = value(conn, "select redrive.queue_of_v1(%s)", row["sample"])
            sentence, change = sentence_before(conn, row, {queue})
            row["began"] = sentence if change else None

    return found


@router.get("/queues")
def list_queues(visit: SignedIn) -> Response:
    """List the queues, their jobs and why nothing runs."""
    with visit.reading() as conn:
        queues = read_queues(conn)

    return visit.page("queues.html", queues=queues, shell=command(("queue", "ls")))


@router.get("/workers")
def list_workers(visit: SignedIn) -> Response:
    """List the workers, lost ones first, and what each runs now and since when."""
    skip = skipped(visit.after)

    with visit.reading() as conn:
        sums = workers.sums(conn)
        found = workers.worst_first(conn, MOST_WORKERS + 1, skip)
        shown, onward = part(found, MOST_WORKERS, skip)
        ids = [worker["id"] for worker in shown]
        # The login of a viewer may not read jobs.
        jobs = readable(lambda: of_workers(conn, ids, MOST_OF_WORKER))

    # The rows of one worker follow each other.
    by_worker = groupby(jobs or (), lambda job: job["worker_id"])

    return visit.page(
        "workers.html",
        sums=sums,
        rows=[_with_lists_as_text(worker) for worker in shown],
        running={worker: list(held) for worker, held in by_worker},
        is_blind=jobs is None,
        onward=onward and url("/workers", after=onward),
        shell=command(("worker", "ls")),
    )


def _with_lists_as_text(worker: Row) -> Row:
    """Return a worker with its lists as text."""
    queues = worker["queues"]
    kinds = worker["kinds"] or ()
    texts = {
        "queues": "all" if queues is None else ", ".join(queues),
        "kinds": ", ".join(kinds),
    }

    return worker | texts


@router.get("/breakers")
def list_breakers(visit: SignedIn) -> Response:
    """List the breakers of dependencies and their states."""
    return _listed(visit, "breakers.html", breakers.find, ("breaker", "ls"))


@router.get("/limits")
def list_limits(visit: SignedIn) -> Response:
    """List the limits, and the jobs that run and wait under each."""
    return _listed(visit, "limits.html", limits.find, ("limit", "ls"))


@router.get("/schedules")
def list_schedules(visit: SignedIn) -> Response:
    """List the schedules, with their next and last runs."""
    return _listed(visit, "schedules.html", schedules.find, ("schedule", "ls"))


def _listed(
    visit: Visit,
    template: str,
    find: Callable[[Connection], Sequence[Row]],
    words: Sequence[str],
) -> Response:
    """Answer with a list that has no filter, and the command that prints the same."""
    with visit.reading() as conn:
        rows = find(conn)

    return visit.page(template, rows=rows, shell=command(words))


@router.get("/audit")
def list_audit(visit: SignedIn) -> Response:
    """List who changed what, when and why."""
    rows, after = audit_page(visit, PAGE)
    given = {name: text for name, text in visit.query if text}

    return visit.page(
        "audit.html",
        rows=rows,
        given=given,
        onward=after and url("/audit", None, **given, after=after),
        shell=command(("audit", "ls"), None, **given),
    )
