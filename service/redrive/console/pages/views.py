"""Pages about jobs and changes; each names the shell command that prints the same."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlencode

import psycopg
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from redrive.console.actions.change import Change, Done, Order
from redrive.console.actions.changes import CHANGES
from redrive.console.pages import figures
from redrive.console.query import (
    ANY,
    Query,
    command,
    dead_letter_place,
    job_place,
    name_of,
    parse,
    place_of,
    url,
)
from redrive.console.security.access import Principal, Refused, Role
from redrive.console.state import Console, Form, Here, Signed, require
from redrive.database import audit as log
from redrive.database.criteria import Criteria
from redrive.dead_letters import campaign, groups
from redrive.dead_letters import explain as explaining
from redrive.dead_letters import find as letters
from redrive.dead_letters.filter import CATEGORIES, Filter
from redrive.dead_letters.page import page as page_of_letters
from redrive.live_jobs.filter import JobFilter
from redrive.live_jobs.page import page as page_of_jobs
from redrive.live_jobs.show import show as story
from redrive.rules.dead_letters.campaign import State
from redrive.rules.dead_letters.explain import MIN_BASE, MIN_JOBS, sentence

PAGE = 50
GROUPS = 25
LOOKED_AT = 200
"""How many dead letters of a group its page compares with other jobs."""
SECONDS, SECONDS_MORE = 0.1, 1.0
"""How long a list searches for rare matches: the first page, and each later one."""

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


def asked(request: Request, *without: str) -> Query:
    """Return the parameters of the query string that belong to the filter."""
    left = {"said", "after", *without}
    return [(n, v) for n, v in request.query_params.multi_items() if n not in left]


def inputs(chosen: Criteria) -> Iterator[Mapping[str, Any]]:
    """The fields of a filter's form, with what is set in them."""
    for field, criterion in chosen.criteria().items():
        value: Any = chosen.described().get(field, "")
        many: list[Any] = (
            cast("list[Any]", value) if isinstance(value, list) else [value]
        )
        yield {
            "name": name_of(field),
            "help": criterion.help,
            "choices": (*criterion.choices, ANY)
            if field == "state"
            else criterion.choices,
            "value": ",".join(map(str, many)),
            "values": [str(one) for one in many],
        }


