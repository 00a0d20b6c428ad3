"""Pages of campaigns, and the stream that updates the progress of one."""

from functools import partial

import psycopg
from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from markupsafe import Markup, escape

from redrive.console.actions.campaigns import (
    ENDABLE,
    PAUSABLE,
    RESUMABLE,
    TERMS,
    as_sentence,
    commands,
    estimate,
    found_in,
    terms_of,
)
from redrive.console.pages.listing import PAGE
from redrive.console.pages.sections.privileges import readable
from redrive.console.pages.time_series.outcome import outcome
from redrive.console.query import Query, command
from redrive.console.security.access import Principal, Refused
from redrive.console.security.logins import Crowded
from redrive.console.state import NotSignedIn, SignedIn, Visit, known, signed_in
from redrive.console.streams import Update
from redrive.dead_letters.campaigns import campaign as campaigns
from redrive.errors import SchemaError
from redrive.live_jobs.surroundings import destination, standing
from redrive.rules.dead_letters.campaign import GOING, State
from redrive.rules.dead_letters.terms import Terms
from redrive.rules.payloads.escape import escaped
from redrive.rules.rows import Row

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
UNFINISHED = GOING | {State.PAUSED, State.PLANNED}
ESTIMATE = Markup('{}<span id="command" hx-swap-oob="true"><code>{}</code></span>')


@router.get("/campaigns")
def list_campaigns(visit: SignedIn) -> Response:
    """List the campaigns and their results."""
    with visit.reading() as conn:
        found = campaigns.find(conn, limit=PAGE)
        planned = campaigns.find(
            conn,
            (State.PLANNED,),
            limit=PAGE,
        )

    # Hide empty plans, which CronJobs leave.
    plans = [plan for plan in planned if plan["matched"]]
    shell = command(("campaign", "ls"))

    return visit.page(
        "campaigns.html",
        rows=found,
        plans=plans,
        shell=shell,
    )


@router.get("/campaigns/{campaign}")
def show_campaign(visit: SignedIn, campaign: int) -> Response:
    """Show a campaign: its progress, who started it and why, and its actions."""
    with visit.reading() as conn:
        found = found_in(conn, campaign)
        alive = standing.alive(conn)
        # The login of a viewer may not read dead letters.
        drawn = readable(lambda: outcome(conn, found))

    chart, marks = drawn or (None, ())

    return visit.page(
        "campaign.html",
        **_values(found, visit.user),
        chart=chart,
        marks=marks,
        alive=alive,
        is_going=not _is_over(found),
        shell=command(("campaign", "watch", str(campaign))),
    )


def _values(found: Row, user: Principal) -> Row:
    """Return the values of the part of the page that is updated."""
    state = found["state"]
    can = {
        "start": state == State.PLANNED,
        "pause": state in PAUSABLE,
        "resume": state in RESUMABLE,
        "cancel": state in ENDABLE,
    }

    return {
        "campaign": found,
        "may_change": user.may_change,
        "can": can,
        "steps": STEPS,
    }


def _is_over(found: Row) -> bool:
    return found["state"] not in UNFINISHED and not found["in_flight"]


@router.get("/campaigns/{campaign}/events")
def stream_progress(visit: SignedIn, campaign: int) -> Response:
    """Stream the progress of a campaign until it ends."""
    user = visit.user
    streams = visit.console.streams
    # A user without a session, such as one behind a proxy, has streams by name.
    session = user.session or user.name
    if not streams.has_room(session):
        raise Refused(429, "too many pages receive live updates; close some")

    # An unknown campaign is refused here: a stream that began cannot answer 404.
    with visit.reading() as conn:
        found_in(conn, campaign)

    read = partial(
        _update,
        visit,
        campaign,
    )
    events = streams.events(session, read)
    # By default, nginx would hold the events back.
    headers = {"x-accel-buffering": "no"}

    return StreamingResponse(
        events,
        media_type="text/event-stream",
        headers=headers,
    )


def _update(begun: Visit, campaign: int) -> Update | None:
    """Read the progress of a campaign, if the user still has access."""
    request = begun.request
    here = begun.console

    # The user may have signed out, or lost the role, since the stream began.
    try:
        visit = signed_in(
            request,
            here,
            known(request, here),
        )

        with visit.reading() as conn:
            found = found_in(conn, campaign)
    except (NotSignedIn, Refused, Crowded, SchemaError, psycopg.Error):
        return None

    template = here.templates.get_template("progress.html")
    values = _values(found, visit.user)
    html = template.render(values, root=here.root)

    return Update(html, _is_over(found))


@router.get("/estimate/{word}")
def estimate_redrive(visit: SignedIn, word: str) -> Response:
    """Estimate a redrive on the terms of a form, and show its command.

    The page asks while the form is filled in.
    """
    try:
        part = _estimate(visit, word)
    except Refused as error:
        part = escape(error.text)
    except ValueError:
        part = Markup("")

    return HTMLResponse(part)


def _estimate(visit: Visit, word: str) -> Markup:
    given = dict(visit.request.query_params)
    matched = int(given.get("seen", "0")[:12])
    # The page sends the filter and the fields of the form together.
    query = [pair for pair in visit.query if pair[0] not in TERMS]
    text = _estimate_text(
        visit,
        given,
        query,
        matched,
    )
    lines = commands(
        word,
        query,
        given,
        matched,
    )
    shell = "; ".join(map(visit.console.command, lines))

    return ESTIMATE.format(escape(text), escaped(shell))


def _estimate_text(
    visit: Visit, given: dict[str, str], query: Query, matched: int
) -> str:
    terms = terms_of(given, 0)
    sentences = [estimate(matched, terms)]
    sentences += _remarks(
        visit,
        terms,
        query,
    )

    return " ".join(sentences)


def _remarks(visit: Visit, terms: Terms, query: Query) -> list[str]:
    """Return sentences about the queue that the jobs go to."""
    if terms.to_queue is None:
        return []

    kinds = [kind for name, kind in query if name == "kind"]

    with visit.reading() as conn:
        others = destination.remarks(
            conn,
            terms.to_queue,
            kinds,
        )

    return [as_sentence(other) for other in others]
