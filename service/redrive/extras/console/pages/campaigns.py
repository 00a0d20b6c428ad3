"""Pages of campaigns. The page of a running campaign asks for itself again."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup, escape

from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.pace import CANARIES, GOING, State, again, pace
from redrive.dead_letters.campaigns.terms import Terms
from redrive.extras.console.pages.forms.changes import change_of
from redrive.extras.console.pages.listing import PAGE
from redrive.extras.console.state import SignedIn, Visit
from redrive.jobs import destination, standing
from redrive.rules.payloads.escape import escaped
from redrive.verbs.campaigns import ENDABLE, RESUMABLE, found_in
from redrive.verbs.query import Query, command
from redrive.verbs.refusal import Refused
from redrive.verbs.terms import FIELDS, canaries_of, estimate, terms_of
from redrive.verbs.verb import Order, letters_of, sentence

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
        planned = campaigns.find(conn, (State.PLANNED,), limit=PAGE)

    # Hide empty plans, which CronJobs leave.
    plans = [plan for plan in planned if plan["matched"]]
    shell = command(("campaign", "ls"))

    shown = [row | {"again": again(row)} for row in found]
    return visit.page("campaigns.html", rows=shown, plans=plans, shell=shell)


@router.get("/campaigns/{campaign}")
def show_campaign(visit: SignedIn, campaign: int) -> Response:
    """Show a campaign: its progress, who started it and why, and its actions."""
    with visit.reading() as conn:
        found = found_in(conn, campaign)
        alive = standing.alive(conn)

    state = found["state"]
    can = {
        "start": state == State.PLANNED,
        "pause": state in GOING,
        "resume": state in RESUMABLE,
        "cancel": state in ENDABLE,
    }

    return visit.page(
        "campaign.html",
        campaign=found,
        can=can,
        steps=STEPS,
        alive=alive,
        is_going=state in UNFINISHED or bool(found["in_flight"]),
        fastest=pace(found["rate"], found["rates"], len(found["kinds"])),
        shell=command(("campaign", "watch", str(campaign))),
    )


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
    query = [pair for pair in visit.query if pair[0] not in FIELDS]
    text = _estimate_text(visit, given, query, matched)
    usual = CANARIES
    if word != "campaign-start":
        usual = canaries_of(letters_of(Order(query)), matched)
    order = Order(query, more=given)
    line = visit.console.command(change_of(word).shell(order, {"canaries": str(usual)}))

    return ESTIMATE.format(escape(text), escaped(line))


def _estimate_text(
    visit: Visit, given: dict[str, str], query: Query, matched: int
) -> str:
    terms = terms_of(given, 0)
    sentences = [estimate(matched, terms, float(given.get("allowed", 0)) or None)]
    sentences += _remarks(visit, terms, query)

    return " ".join(sentences)


def _remarks(visit: Visit, terms: Terms, query: Query) -> list[str]:
    """Return sentences about the queue that the jobs go to."""
    if terms.to_queue is None:
        return []

    kinds = [kind for name, kind in query if name == "kind"]

    with visit.reading() as conn:
        others = destination.remarks(conn, terms.to_queue, kinds)

    return [sentence(other) for other in others]
