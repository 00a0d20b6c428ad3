"""The JSON API: lists and changes of the command line, with its filters and fields."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from fastapi.security import HTTPBearer

from redrive.console.actions import edits
from redrive.console.actions.change import Change, Done, Preview, why_of
from redrive.console.actions.changes import CHANGES
from redrive.console.pages import cells
from redrive.console.pages.filters import (
    AUDIT_FILTERS,
    GROUP_FILTERS,
    REVIEW_FILTERS,
    audit_page,
    group_choice,
    part,
    review_since,
    skipped,
)
from redrive.console.pages.forms import act
from redrive.console.pages.forms.changes import order, preview
from redrive.console.pages.json_api.series import (
    SERIES_FILTERS,
    first_steps,
    page_since,
    series_choice,
)
from redrive.console.pages.sections import figures
from redrive.console.query import (
    NUMBERS,
    choices_of,
    dead_letter_place,
    fields_of_many,
    is_job_id,
    job_place,
    name_of,
    parse,
    place_of,
)
from redrive.console.security.access import Refused
from redrive.console.state import Console, Known, SignedIn, Visit, media_type
from redrive.database.criteria import Criteria, Criterion
from redrive.database.rows import Connection
from redrive.dead_letters import find, proposals
from redrive.dead_letters.analysis import review
from redrive.dead_letters.campaigns import campaign
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.grouping import groups
from redrive.dead_letters.page import page as page_of_letters
from redrive.live_jobs.filter import JobFilter
from redrive.live_jobs.find import listed
from redrive.live_jobs.flow_control import breakers, limits, schedules
from redrive.live_jobs.page import page as page_of_jobs
from redrive.live_jobs.show import show as show_any_job
from redrive.live_jobs.surroundings import workers
from redrive.observability.marks import read_marks
from redrive.observability.series import each_point, now_of, shortest
from redrive.observability.series import listed as listed_point
from redrive.rules.marks import mark_row
from redrive.rules.payloads.escape import escaped
from redrive.rules.rows import Row

PREFIX = "/api/v1"
JSON = "application/json"
PAGE, MOST = 100, 1000
SECONDS = 3.0
NOT_IN_FORM = {"why", "yes", "patch"}

ERROR: Row = {
    "description": "What is wrong, and what is allowed.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error"],
                "properties": {"error": {"type": "string"}},
            }
        }
    },
}

router = APIRouter(
    prefix=PREFIX,
    responses={"default": ERROR},
    # This is only for OpenAPI. `SignedIn` checks the token.
    dependencies=[Depends(HTTPBearer(auto_error=False))],
    generate_unique_id_function=lambda route: route.name,
)


def answer(value: Any, status: int = 200) -> Response:
    """Return a JSON response in the format of the command line."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return Response(escaped(text), status, media_type=JSON)


# ---------------------------------------------------------------------- for OpenAPI


def _parameter(name: str, schema: Row) -> Row:
    return {"name": name, "in": "query", "schema": schema}


def _field(field: str, criterion: Criterion, *, many: bool) -> Row:
    """Describe a field of a filter as a parameter."""
    schema: Row = {"type": "string"}
    if field in NUMBERS:
        schema = {"type": "integer"}

    if choices := choices_of(field, criterion):
        schema["enum"] = list(choices)

    if many:
        schema = {"type": "array", "items": schema}

    name = name_of(field)
    return _parameter(name, schema) | {"description": criterion.help}


def described(of: type[Criteria] | None, *names: str) -> Row:
    """Return the OpenAPI parameters of a call: a filter's fields and other names."""
    found: list[Row] = []
    if of is not None:
        many = fields_of_many(of)
        found = [
            _field(field, criterion, many=field in many)
            for field, criterion in of.criteria().items()
        ]

    others = [_parameter(name, {"type": "string"}) for name in names]
    return {"parameters": found + others}


# ---------------------------------------------------------------------- lists


def _rows(found: Sequence[Any], after: str | None = None) -> Response:
    """Return a list as a response; `after` is the position of the next page."""
    return answer({"rows": found, "after": after})


