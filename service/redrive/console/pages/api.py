"""The JSON API: the lists and changes of the command line, with its filters and
fields.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from fastapi.security import HTTPBearer

from redrive.console.actions import edits
from redrive.console.actions.change import Change, Order, Preview, why_of
from redrive.console.actions.changes import CHANGES
from redrive.console.pages import cells, figures
from redrive.console.pages.views import (
    AUDIT_NAMES,
    asked,
    audit_choice,
    audit_place,
    group_choice,
)
from redrive.console.query import (
    dead_letter_place,
    job_place,
    name_of,
    parse,
    place_of,
)
from redrive.console.security.access import Principal, Refused, Role
from redrive.console.state import Console, Here, Known, Signed, require
from redrive.database import audit as log
from redrive.database.criteria import Criteria, Criterion
from redrive.dead_letters import campaign, groups
from redrive.dead_letters import find as letters
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.page import page as page_of_letters
from redrive.live_jobs import limits, schedules, workers
from redrive.live_jobs.filter import JobFilter
from redrive.live_jobs.find import listed
from redrive.live_jobs.page import page as page_of_jobs
from redrive.live_jobs.show import show as story
from redrive.rules.payloads.escape import escaped

PREFIX = "/api/v1"
PAGE, MOST = 100, 1000
SECONDS = 3.0

ERROR: dict[str, Any] = {
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
    dependencies=[
        Depends(HTTPBearer(auto_error=False))
    ],  # what OpenAPI says; `Signed` asks for it
    generate_unique_id_function=lambda route: route.name,
)


def answer(value: Any, status: int = 200) -> Response:
    """Return a JSON response in the format of the command line."""
    text = escaped(msgspec.json.encode(value, enc_hook=str).decode())
    return Response(text, status, media_type="application/json")


# ---------------------------------------------------------------------- what OpenAPI
# says of it


def _parameter(
    name: str, criterion: Criterion, *, is_number: bool, many: bool
) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "integer" if is_number else "string"}
    if criterion.choices:
        kind["enum"] = [*criterion.choices, *(["any"] if name == "state" else [])]
    schema = {"type": "array", "items": kind} if many else kind
    return {
        "name": name,
        "in": "query",
        "description": criterion.help,
        "schema": schema,
    }


def described(of: type[Criteria] | None, *names: str) -> dict[str, Any]:
    """Return the OpenAPI parameters of a call: a filter's fields and other names."""
    found: list[dict[str, Any]] = []
    if of is not None:
        many = {f.name: f.default == () for f in fields(of)}  # type: ignore[arg-type] # a dataclass
        found = [
            _parameter(
                name_of(field), c, is_number=field in {"ids", "limit"}, many=many[field]
            )
            for field, c in of.criteria().items()
        ]
    found += [
        {"name": name, "in": "query", "schema": {"type": "string"}} for name in names
    ]
    return {"parameters": found}


# ---------------------------------------------------------------------- lists


@router.get("/cells")
def list_cells(request: Request, who: Known) -> Response:
    """List the cells, their totals and what is wrong in each."""
    found = [
        {
            "cell": row["cell"],
            "fault": row["fault"],
            **{name: row[name] for name in cells.SUMS},
            "workers": row["alive"],
            "troubles": [text for text, _ in row["troubles"]],
        }
        for row in cells.rows(request, who)
    ]
    return answer({"rows": found, "after": None})