@contextmanager
def as_far_as_may_be(found: dict[str, Any]) -> Iterator[None]:
    """Leave out what the role's login may not read; the page says so."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege:
        found["is_blind"] = True


@router.get("/")
def overview(request: Request, here: Here, who: Signed) -> Response:
    """Show what is wrong now, and the largest causes."""
    found: dict[str, Any] = {"is_blind": False, "causes": []}
    with here.logins.reading(who.role) as conn:
        found |= figures.now(conn)
        with as_far_as_may_be(found):
            found["causes"] = groups.find(conn, limit=5)
    return here.page(
        "overview.html", request, who, shell=command(("queue", "ls")), **found
    )


@router.get("/groups")
def list_groups(request: Request, here: Here, who: Signed) -> Response:
    """List the groups of dead letters, largest first."""
    chosen = group_choice(asked(request))
    with here.logins.reading(who.role) as conn:
        found = groups.find(conn, **chosen, limit=GROUPS)
        hourly = figures.hourly(conn, [row["group"] for row in found])
    flags = {
        name: value for name, value in asked(request) if value and name != "closed"
    }
    words = ("dlq", "groups", *(("--closed",) if chosen["closed"] else ()))
    return here.page(
        "groups.html",
        request,
        who,
        groups=found,
        hourly=hourly,
        chosen=chosen,
        categories=CATEGORIES,
        most=GROUPS,
        shell=command(words, None, **flags),
    )


def group_choice(query: Query) -> dict[str, Any]:
    """Parse the filters of groups. Raises Refused for an unknown name or value."""
    known = ("kind", "category", "new-since", "closed")
    for name, value in query:
        if name not in known:
            raise Refused(
                400, f"there is no filter {name!r}; there are: {', '.join(known)}"
            )
        if name == "category" and value and value not in CATEGORIES:
            raise Refused(
                400,
                f"category is {value!r}; it must be one of: {', '.join(CATEGORIES)}",
            )
        if "\0" in value:
            raise Refused(400, f"{name}: no NUL")
    given = {name: [v for n, v in query if n == name and v] for name in known}
    return {
        "kind": given["kind"],
        "category": given["category"],
        "new_since": next(iter(given["new-since"]), None),
        "closed": bool(given["closed"]),
    }


@router.get("/groups/{fingerprint:path}")
def show_group(request: Request, here: Here, who: Signed, fingerprint: str) -> Response:
    """Show one group: its error, its dead letters and the changes."""
    with here.logins.reading(who.role) as conn:
        group = groups.show(conn, _text(fingerprint))
        if group is None:
            raise Refused(404, "no group has this prefix, or several have it")
        name = group["group"]
        hours = figures.hourly(conn, [name]).get(name, [])
        sample = letters.show(conn, group["sample"])
        found = letters.find(conn, Filter(group=name, state=("open",), limit=10))
    shell = command(("dlq", "report", name))
    return here.page(
        "group.html",
        request,
        who,
        group=group,
        hours=hours,
        sample=sample,
        letters=found,
        shell=shell,
    )


@router.get("/explain/{fingerprint:path}")
def explain_group(
    request: Request, here: Here, who: Signed, fingerprint: str
) -> Response:
    """Explain what the dead letters of a group have in common, as a page or a part of
    one.
    """
    most = LOOKED_AT if request.headers.get("hx-request") else explaining.OF_GROUP
    with here.logins.reading(who.role) as conn:
        found = explaining.explain(conn, _text(fingerprint), most=most)
    if found is None:
        raise Refused(404, "no group has this prefix, or several have it")
    template = "findings.html" if request.headers.get("hx-request") else "explain.html"
    shell = command(("dlq", "explain", found["group"]))
    told = [sentence(finding) for finding in found["findings"]]
    is_enough = (
        found["looked_at"] >= MIN_JOBS
        and max(found["compared_with"].values()) >= MIN_BASE
    )
    return here.page(
        template, request, who, found=found, told=told, is_enough=is_enough, shell=shell
    )


def _text(value: str) -> str:
    if "\0" in value:
        raise Refused(400, "no NUL")
    return value


@router.get("/dead-letters")
def list_dead_letters(request: Request, here: Here, who: Signed) -> Response:
    """List dead letters, latest first, one page at a time."""
    chosen = parse(Filter, asked(request), states=("open",))
    most = min(chosen.limit or PAGE, PAGE)
    after = dead_letter_place(request.query_params.get("after"))
    with here.logins.reading(who.role) as conn:
        found = page_of_letters(
            conn, chosen, after, most=most, seconds=_patience(after)
        )
    onward = found.place and url("/dead-letters", chosen, after=place_of(*found.place))
    return here.page(
        "dead_letters.html",
        request,
        who,
        rows=found.rows,
        inputs=list(inputs(chosen)),
        chosen=chosen,
        onward=onward,
        dismissed=tuple(chosen.state) == ("dismissed",),
        redrive=url("/change/redrive", chosen),
        edit=url("/edit", chosen),
        dismiss=url("/change/dismiss", chosen),
        is_open=tuple(chosen.state) == ("open",),
        shell=command(("dlq", "ls"), chosen),
    )


def _patience(after: object) -> float:
    return SECONDS if after is None else SECONDS_MORE


@router.get("/dead-letters/{job}")
def show_dead_letter(here: Here, job: int) -> Response:
    """Redirect to the page of the job, which shows its dead letter."""
    return RedirectResponse(f"{here.root}/jobs/{job}", 303)


@router.get("/jobs")
def list_jobs(request: Request, here: Here, who: Signed) -> Response:
    """List live jobs in the order in which they run, and what each waits for."""
    chosen = parse(JobFilter, asked(request))
    most = min(chosen.limit or PAGE, PAGE)
    after = job_place(request.query_params.get("after"))
    with here.logins.reading(who.role) as conn:
        found = page_of_jobs(conn, chosen, after, most=most, seconds=_patience(after))
    return here.page(
        "jobs.html",
        request,
        who,
        rows=found.rows,
        inputs=list(inputs(chosen)),
        chosen=chosen,
        onward=found.place and url("/jobs", chosen, after=found.place),
        cancel=url("/change/cancel", chosen),
        now=url("/change/now", chosen),
        shell=command(("job", "ls"), chosen),
    )


@router.get("/find")
def find_job(request: Request, here: Here, who: Signed) -> Response:
    """Redirect to the page of a job by its id."""
    del who
    ids = parse(Filter, asked(request)).ids
    return RedirectResponse(
        f"{here.root}/jobs/{ids[0]}" if ids else f"{here.root}/", 303
    )


@router.get("/jobs/{job}")
def show_job(request: Request, here: Here, who: Signed, job: int) -> Response:
    """Show a live, dead or ended job: why it waits, its story, its side effects."""
    with here.logins.reading(who.role) as conn:
        found = story(conn, job) if 0 < job < 2**63 else None
        letter = letters.show(conn, job) if found else None
    if found is None:
        raise Refused(404, f"job {job} is not live, and there is no record of it")
    return here.page(
        "job.html",
        request,
        who,
        job=found,
        letter=letter,
        shell=command(("job", "show", str(job))),
    )


@router.get("/campaigns")
def list_campaigns(request: Request, here: Here, who: Signed) -> Response:
    """List the campaigns and their results."""
    with here.logins.reading(who.role) as conn:
        found = campaign.find(conn, limit=PAGE)
        planned = campaign.find(conn, (State.PLANNED,), limit=PAGE)
    plans = [
        plan for plan in planned if plan["matched"]
    ]  # hide empty plans, which CronJobs leave
    shell = command(("campaign", "ls"))
    return here.page(
        "campaigns.html", request, who, rows=found, plans=plans, shell=shell
    )


@router.get("/audit")
def list_audit(request: Request, here: Here, who: Signed) -> Response:
    """List who changed what, when and why."""
    query = asked(request)
    chosen = audit_choice(query)
    before = audit_place(request.query_params.get("after"))
    with here.logins.reading(who.role) as conn:
        found = log.newest(conn, chosen, PAGE + 1, before)
    given = {name: value for name, value in query if value}
    last = str(found[PAGE - 1]["id"]) if len(found) > PAGE else None
    return here.page(
        "audit.html",
        request,
        who,
        rows=found[:PAGE],
        given=given,
        onward=last and url("/audit", None, **given, after=last),
        shell=command(("audit", "ls"), None, **given),
    )


AUDIT_NAMES = ("since", "until", "actor", "login", "action")


def audit_choice(query: Query) -> log.Choice:
    """Parse the filters of the audit log. Raises Refused for an unknown name."""
    for name, _ in query:
        if name not in AUDIT_NAMES:
            known = ", ".join(AUDIT_NAMES)
            raise Refused(400, f"there is no filter {name!r}; there are: {known}")
    times = parse(Filter, [(n, v) for n, v in query if n in {"since", "until"}])
    texts = {
        n: _text(v.strip())
        for n, v in query
        if n not in {"since", "until"} and v.strip()
    }
    return log.Choice(times.since, times.until, **texts)


def audit_place(text: str | None) -> int | None:
    """Parse the id of the last line shown. Raises Refused if it is not an id."""
    return parse(Filter, [("id", text)]).ids[0] if text else None


# ---------------------------------------------------------------------- changes


@router.get("/change/{word}")
def look(request: Request, here: Here, who: Signed, word: str) -> Response:
    """Preview a change and show the form that does it."""
    require(who, Role.OPERATOR)
    return _looked(request, here, who, word)


def _looked(
    request: Request, here: Here, who: Principal, word: str, fault: str | None = None
) -> Response:
    wanted = _change(word)
    with (here.logins.changing if wanted.plans else here.logins.reading)(
        who.role
    ) as conn:
        seen = wanted.preview(conn, asked(request))
    status = 200 if fault is None else 409
    return here.page(
        "change.html",
        request,
        who,
        status,
        seen=seen,
        word=word,
        action=f"/change/{word}?{urlencode(list(seen.query))}",
        terms=f"/estimate/{word}?{urlencode(list(asked(request)))}",
        fault=fault,
    )


def _change(word: str) -> Change:
    if word not in CHANGES:
        raise Refused(
            404, f"there is no change {word!r}; there are: {', '.join(CHANGES)}"
        )
    return CHANGES[word]


@router.post("/change/{word}")
def change(
    request: Request, here: Here, who: Signed, form: Form, word: str
) -> Response:
    """Make the change and show the result; on a conflict, show the preview again."""
    require(who, Role.OPERATOR)
    wanted = _change(word)
    why = wanted.why(form.get("why", ""))
    order = Order(asked(request), why, who.name, form, here.handlers)
    try:
        done = wanted.do(partial(here.logins.changing, who.role), order)
    except Refused as refused:
        if refused.status != HTTPStatus.CONFLICT:
            raise
        return _looked(request, here, who, word, refused.text)
    if done.is_shown:
        return here.page("shown.html", request, who, done=done)
    return done_page(here, done)


def done_page(here: Console, done: Done) -> Response:
    """Redirect to the page after a change, with a sentence about the result."""
    mark = "&" if "?" in done.path else "?"
    said = urlencode({"said": here.access.said(done.text)})
    return RedirectResponse(f"{here.root}{done.path}{mark}{said}", 303)