@router.get("/cells")
def list_cells(request: Request, user: Known) -> Response:
    """List the cells, their totals and what is wrong in each."""
    rows = cells.rows(request, user)
    return _rows([_cell(row) for row in rows])


def _cell(row: Row) -> Row:
    sums = {name: row[name] for name in cells.SUMS}
    return {
        "cell": row["cell"],
        "fault": row["fault"],
        **sums,
        "workers": row["alive"],
        "troubles": [text for text, _ in row["troubles"]],
    }


@router.get("/jobs", openapi_extra=described(JobFilter, "after"))
def list_jobs(visit: SignedIn) -> Response:
    """List live jobs in the order in which they run; `after` continues a list."""
    chosen = parse(JobFilter, visit.query)
    after = job_place(visit.after)
    most = min(chosen.limit or PAGE, MOST)

    with visit.reading() as conn:
        found = page_of_jobs(
            conn,
            chosen,
            after,
            most=most,
            seconds=SECONDS,
        )

    rows = [listed(row) for row in found.rows]
    return _rows(rows, found.place)


@router.get("/jobs/{job}")
def show_job(visit: SignedIn, job: int) -> Response:
    """Show a live, dead or ended job with its payload redacted."""
    with visit.reading() as conn:
        return _one(job, partial(show_any_job, conn))


@router.get("/dead-letters", openapi_extra=described(Filter, "after"))
def list_dead_letters(visit: SignedIn) -> Response:
    """List dead letters, latest first; only open ones unless `state` is given."""
    chosen = parse(Filter, visit.query, states=("open",))
    after = dead_letter_place(visit.after)
    most = min(chosen.limit or PAGE, MOST)

    with visit.reading() as conn:
        found = page_of_letters(
            conn,
            chosen,
            after,
            most=most,
            seconds=SECONDS,
        )

    place = place_of(*found.place) if found.place else None
    return _rows(found.rows, place)


@router.get("/dead-letters/{job}")
def show_dead_letter(visit: SignedIn, job: int) -> Response:
    """Show a dead letter with its payload redacted."""
    with visit.reading() as conn:
        return _one(job, partial(find.show, conn))


def _one(job: int, show: Callable[[int], Any]) -> Response:
    """Return what is known about a job. Raises Refused if nothing is."""
    found = show(job) if is_job_id(job) else None
    if found is None:
        raise Refused(404, f"there is no record of job {job}")
    return answer(found)


@router.get("/groups", openapi_extra=described(None, *GROUP_FILTERS))
def list_groups(visit: SignedIn) -> Response:
    """List the groups of dead letters, largest first."""
    chosen = group_choice(visit.query)
    with visit.reading() as conn:
        return _rows(groups.find(conn, **chosen, limit=MOST))


@router.get("/report", openapi_extra=described(None, *REVIEW_FILTERS))
def show_review(visit: SignedIn) -> Response:
    """Show what died in a period, what is open, and how redrives went."""
    since = review_since(visit.query)
    with visit.reading() as conn:
        return answer(review.review(conn, since))


@router.get("/series", openapi_extra=described(None, *SERIES_FILTERS, "after"))
def list_series(visit: SignedIn) -> Response:
    """List counts and times by minute, queue and kind; by hour if older than a day."""
    chosen = series_choice(visit.query)

    with visit.reading() as conn:
        period = shortest(conn, chosen.since, chosen.until)
        found = each_point(
            conn,
            page_since(period, visit.after),
            chosen.queue,
            chosen.kind,
        )
        shown, after = first_steps(found)

    return _rows([listed_point(point) for point in shown], after)


@router.get("/marks", openapi_extra=described(None, *SERIES_FILTERS))
def list_marks(visit: SignedIn) -> Response:
    """List what changed when, oldest first: deploys, campaigns, lost workers, ..."""
    chosen = series_choice(visit.query)

    with visit.reading() as conn:
        marks = read_marks(
            conn,
            since=chosen.since,
            until=chosen.until or now_of(conn),
            queue=chosen.queue,
            kind=chosen.kind,
            most=MOST,
        )

    return _rows([mark_row(mark) for mark in marks])


