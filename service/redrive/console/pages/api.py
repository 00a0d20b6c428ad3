"""The JSON API: the lists of the command line with its filters and its fields, and its changes."""

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
    "description": "What is wrong, and what would be right.",
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
    dependencies=[Depends(HTTPBearer(auto_error=False))],  # what OpenAPI says; `Signed` asks for it
    generate_unique_id_function=lambda route: route.name,
)


def answer(value: Any, status: int = 200) -> Response:
    """JSON, written as the command line writes it."""
    text = escaped(msgspec.json.encode(value, enc_hook=str).decode())
    return Response(text, status, media_type="application/json")


# ---------------------------------------------------------------------- what OpenAPI says of it


def _parameter(name: str, criterion: Criterion, *, is_number: bool, many: bool) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "integer" if is_number else "string"}
    if criterion.choices:
        kind["enum"] = [*criterion.choices, *(["any"] if name == "state" else [])]
    schema = {"type": "array", "items": kind} if many else kind
    return {"name": name, "in": "query", "description": criterion.help, "schema": schema}


def described(of: type[Criteria] | None, *names: str) -> dict[str, Any]:
    """The parameters of a call: those of a filter, and others by name."""
    found: list[dict[str, Any]] = []
    if of is not None:
        many = {f.name: f.default == () for f in fields(of)}  # type: ignore[arg-type] # a dataclass
        found = [
            _parameter(name_of(field), c, is_number=field in {"ids", "limit"}, many=many[field])
            for field, c in of.criteria().items()
        ]
    found += [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    return {"parameters": found}


# ---------------------------------------------------------------------- lists


@router.get("/cells")
def list_cells(request: Request, who: Known) -> Response:
    """The databases of a console of several: what each is at, and what is wrong there."""
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
    """Queues, what they hold, why nothing runs."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": figures.queues(conn), "after": None})


@router.get("/jobs", openapi_extra=described(JobFilter, "after"))
def list_jobs(request: Request, here: Here, who: Signed) -> Response:
    """Live jobs in the order in which they run; `after` goes on where a page ended."""
    chosen = parse(JobFilter, asked(request))
    place = job_place(request.query_params.get("after"))
    with here.logins.reading(who.role) as conn:
        found = page_of_jobs(conn, chosen, place, most=_most(chosen.limit), seconds=SECONDS)
    return answer({"rows": [listed(row) for row in found.rows], "after": found.place})


def _most(limit: int | None) -> int:
    return min(limit or PAGE, MOST)


@router.get("/jobs/{job}")
def show_job(here: Here, who: Signed, job: int) -> Response:
    """All that is known of a job, wherever it is. Its payload is redacted."""
    with here.logins.reading(who.role) as conn:
        return answer(_there(job, lambda: story(conn, job)))


@router.get("/dead-letters", openapi_extra=described(Filter, "after"))
def list_dead_letters(request: Request, here: Here, who: Signed) -> Response:
    """Dead letters, the latest first; open ones, unless `state` says otherwise."""
    chosen = parse(Filter, asked(request), states=("open",))
    after, most = dead_letter_place(request.query_params.get("after")), _most(chosen.limit)
    with here.logins.reading(who.role) as conn:
        found = page_of_letters(conn, chosen, after, most=most, seconds=SECONDS)
    return answer({"rows": found.rows, "after": found.place and place_of(*found.place)})


@router.get("/dead-letters/{job}")
def show_dead_letter(here: Here, who: Signed, job: int) -> Response:
    """All that is known of a job that died. Its payload is redacted."""
    with here.logins.reading(who.role) as conn:
        return answer(_there(job, lambda: letters.show(conn, job)))


def _there(job: int, found: Callable[[], Any]) -> Any:
    value = found() if 0 < job < 2**63 else None
    if value is None:
        raise Refused(404, f"nothing of job {job} is on record here")
    return value


@router.get("/groups", openapi_extra=described(None, "kind", "category", "new-since", "closed"))
def list_groups(request: Request, here: Here, who: Signed) -> Response:
    """The causes of dead letters, the most frequent first."""
    with here.logins.reading(who.role) as conn:
        found = groups.find(conn, **group_choice(asked(request)), limit=MOST)
    return answer({"rows": found, "after": None})


@router.get("/campaigns")
def list_campaigns(here: Here, who: Signed) -> Response:
    """Redrives, the newest first: what went back, and what became of it."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": campaign.find(conn, limit=MOST), "after": None})


@router.get("/breakers")
def list_breakers(here: Here, who: Signed) -> Response:
    """Dependencies, and whether jobs that need them run."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": figures.rows(conn, figures.BREAKERS), "after": None})


@router.get("/limits")
def list_limits(here: Here, who: Signed) -> Response:
    """Limits, what runs under them and what waits."""
    with here.logins.reading(who.role) as conn:
        return answer({"rows": limits.find(conn), "after": None})


@router.get("/schedules")
def list_schedules(here: Here, who: Signed) -> Response:
    """Schedules, what comes next and what was last."""
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
    """The body of a change. Without `yes` it is only looked at."""

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
                    "why": {"type": "string", "description": "Why; the audit log keeps it."},
                    "yes": {"type": "boolean", "description": "Do it. Without: only show."},
                    "rate": {
                        "type": "number",
                        "description": "Of a redrive or a limit: jobs per second.",
                    },
                    "concurrency": {
                        "type": "integer",
                        "description": "Of a limit: jobs at once, at most.",
                    },
                    "canaries": {"type": "integer", "description": "So many go first."},
                    "abort_share": {"type": "number", "description": "Abort above this share."},
                    "not_before": {"type": "string", "description": "An instant, or 2h."},
                    "when_breaker": {"type": "string", "description": "As smtp:closed."},
                    "when_version": {"type": "string", "description": "As >=1.4.2."},
                    "patch": {"type": "array", "description": "Of an edit: JSON Patch."},
                    "for": {"type": "string", "description": "Of a mute: how long, as 2h."},
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
        Refused: it is no JSON of ours.
    """
    raw = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if raw and kind != "application/json":
        raise Refused(415, "the body must be application/json")
    try:
        return msgspec.json.decode(raw or b"{}", type=Asked)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(400, f"the body: {error}") from None


Body = Annotated[Asked, Depends(body)]


def _may_change(who: Principal) -> None:
    require(who, Role.OPERATOR)
    if who.may_forge:
        raise Refused(403, "changes by the API take a bearer token; use the page, or send one")


def _answering(change: Change) -> Callable[..., Response]:
    """The call that does one change."""

    def call(request: Request, here: Here, who: Signed, wanted: Body) -> Response:
        _may_change(who)
        if not wanted.yes:
            with (here.logins.changing if change.plans else here.logins.reading)(who.role) as conn:
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
    """Correct payloads by a JSON Patch. Shows what it would do, unless `yes` is true."""
    _may_change(who)
    why = why_of(wanted.why) if wanted.yes else ""
    given = {"patch": msgspec.json.encode(wanted.patch or []).decode()}
    order = Order(asked(request), why, who.name, given, here.handlers)
    if wanted.yes:
        done = edits.edit(partial(here.logins.changing, who.role), order)
        return answer({**done.report, "done": True})
    with here.logins.reading(who.role) as conn:
        seen = edits.look(conn, order)
    if seen.fault or not seen.seen:
        raise Refused(400, seen.fault or seen.obstacle or "nothing matches")
    sample = [{"id": one.id, "diff": one.diff} for one in seen.seen.samples]
    faults = {str(job): fault for job, fault in seen.seen.faults.items()}
    report = edits.report(seen.seen)
    return answer({**report, "done": False, "sample": sample, "faults": faults})
