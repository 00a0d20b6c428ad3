"""Pages of dead letters: the list, the groups, what a group shares, and the report."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from redrive.database.rows import Connection
from redrive.dead_letters import find
from redrive.dead_letters.explain import facts as explain
from redrive.dead_letters.explain.answer import MIN_BASE, MIN_JOBS, sentence
from redrive.dead_letters.filter import CATEGORIES, Filter
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.report import review as rules
from redrive.dead_letters.report import weekly as review
from redrive.extras.console.charts.span import Span, covering
from redrive.extras.console.letter_pages import page
from redrive.extras.console.pages.filters import (
    group_choice,
    list_view,
    review_since,
    search_seconds,
    without_nul,
)
from redrive.extras.console.pages.listing import filter_of, layout
from redrive.extras.console.pages.sections.tried import tried
from redrive.extras.console.pages.time_series.curves import curves, deaths_chart
from redrive.extras.console.pages.time_series.marks import marks_of, sentence_before
from redrive.extras.console.pages.time_series.spans import (
    of_page,
    span_of,
    without_span,
)
from redrive.extras.console.state import Here, SignedIn
from redrive.jobs import failing
from redrive.overview import figures
from redrive.rules.rows import Row
from redrive.rules.times import HOUR, Period
from redrive.rules.trend import compared
from redrive.verbs.query import command, dead_letter_place, parse, place_of
from redrive.verbs.refusal import Missing

MOST_GROUPS = 25
LATEST = 10
EXAMINED = 200
"""Dead letters that the page of a group compares with other jobs."""
MOST_OF_A_STEP = 5000
"""Count no more dead letters of a step of a group's chart."""
SHOWN = tuple(name for name in find.NARROW if name != "state")

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)
T = TypeVar("T")


@router.get("/groups")
def list_groups(visit: SignedIn) -> Response:
    """List the causes of failing jobs and dead letters, largest first."""
    span = span_of(visit, "24h")
    query = without_span(visit.query)
    chosen = group_choice(query)

    with visit.reading() as conn:
        found = groups.find(conn, **chosen, limit=MOST_GROUPS)
        deaths = figures.deaths(conn, [row["group"] for row in found], span.sparks)

    # These filters are options without a value in a shell.
    switches = ("unacknowledged", "failing", "dead", "closed")
    words = ["dlq", "groups", *(f"--{name}" for name in switches if chosen[name])]
    flags = [(name, value) for name, value in query if name not in switches]

    return visit.page(
        "groups.html",
        groups=found,
        deaths=deaths,
        chosen=chosen,
        categories=CATEGORIES,
        states=groups.STATES,
        most=MOST_GROUPS,
        shell=command(words, flags),
        **of_page(span, "24h", query),
    )


@router.get("/groups/{fingerprint:path}")
def show_group(visit: SignedIn, fingerprint: str) -> Response:
    """Show one group: when it began, what changed then, its dead letters."""
    prefix = without_nul("the group", fingerprint)

    with visit.reading() as conn:
        group = _one(groups.show(conn, prefix), prefix)
        default = covering(group["first_seen"], datetime.now(UTC))
        span = span_of(visit, default)
        chosen = Filter(group=group["group"], state=("open",), limit=LATEST)
        values = {
            "letters": find.find(conn, chosen),
            "failing": failing.jobs_of(conn, group["group"], LATEST),
            "sample": find.show(conn, group["sample"]),
            "failure": find.failure_of(conn, group),
        }
        # The record of a group has no queues. Its dead letters have.
        queues = _queues(values)
        values |= _history(conn, group, span, queues)

    return visit.page(
        "group.html",
        group=group,
        **values,
        most=MOST_OF_A_STEP,
        shell=command(("dlq", "report", group["group"])),
        **of_page(span, default),
    )


def _queues(values: Row) -> set[str]:
    """Return the queues of a group, as its latest dead letters and its sample say."""
    jobs = (*values["letters"], *values["failing"], values["sample"])
    return {job["queue"] for job in jobs if job}


