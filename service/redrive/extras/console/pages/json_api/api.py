"""The JSON API: lists and changes of the command line, with its filters and fields."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from keyword import iskeyword
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from fastapi.security import HTTPBearer

from redrive.database import audit
from redrive.database.criteria import Criteria, Criterion
from redrive.database.rows import Connection
from redrive.dead_letters import find
from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.report import weekly as review
from redrive.extras.console.actions.changes import CHANGES
from redrive.extras.console.job_pages import page as page_of_jobs
from redrive.extras.console.letter_pages import page as page_of_letters
from redrive.extras.console.pages import cells
from redrive.extras.console.pages.filters import (
    GROUP_FILTERS,
    REVIEW_FILTERS,
    audit_page,
    group_choice,
    part,
    review_since,
    skipped,
)
from redrive.extras.console.pages.forms import act
from redrive.extras.console.pages.forms.changes import order, preview
from redrive.extras.console.pages.json_api.series import (
    SERIES_FILTERS,
    first_steps,
    page_since,
    series_choice,
)
from redrive.extras.console.state import Console, Known, SignedIn, Visit, media_type
from redrive.extras.proposals import store as proposals
from redrive.jobs import breakers, failing, limits, schedules, workers
from redrive.jobs.filter import JobFilter
from redrive.jobs.find import listed
from redrive.jobs.queues import queues as read_queues
from redrive.jobs.show import show as show_any_job
from redrive.observability.marks import read_marks
from redrive.observability.series import each_point, now_of, shortest
from redrive.observability.series import listed as listed_point
from redrive.rules.marks import mark_row
from redrive.rules.payloads.escape import escaped
from redrive.rules.payloads.limits import check_keys
from redrive.rules.rows import Row
from redrive.verbs.query import (
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
from redrive.verbs.refusal import Invalid, Missing, Refused
from redrive.verbs.verb import Done, Input, Preview, Verb

PREFIX = "/api/v1"
JSON = "application/json"
PAGE, MOST = 100, 1000
SECONDS = 3.0

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

    return _parameter(name_of(field), schema) | {"description": criterion.help}


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
    return _rows(
        [
            {name: row[name] for name in ("cell", "fault", *cells.SUMS)}
            | {
                "workers": row["alive"],
                "troubles": [text for text, _ in row["troubles"]],
            }
            for row in rows
        ]
    )


@router.get("/jobs", openapi_extra=described(JobFilter, "after"))
def list_jobs(visit: SignedIn) -> Response:
    """List live jobs in the order in which they run; `after` continues a list."""
    chosen = parse(JobFilter, visit.query)
    after = job_place(visit.after)
    most = min(chosen.limit or PAGE, MOST)

    with visit.reading() as conn:
        found = page_of_jobs(conn, chosen, after, most=most, seconds=SECONDS)

    return _rows([listed(row) for row in found.rows], found.place)


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
        found = page_of_letters(conn, chosen, after, most=most, seconds=SECONDS)

    return _rows(found.rows, place_of(*found.place) if found.place else None)


@router.get("/dead-letters/{job}")
def show_dead_letter(visit: SignedIn, job: int) -> Response:
    """Show a dead letter with its payload redacted."""
    with visit.reading() as conn:
        return _one(job, partial(find.show, conn))


def _one(job: int, show: Callable[[int], Any]) -> Response:
    """Return what is known about a job. Raises Refused if nothing is."""
    found = show(job) if is_job_id(job) else None
    if found is None:
        raise Missing(f"there is no record of job {job}")
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
        return answer(review.review(conn, since, failing.find(conn, messages=False)))


@router.get("/series", openapi_extra=described(None, *SERIES_FILTERS, "after"))
def list_series(visit: SignedIn) -> Response:
    """List counts and times by minute, queue and kind; by hour if older than a day."""
    chosen = series_choice(visit.query)

    with visit.reading() as conn:
        period = shortest(conn, chosen.since, chosen.until)
        found = each_point(
            conn, page_since(period, visit.after), chosen.queue, chosen.kind
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


@router.get("/audit", openapi_extra=described(audit.Choice, "after"))
def list_audit(visit: SignedIn) -> Response:
    """List changes and who made them, newest first."""
    return _rows(*audit_page(visit, PAGE))


LISTS: Mapping[str, tuple[str, Callable[[Connection], Sequence[Row]]]] = {
    "queues": ("List the queues, their jobs and why nothing runs.", read_queues),
    "failing": ("List why live jobs fail, with the most jobs first.", failing.find),
    "campaigns": (
        "List the campaigns, newest first, and their results.",
        partial(campaign.find, limit=MOST),
    ),
    "proposals": ("List the open proposals of agents, newest first.", proposals.find),
    "breakers": ("List the breakers of dependencies and their states.", breakers.find),
    "limits": (
        "List the limits, and the jobs that run and wait under each.",
        limits.find,
    ),
    "schedules": ("List the schedules, with their next and last runs.", schedules.find),
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
        f"/{_word}", _list_of(_find), name=f"list_{_word}", description=_about
    )


# ---------------------------------------------------------------------- changes


WHY = {
    "type": "string",
    "description": "Reason for the change; the audit log keeps it.",
}
YES = {"type": "boolean", "description": "Make the change. Without it, only preview."}


class Asked(NamedTuple):
    """The body of a change. Without `yes`, the change is only previewed."""

    why: str
    yes: bool
    more: Mapping[str, Any]

    def texts(self) -> dict[str, str]:
        """Return the inputs as a form sends them."""
        found: dict[str, str] = {}
        for name, value in self.more.items():
            if value is not None:
                is_text = isinstance(value, str)
                found[name] = value if is_text else msgspec.json.encode(value).decode()

        return found


def _field_of(name: str) -> str:
    """Return the name of an input in a body: to_queue, for `to-queue`."""
    return name.replace("-", "_")


def _body_of(inputs: Sequence[Input]) -> Row:
    """Describe the body of a change for OpenAPI."""
    properties: Row = {"why": WHY, "yes": YES}
    for each in inputs:
        text = f"{each.label} ({each.help})." if each.help else f"{each.label}."
        properties[_field_of(each.name)] = {"type": each.kind, "description": text}

    schema: Row = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    return {"required": False, "content": {JSON: {"schema": schema}}}


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
        **seen.report,
    }


_TYPES: Mapping[str, Any] = {
    "string": str,
    "number": float,
    "integer": int,
    "boolean": bool,
    "array": list[Any],
}


def _reader(inputs: Sequence[Input]) -> Callable[[Request], Awaitable[Asked]]:
    """Return a function that reads the body of a change with these inputs."""
    names = {_field_of(each.name): each.name for each in inputs}
    fields = [
        (_safe(field), _TYPES[each.kind] | None, None)
        for field, each in zip(names, inputs, strict=True)
    ]
    body = msgspec.defstruct(
        "Body",
        [("why", str, ""), ("yes", bool, False), *fields],
        forbid_unknown_fields=True,
        rename=lambda field: field.rstrip("_"),
    )

    async def read(request: Request) -> Asked:
        values = await _body(request, body)
        more = {name: values[_safe(field)] for field, name in names.items()}
        return Asked(values["why"], values["yes"], more)

    return read


async def _body(request: Request, fields: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Read the body. Raises Refused if it is not valid JSON of these fields."""
    raw = await request.body()
    if raw and media_type(request) != JSON:
        raise Refused(415, "the body must be application/json")

    try:
        # A preview needs no body.
        found = msgspec.json.decode(raw or b"{}", type=fields)
        check_keys("the body", raw or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the body is invalid: {error}") from None

    return msgspec.structs.asdict(found)


def _safe(field: str) -> str:
    """Return the name of a field that is no keyword of Python."""
    return f"{field}_" if iskeyword(field) else field


def _require_program(visit: Visit) -> None:
    """Raise Refused unless an operator's program asks.

    A browser sends a cookie by itself, so another site could forge a change.
    """
    visit.require_operator()
    if visit.user.may_forge:
        raise Refused(403, "API changes need a bearer token; send one, or use the page")


def _call_of(change: Verb) -> Callable[..., Response]:
    """Return the API call for one change."""
    read = Depends(_reader(change.fields))

    def call(visit: SignedIn, wanted: Annotated[Asked, read]) -> Response:
        _require_program(visit)
        if wanted.yes:
            return _change(visit, change, wanted)

        return answer(_shown(visit.console, preview(visit, change, wanted.texts())))

    return call


def _change(visit: Visit, change: Verb, wanted: Asked) -> Response:
    why = change.why(wanted.why)
    asked = order(visit, wanted.texts(), why)
    return _done(change.do(visit.changing, asked))


def _done(done: Done) -> Response:
    return answer({**done.report, "done": True})


for _word, _each in CHANGES.items():
    router.add_api_route(
        f"/{_word}",
        _call_of(_each),
        methods=["POST"],
        name=_word,
        description=f"{_each.what} Shows what it would do, unless `yes` is true.",
        openapi_extra=described(_each.of, *_each.names)
        | {"requestBody": _body_of(_each.fields)},
    )
