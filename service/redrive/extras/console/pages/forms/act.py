"""Pages of links that act: what an alert offers, the confirmation, and the change."""

from dataclasses import replace
from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from redrive.database.rows import value
from redrive.extras.console.actions.changes import CHANGES
from redrive.extras.console.actions.offers import offers
from redrive.extras.console.pages.forms.changes import done_page, order
from redrive.extras.console.security.act_links import Act
from redrive.extras.console.state import Form, SignedIn, Visit
from redrive.verbs.refusal import Refused
from redrive.verbs.verb import Order, Preview

MUTED = "2h"
DEAD = "the link was used already, is older than fifteen minutes, or is not one of ours"
AGAIN = "open the alert's link again for a new one"

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/act")
def offer(visit: SignedIn) -> Response:
    """Show what can be done about an alert, each by a link of its own."""
    return visit.page("act.html", offered=links(visit))


def links(visit: Visit) -> list[dict[str, str]]:
    """Sign a link for each change that the alert of the query offers."""
    visit.require_operator()

    with visit.reading() as conn:
        found = offers(conn, dict(visit.query))

    here = visit.console
    signed = here.access.act_links

    return [
        {
            "text": each.text,
            "path": f"{here.root}/act/{signed.sign(_cell(visit), each.word, each.target)}",
        }
        for each in found
    ]


def _cell(visit: Visit) -> str:
    return visit.console.cell or ""


@router.get("/act/{link}")
def confirm(visit: SignedIn, link: str) -> Response:
    """Show the change of a link, and the form that confirms it. Nothing happens yet."""
    visit.require_operator()
    act = _read(visit, link)

    with visit.reading() as conn:
        used = "select count(*) from redrive.used_links where link = %s"
        if value(conn, used, act.id):
            raise _dead()

        seen = CHANGES[act.word].look(conn, Order(act.query))

    return visit.page(
        "change.html",
        seen=_with_length(seen, act),
        word=act.word,
        action=f"/act/{link}",
        terms=f"/estimate/{act.word}?campaign={act.target}",
        fault=None,
    )


def _with_length(seen: Preview, act: Act) -> Preview:
    """Suggest two hours for a mute."""
    if act.word != "mute":
        return seen
    return replace(seen, inputs=[replace(one, default=MUTED) for one in seen.inputs])


@router.post("/act/{link}")
def make(visit: SignedIn, form: Form, link: str) -> Response:
    """Use the link, and make its change.

    The database records the use first. So of two requests at once, only one acts.
    """
    visit.require_operator()
    act = _read(visit, link)
    change = CHANGES[act.word]
    # The link alone says what is changed, whatever the form or the address says.
    wanted = replace(
        order(visit, form, change.why(form.get("why", ""))), query=act.query
    )

    with visit.changing() as conn:
        if not value(conn, "select redrive.use_link_v1(%s)", act.id):
            raise _dead()

    return done_page(visit, change.do(visit.changing, wanted))


def _read(visit: Visit, link: str) -> Act:
    """Return the content of a link. Raises Refused unless it is valid for this cell."""
    act = visit.console.access.act_links.read(link)
    if act is None or act.cell != _cell(visit):
        raise _dead()
    return act


def _dead() -> Refused:
    return Refused(HTTPStatus.GONE, f"{DEAD}; {AGAIN}")