@router.get("/queues")
def list_queues(here: Here, who: Signed) -> Response:
    """List the queues, their jobs and why nothing runs."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": figures.queues(conn), "after": None})


@router.get("/jobs", openapi_extra=described(JobFilter, "after"))
def list_jobs(request: Request, here: Here, who: Signed) -> Response:
    """List live jobs in the order in which they run; `after` continues a list."""
    chosen = parse(JobFilter, asked(request))
    place = job_place(request.query_params.get("after"))
    with here.logins.reading(who.role) as conn:
        found = page_of_jobs(
            conn, chosen, place, most=_most(chosen.limit), seconds=SECONDS
        )
    return answer({"rows": [listed(row) for row in found.rows], "after": found.place})


def _most(limit: int | None) -> int:
    return min(limit or PAGE, MOST)


@router.get("/jobs/{job}")
def show_job(here: Here, who: Signed, job: int) -> Response:
    """Show a live, dead or ended job with its payload redacted."""
    with here.logins.reading(who.role) as conn:
        return answer(_there(job, lambda: story(conn, job)))


@router.get("/dead-letters", openapi_extra=described(Filter, "after"))
def list_dead_letters(request: Request, here: Here, who: Signed) -> Response:
    """List dead letters, latest first; only open ones unless `state` is given."""
    chosen = parse(Filter, asked(request), states=("open",))
    after, most = (
        dead_letter_place(request.query_params.get("after")),
        _most(chosen.limit),
    )
    with here.logins.reading(who.role) as conn:
        found = page_of_letters(conn, chosen, after, most=most, seconds=SECONDS)
    return answer({"rows": found.rows, "after": found.place and place_of(*found.place)})


@router.get("/dead-letters/{job}")
def show_dead_letter(here: Here, who: Signed, job: int) -> Response:
    """Show a dead letter with its payload redacted."""
    with here.logins.reading(who.role) as conn:
        return answer(_there(job, lambda: letters.show(conn, job)))


def _there(job: int, found: Callable[[], Any]) -> Any:
    value = found() if 0 < job < 2**63 else None
    if value is None:
        raise Refused(404, f"there is no record of job {job}")
    return value


@router.get(
    "/groups", openapi_extra=described(None, "kind", "category", "new-since", "closed")
)
def list_groups(request: Request, here: Here, who: Signed) -> Response:
    """List the groups of dead letters, largest first."""
    with here.logins.reading(who.role) as conn:
        found = groups.find(conn, **group_choice(asked(request)), limit=MOST)
    return answer({"rows": found, "after": None})


@router.get("/campaigns")
def list_campaigns(here: Here, who: Signed) -> Response:
    """List the campaigns, newest first, and their results."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": campaign.find(conn, limit=MOST), "after": None})


@router.get("/breakers")
def list_breakers(here: Here, who: Signed) -> Response:
    """List the breakers of dependencies and their states."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": figures.rows(conn, figures.BREAKERS), "after": None})


@router.get("/limits")
def list_limits(here: Here, who: Signed) -> Response:
    """List the limits, and the jobs that run and wait under each."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": limits.find(conn), "after": None})


@router.get("/schedules")
def list_schedules(here: Here, who: Signed) -> Response:
    """List the schedules, with their next and last runs."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": schedules.find(conn), "after": None})


@router.get("/workers")
def list_workers(here: Here, who: Signed) -> Response:
    """List the workers, their queues and kinds, and when they were last heard."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": workers.find(conn), "after": None})


@router.get("/audit", openapi_extra=described(None, *AUDIT_NAMES, "after"))
def list_audit(request: Request, here: Here, who: Signed) -> Response:
    """List changes and who made them, newest first."""
    chosen = audit_choice(asked(request))
    before = audit_place(request.query_params.get("after"))
    with here.logins.reading(who.role) as conn:
        found = log.newest(conn, chosen, PAGE + 1, before)
    after = str(found[PAGE - 1]["id"]) if len(found) > PAGE else None
    return answer({"rows": found[:PAGE], "after": after})


# ---------------------------------------------------------------------- changes


class Asked(msgspec.Struct, forbid_unknown_fields=True, rename={"for_": "for"}):
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
    patch: list[Any] | None = None
    for_: str | None = None

    def more(self) -> dict[str, str]:
        """Return the other fields of the request, as a form sends them."""
        given = msgspec.structs.asdict(self)
        return {
            name.strip("_").replace("_", "-"): str(value)
            for name, value in given.items()
            if name not in {"why", "yes", "patch"} and value is not None
        }


