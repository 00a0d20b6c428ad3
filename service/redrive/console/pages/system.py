"""Pages of the system: queues, workers, breakers, limits and schedules."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from redrive.console.pages import figures
from redrive.console.query import command
from redrive.console.state import Here, Signed
from redrive.live_jobs import limits, schedules, workers

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/queues")
def list_queues(request: Request, here: Here, who: Signed) -> Response:
    """List the queues, their jobs and why nothing runs; list the workers."""
    with here.logins.reading(who.role) as conn:
        found, seen = figures.queues(conn), figures.workers(conn)
    shell = command(("queue", "ls"))
    return here.page(
        "queues.html", request, who, queues=found, workers=seen, shell=shell
    )


@router.get("/workers")
def list_workers(request: Request, here: Here, who: Signed) -> Response:
    """List the workers, their queues and kinds, and when they were last heard."""
    with here.logins.reading(who.role) as conn:
        found = workers.find(conn)
    shell = command(("worker", "ls"))
    return here.page(
        "workers.html",
        request,
        who,
        rows=list(map(_with_lists_as_text, found)),
        shell=shell,
    )


def _with_lists_as_text(worker: dict[str, Any]) -> dict[str, Any]:
    """Return a worker with its lists as text."""
    queues, kinds = worker["queues"], worker["kinds"]
    return worker | {
        "queues": "all" if queues is None else ", ".join(queues),
        "kinds": ", ".join(kinds or ()),
    }


@router.get("/breakers")
def list_breakers(request: Request, here: Here, who: Signed) -> Response:
    """List the breakers of dependencies and their states."""
    with here.logins.reading(who.role) as conn:
        found = figures.rows(conn, figures.BREAKERS)
    return here.page(
        "breakers.html", request, who, rows=found, shell=command(("breaker", "ls"))
    )


@router.get("/limits")
def list_limits(request: Request, here: Here, who: Signed) -> Response:
    """List the limits, and the jobs that run and wait under each."""
    with here.logins.reading(who.role) as conn:
        found = limits.find(conn)
    return here.page(
        "limits.html", request, who, rows=found, shell=command(("limit", "ls"))
    )


@router.get("/schedules")
def list_schedules(request: Request, here: Here, who: Signed) -> Response:
    """List the schedules, with their next and last runs."""
    with here.logins.reading(who.role) as conn:
        found = schedules.find(conn)
    return here.page(
        "schedules.html", request, who, rows=found, shell=command(("schedule", "ls"))
    )
