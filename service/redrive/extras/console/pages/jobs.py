"""Pages of jobs: the list of live jobs, and all about one job."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from redrive.dead_letters.filter import Filter
from redrive.extras.console.job_pages import page
from redrive.extras.console.pages.filters import list_view, search_seconds
from redrive.extras.console.pages.listing import filter_of, layout
from redrive.extras.console.pages.sections.timeline import headline, timeline
from redrive.extras.console.state import PREFIX, Console, SignedIn
from redrive.jobs.filter import ENDED, JobFilter
from redrive.jobs.find import COLUMNS, ENDED_NARROW, NARROW, NUMBERS
from redrive.jobs.show import facts, show_with_letter
from redrive.rules.cells import parted
from redrive.verbs.query import command, is_job_id, job_place, parse
from redrive.verbs.refusal import Invalid, Missing

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)
SORTABLE = tuple(name for name in COLUMNS if name != "waiting_for")


@router.get("/jobs")
def list_jobs(visit: SignedIn) -> Response:
    """List live jobs in the order in which they run, and what each waits for."""
    chosen = parse(JobFilter, filter_of(visit.query))
    has_ended = bool(chosen.state) and ENDED.issuperset(chosen.state)
    known = (*COLUMNS, "ended_at") if has_ended else COLUMNS
    default = ENDED_NARROW if has_ended else NARROW
    shape = layout(visit.query, known=known, default=default, sortable=SORTABLE)
    after = job_place(visit.after)

    with visit.reading() as conn:
        found = page(
            conn,
            chosen,
            after,
            most=shape.most(chosen.limit),
            seconds=search_seconds(after),
        )

    return visit.page(
        "jobs.html",
        title="Jobs that have ended" if has_ended else "Live jobs",
        numbers=NUMBERS,
        order="the latest first" if has_ended else "in the order in which they run",
        view=list_view("/jobs", chosen, found.rows, found.place, shape),
        shell=command(("job", "ls"), chosen),
    )


@router.get("/find")
def find_job(visit: SignedIn) -> Response:
    """Redirect to the page of a job by its id; `eu:17` is a job of the cell eu."""
    cell, number = parted(dict(visit.query).get("id", ""))
    ids = parse(Filter, visit.query if cell is None else [("id", number)]).ids
    root = _root(visit.console, cell)

    if not ids:
        return RedirectResponse(f"{root}/", 303)

    return RedirectResponse(f"{root}/jobs/{ids[0]}", 303)


def _root(here: Console, cell: str | None) -> str:
    """Return the root of a cell's pages. Raises Refused if there is no such cell."""
    if cell is None:
        return here.root
    if cell in here.cells:
        return f"{PREFIX}{cell}"

    known = ", ".join(here.cells) or "there is one database"
    raise Invalid(f"there is no cell {cell!r}; there are: {known}")


@router.get("/jobs/{job}")
def show_job(visit: SignedIn, job: int) -> Response:
    """Show a live, dead or ended job: why it waits, its story, its side effects."""
    with visit.reading() as conn:
        shown = show_with_letter(conn, job) if is_job_id(job) else None

    if shown is None:
        raise Missing(f"job {job} is not live, and there is no record of it")

    found, letter = shown

    return visit.page(
        "job.html",
        job=found,
        letter=letter,
        facts=facts(found, letter),
        headline=headline(found, letter),
        steps=timeline(found, letter),
        shell=command(("job", "show", str(job))),
    )