@router.get("/links", openapi_extra=described(None, "queue", "group"))
def list_links(visit: SignedIn) -> Response:
    """Sign links for an alert of a queue or a group; each works once, for 15 minutes."""
    return _rows(act.links(visit))


@router.get("/workers", openapi_extra=described(None, "after"))
def list_workers(visit: SignedIn) -> Response:
    """List the workers, their queues and kinds, and their last heartbeats."""
    skip = skipped(visit.after)
    with visit.reading() as conn:
        # One row more than fits tells whether there is a next page.
        found = workers.find(conn, MOST + 1, skip)
    return _rows(*part(found, MOST, skip))


@router.get("/audit", openapi_extra=described(None, *AUDIT_FILTERS, "after"))
def list_audit(visit: SignedIn) -> Response:
    """List changes and who made them, newest first."""
    return _rows(*audit_page(visit, PAGE))


LISTS: Mapping[str, tuple[str, Callable[[Connection], Sequence[Row]]]] = {
    "queues": ("List the queues, their jobs and why nothing runs.", figures.queues),
    "campaigns": (
        "List the campaigns, newest first, and their results.",
        partial(campaign.find, limit=MOST),
    ),
    "proposals": ("List the open proposals of agents, newest first.", proposals.find),
    "breakers": (
        "List the breakers of dependencies and their states.",
        breakers.find,
    ),
    "limits": (
        "List the limits, and the jobs that run and wait under each.",
        limits.find,
    ),
    "schedules": (
        "List the schedules, with their next and last runs.",
        schedules.find,
    ),
}
"""Word in the address -> description and content of a list without filters."""


def _list_of(find: Callable[[Connection], Sequence[Row]]) -> Callable[..., Response]:
    """Return the API call for one list."""

    def call(visit: SignedIn) -> Response:
        with visit.reading() as conn:
            return _rows(find(conn))

    return call


for _word, (_about, _find) in LISTS.items():
    router.add_api_route(
        f"/{_word}",
        _list_of(_find),
        name=f"list_{_word}",
        description=_about,
    )


# ---------------------------------------------------------------------- changes


class Asked(
    msgspec.Struct, forbid_unknown_fields=True, rename={"for_": "for", "in_": "in"}
):
    """The body of a change. Without `yes`, the change is only previewed."""

    why: str = ""
    yes: bool = False
    rate: float | None = None
    concurrency: int | None = None
    canaries: int | None = None
    abort_share: float | None = None
    not_before: str | None = None
    when_breaker: str | None = None
    when_version: str | None = None
    include_invalid: bool | None = None
    repeat: bool | None = None
    to_queue: str | None = None
    patch: list[Any] | None = None
    for_: str | None = None
    in_: str | None = None

    def more(self) -> dict[str, str]:
        """Return the other fields of the request, as a form sends them."""
        found: dict[str, str] = {}
        for field, value in msgspec.structs.asdict(self).items():
            if value is None or field in NOT_IN_FORM:
                continue

            name = field.strip("_").replace("_", "-")
            found[name] = str(value)

        return found


_FIELDS = {
    "why": ("string", "Reason for the change; the audit log keeps it."),
    "yes": ("boolean", "Make the change. Without it, only preview."),
    "rate": ("number", "Jobs per second, for a redrive or a limit."),
    "concurrency": ("integer", "Most jobs at once, for a limit."),
    "canaries": ("integer", "Number of canaries."),
    "abort_share": ("number", "Abort if a larger share dies again."),
    "not_before": ("string", "An instant, or a delay such as 2h."),
    "when_breaker": ("string", "Breaker and state, such as smtp:closed."),
    "when_version": ("string", "Versions of workers, such as >=1.4.2."),
    "include_invalid": (
        "boolean",
        "Redrive invalid payloads that nobody has corrected.",
    ),
    "repeat": (
        "boolean",
        "Run jobs again whose handlers say repeatable=False. Needs ids.",
    ),
    "to_queue": ("string", "Queue that the jobs go to, and not where each died."),
    "patch": ("array", "JSON Patch, for an edit."),
    "for": ("string", "Duration of a mute, such as 2h."),
    "in": ("string", "Versions with the fix of a group, such as 1.4.2, 1.3.9."),
}
"""Field of the body -> its type and its description."""