def _history(conn: Connection, group: Row, span: Span, queues: set[str]) -> Row:
    """Return the curve of a group, the changes around it, and what was tried."""
    name = group["group"]
    kind = group["kind"]
    marks = marks_of(conn, span, kind=kind, queues=queues)
    deaths = figures.deaths(conn, groups=[name], steps=span.period, most=MOST_OF_A_STEP)
    sentence, change = sentence_before(conn, group, queues)
    failures = replace(
        curves(conn, span, marks, kind=kind).failures(),
        title=f"Failures of {kind}, for all causes",
    )

    return {
        "curves": [failures, deaths_chart(span, deaths[name], marks)],
        "is_capped": MOST_OF_A_STEP in deaths[name],
        "marks": marks,
        "before": sentence,
        "change": change,
        "tried": tried(conn, name),
        "trend": _trend(conn, name),
    }


def _trend(conn: Connection, group: str) -> str:
    """Return a sentence about whether more or fewer jobs die than before."""
    now = datetime.now(UTC)
    hours = Period(now - 2 * HOUR, now, HOUR)
    deaths = figures.deaths(conn, groups=[group], steps=hours, most=MOST_OF_A_STEP)
    before, recent = deaths[group]
    if not before + recent:
        return "None died in the last two hours."

    return f"{recent:,} died in the last hour, {compared(recent, before, 'hour')}."


def _one(group: T | None, name: str) -> T:
    if group is None:
        raise Missing(groups.missing(name))
    return group


@router.get("/explain/{fingerprint:path}")
def explain_group(visit: SignedIn, fingerprint: str) -> Response:
    """Explain what the dead letters of a group have in common.

    The page of the group loads this as a part, and then fewer are examined.
    """
    is_part = bool(visit.request.headers.get("hx-request"))
    template = "findings.html" if is_part else "explain.html"
    most = EXAMINED if is_part else explain.OF_GROUP
    prefix = without_nul("the group", fingerprint)

    with visit.reading() as conn:
        found = _one(explain.explain(conn, prefix, most=most), prefix)

    base = max(found["compared_with"].values())
    return visit.page(
        template,
        found=found,
        sentences=[sentence(finding) for finding in found["findings"]],
        is_enough=(found["looked_at"] >= MIN_JOBS and base >= MIN_BASE),
        shell=command(("dlq", "explain", found["group"])),
    )


@router.get("/report")
def show_review(visit: SignedIn) -> Response:
    """Show what died in a period, what is open, and how redrives went."""
    since = review_since(visit.query)
    given = dict(visit.query).get("since", "")

    with visit.reading() as conn:
        found = review.review(conn, since, failing.find(conn, messages=False))

    return visit.page(
        "report.html",
        review=rules.shown(found, visit.console.cell),
        since=given,
        shell=command(("dlq", "report"), None, since=given or "7d"),
    )


@router.get("/dead-letters")
def list_dead_letters(visit: SignedIn) -> Response:
    """List dead letters, latest first, one page at a time."""
    shape = layout(visit.query, known=find.NAMES, default=SHOWN, sortable=find.NAMES)
    chosen = parse(Filter, filter_of(visit.query), states=("open",))
    after = dead_letter_place(visit.after)

    with visit.reading() as conn:
        found = page(
            conn,
            chosen,
            after,
            most=shape.most(chosen.limit),
            seconds=search_seconds(after),
        )

    place = place_of(*found.place) if found.place else None

    return visit.page(
        "dead_letters.html",
        view=list_view("/dead-letters", chosen, found.rows, place, shape),
        numbers=find.NUMBERS,
        is_open=tuple(chosen.state) == ("open",),
        shell=command(("dlq", "ls"), chosen),
    )


@router.get("/dead-letters/{job}")
def show_dead_letter(here: Here, job: int) -> Response:
    """Redirect to the page of the job, which shows its dead letter."""
    return RedirectResponse(f"{here.root}/jobs/{job}", 303)