_BODY = {
    "required": False,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "why": {
                        "type": "string",
                        "description": "Reason for the change; the audit log keeps it.",
                    },
                    "yes": {
                        "type": "boolean",
                        "description": "Make the change. Without it, only preview.",
                    },
                    "rate": {
                        "type": "number",
                        "description": "Jobs per second, for a redrive or a limit.",
                    },
                    "concurrency": {
                        "type": "integer",
                        "description": "Most jobs at once, for a limit.",
                    },
                    "canaries": {
                        "type": "integer",
                        "description": "Number of canaries.",
                    },
                    "abort_share": {
                        "type": "number",
                        "description": "Abort if a larger share dies again.",
                    },
                    "not_before": {
                        "type": "string",
                        "description": "An instant, or a delay such as 2h.",
                    },
                    "when_breaker": {
                        "type": "string",
                        "description": "Breaker and state, such as smtp:closed.",
                    },
                    "when_version": {
                        "type": "string",
                        "description": "Versions of workers, such as >=1.4.2.",
                    },
                    "patch": {
                        "type": "array",
                        "description": "JSON Patch, for an edit.",
                    },
                    "for": {
                        "type": "string",
                        "description": "Duration of a mute, such as 2h.",
                    },
                },
            }
        }
    },
}


def _shown(here: Console, seen: Preview) -> dict[str, Any]:
    """Describe a change that was not confirmed."""
    rows = [{name: row[name] for name in seen.columns} for row in seen.rows]
    return {
        "matched": seen.matched,
        "done": False,
        "obstacle": seen.obstacle,
        "remarks": list(seen.remarks),
        "sample": rows,
        "command": here.command(seen.shell),
    }


async def body(request: Request) -> Asked:
    """Read the body of a change.

    Raises:
        Refused: the body is not valid JSON, or has unknown fields.
    """
    raw = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if raw and kind != "application/json":
        raise Refused(415, "the body must be application/json")
    try:
        return msgspec.json.decode(raw or b"{}", type=Asked)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(400, f"the body is invalid: {error}") from None


Body = Annotated[Asked, Depends(body)]


def _may_change(who: Principal) -> None:
    require(who, Role.OPERATOR)
    if who.may_forge:
        raise Refused(403, "API changes need a bearer token; send one, or use the page")


def _answering(change: Change) -> Callable[..., Response]:
    """Return the API call for one change."""

    def call(request: Request, here: Here, who: Signed, wanted: Body) -> Response:
        _may_change(who)
        if not wanted.yes:
            with (here.logins.changing if change.plans else here.logins.reading)(
                who.role
            ) as conn:
                return answer(_shown(here, change.preview(conn, asked(request))))
        why = change.why(wanted.why)
        order = Order(asked(request), why, who.name, wanted.more(), here.handlers)
        done = change.do(partial(here.logins.changing, who.role), order)
        return answer({**done.report, "done": True})

    return call


for _word, _change in CHANGES.items():
    router.add_api_route(
        f"/{_word}",
        _answering(_change),
        methods=["POST"],
        name=_word,
        description=f"{_change.what} Shows what it would do, unless `yes` is true.",
        openapi_extra=described(_change.of, *_change.names) | {"requestBody": _BODY},
    )


@router.post("/edit", openapi_extra=described(Filter) | {"requestBody": _BODY})
def edit(request: Request, here: Here, who: Signed, wanted: Body) -> Response:
    """Correct payloads by a JSON Patch. Shows what it would do, unless `yes` is
    true.
    """
    _may_change(who)
    why = why_of(wanted.why) if wanted.yes else ""
    given = {"patch": msgspec.json.encode(wanted.patch or []).decode()}
    order = Order(asked(request), why, who.name, given, here.handlers)
    if wanted.yes:
        done = edits.edit(partial(here.logins.changing, who.role), order)
        return answer({**done.report, "done": True})
    with here.logins.reading(who.role) as conn:
        seen = edits.look(conn, order)
    return answer(_edit_preview(seen))


def _edit_preview(page: edits.Look) -> dict[str, Any]:
    """Describe an edit that was not confirmed. Raises Refused if there is none to
    make.
    """
    preview = page.seen
    if page.fault or not preview:
        raise Refused(400, page.fault or page.obstacle or "nothing matches")
    sample = [{"id": one.id, "diff": one.diff} for one in preview.samples]
    faults = {str(job): fault for job, fault in preview.faults.items()}
    report = edits.report(preview)
    return {**report, "done": False, "sample": sample, "faults": faults}