_SCHEMA: Row = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        name: {"type": kind, "description": text}
        for name, (kind, text) in _FIELDS.items()
    },
}
_BODY = {
    "required": False,
    "content": {"application/json": {"schema": _SCHEMA}},
}


def _shown(here: Console, seen: Preview) -> Row:
    """Describe a change that was not confirmed."""
    sample = [{name: row[name] for name in seen.columns} for row in seen.rows]
    return {
        "matched": seen.matched,
        "done": False,
        "obstacle": seen.obstacle,
        "remarks": list(seen.remarks),
        "sample": sample,
        "command": here.command(seen.shell),
    }


async def body(request: Request) -> Asked:
    """Read the body of a change.

    Raises:
        Refused: the body is not valid JSON, or has unknown fields.
    """
    raw = await request.body()
    if raw and media_type(request) != JSON:
        raise Refused(415, "the body must be application/json")

    try:
        # A preview needs no body.
        return msgspec.json.decode(raw or b"{}", type=Asked)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(400, f"the body is invalid: {error}") from None


Body = Annotated[Asked, Depends(body)]


def _require_program(visit: Visit) -> None:
    """Raise Refused unless an operator's program asks.

    A browser sends a cookie by itself, so another site could forge a change.
    """
    visit.require_operator()
    if visit.user.may_forge:
        raise Refused(403, "API changes need a bearer token; send one, or use the page")


def _call_of(change: Change) -> Callable[..., Response]:
    """Return the API call for one change."""

    def call(visit: SignedIn, wanted: Body) -> Response:
        _require_program(visit)
        if wanted.yes:
            return _change(visit, change, wanted)
        return _preview(visit, change)

    return call


def _preview(visit: Visit, change: Change) -> Response:
    return answer(_shown(visit.console, preview(visit, change)))


def _change(visit: Visit, change: Change, wanted: Asked) -> Response:
    why = change.why(wanted.why)
    asked = order(visit, wanted.more(), why)
    done = change.do(visit.changing, asked)

    return _done(done)


def _done(done: Done) -> Response:
    return answer({**done.report, "done": True})


for _word, _each in CHANGES.items():
    router.add_api_route(
        f"/{_word}",
        _call_of(_each),
        methods=["POST"],
        name=_word,
        description=f"{_each.what} Shows what it would do, unless `yes` is true.",
        openapi_extra=described(_each.of, *_each.names) | {"requestBody": _BODY},
    )


@router.post("/edit", openapi_extra=described(Filter) | {"requestBody": _BODY})
def edit(visit: SignedIn, wanted: Body) -> Response:
    """Correct payloads by a JSON Patch.

    Shows what it would do, unless `yes` is true.
    """
    _require_program(visit)
    why = why_of(wanted.why) if wanted.yes else ""
    patch = msgspec.json.encode(wanted.patch or [])
    fields = {"patch": patch.decode()}
    asked = order(visit, fields, why)

    if wanted.yes:
        done = edits.edit(visit.changing, asked)
        return _done(done)

    with visit.reading() as conn:
        seen = edits.look(conn, asked)

    return answer(_edit_preview(seen))


def _edit_preview(look: edits.Look) -> Row:
    """Describe an edit that was not confirmed. Raises Refused if it is impossible."""
    preview = look.seen
    if look.fault or preview is None:
        raise Refused(400, look.fault or look.obstacle or "nothing matches")

    sample = [{"id": one.id, "diff": one.diff} for one in preview.samples]
    faults = {str(job): fault for job, fault in preview.faults.items()}

    return {
        **edits.report(preview),
        "done": False,
        "sample": sample,
        "faults": faults,
    }
