"""The page of a campaign and the stream that updates its progress."""

from typing import Any

import psycopg
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from markupsafe import Markup, escape

from redrive.console.actions.campaigns import (
    ENDABLE,
    PAUSABLE,
    RESUMABLE,
    TERMS,
    commands,
    estimate,
    found_in,
    terms_of,
)
from redrive.console.pages import figures
from redrive.console.query import command
from redrive.console.security.access import Principal, Refused, Role
from redrive.console.security.logins import Crowded
from redrive.console.state import Console, Here, NotSignedIn, Signed, known, signed_in
from redrive.console.streams import News
from redrive.errors import SchemaError
from redrive.rules.dead_letters.campaign import GOING, State
from redrive.rules.payloads.escape import escaped

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)

STEPS = (
    State.PLANNED,
    State.WAITING,
    State.CANARY,
    State.RAMP,
    State.RUNNING,
    State.DONE,
)
"""States of a campaign that nothing stops, in order."""


@router.get("/campaigns/{campaign}")
def show(request: Request, here: Here, who: Signed, campaign: int) -> Response:
    """Show a campaign: its progress, who started it and why, and its actions."""
    with here.logins.reading(who.role) as conn:
        found = found_in(conn, campaign)
        alive = [worker for worker in figures.workers(conn) if worker["is_alive"]]
    return here.page(
        "campaign.html",
        request,
        who,
        **_values(found, who),
        alive=alive,
        is_going=not _is_over(found),
        shell=command(("campaign", "watch", str(campaign))),
    )


def _values(found: dict[str, Any], who: Principal) -> dict[str, Any]:
    """Return the values of the part of the page that is updated."""
    return {
        "campaign": found,
        "may_change": who.role >= Role.OPERATOR,
        "can": {
            "start": found["state"] == State.PLANNED,
            "pause": found["state"] in PAUSABLE,
            "resume": found["state"] in RESUMABLE,
            "cancel": found["state"] in ENDABLE,
        },
        "steps": STEPS,
    }


def _is_over(found: dict[str, Any]) -> bool:
    is_still = found["state"] not in GOING | {State.PAUSED, State.PLANNED}
    return is_still and not found["in_flight"]


@router.get("/campaigns/{campaign}/events")
def events(request: Request, here: Here, who: Signed, campaign: int) -> Response:
    """Stream the progress of a campaign until it ends."""
    if not here.streams.has_room(who.session or who.name):
        raise Refused(429, "too many pages receive live updates; close some")
    with here.logins.reading(who.role) as conn:
        found_in(conn, campaign)
    stream = here.streams.events(
        who.session or who.name, lambda: _news(here, request, campaign)
    )
    return StreamingResponse(
        stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


def _news(here: Console, request: Request, campaign: int) -> News | None:
    """Read the progress of a campaign, if the user still has access."""
    try:
        who = signed_in(here, known(request, here))
        with here.logins.reading(who.role) as conn:
            found = found_in(conn, campaign)
    except (NotSignedIn, Refused, Crowded, SchemaError, psycopg.Error):
        return None
    template = here.templates.get_template("progress.html")
    html = template.render(_values(found, who), root=here.root)
    return News(html, _is_over(found))


@router.get("/estimate/{word}")
def say_estimate(request: Request, here: Here, who: Signed, word: str) -> Response:
    """Estimate a redrive on the terms of a form and show the command, while the form is
    filled in.
    """
    del who
    given = dict(request.query_params)
    query = [(n, v) for n, v in request.query_params.multi_items() if n not in TERMS]
    try:
        matched = int(given.get("seen", "0")[:12])
        text = estimate(matched, terms_of(given, 0))
        shell = "; ".join(map(here.command, commands(word, query, given, matched)))
    except (Refused, ValueError) as error:
        return HTMLResponse(escape(error.text if isinstance(error, Refused) else ""))
    part = Markup('{}<span id="command" hx-swap-oob="true"><code>{}</code></span>')
    return HTMLResponse(part.format(escape(text), escaped(shell)))
