"""Pages that change something: a preview, a form that asks why, and the result."""

from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from redrive.errors import InvalidJob
from redrive.extras.console.actions.changes import CHANGES
from redrive.extras.console.state import Form, SignedIn, Visit
from redrive.verbs.edits import EXAMPLE
from redrive.verbs.query import Query
from redrive.verbs.refusal import Conflict, Missing
from redrive.verbs.verb import Done, Order, Preview, Verb

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/change/{word}")
def preview_change(visit: SignedIn, word: str) -> Response:
    """Preview a change and show the form that does it."""
    visit.require_operator()
    return _change_page(visit, word)


def _change_page(
    visit: Visit,
    word: str,
    form: Mapping[str, str] | None = None,
    conflict: str | None = None,
) -> Response:
    """Show the preview of a change; after a conflict, also say what changed.

    Args:
        form: a patch to preview, or a payload that the user edited.
    """
    change = change_of(word)
    status, fault = HTTPStatus.OK, conflict
    if conflict:
        status = HTTPStatus.CONFLICT

    try:
        seen = preview(visit, change, form)
    except InvalidJob as error:
        status, fault = HTTPStatus.BAD_REQUEST, str(error)
        seen = preview(visit, change)

    return visit.page(
        "edit.html" if word == "edit" else "change.html",
        status,
        seen=seen,
        word=word,
        action=_address(f"/change/{word}", seen.query),
        terms=_address(f"/estimate/{word}", visit.query),
        fault=fault,
        typed={**seen.values, **(form or {})},
        example=EXAMPLE,
    )


def preview(
    visit: Visit, change: Verb, more: Mapping[str, str] | None = None
) -> Preview:
    """Return the preview of a change, through a login that may read its data."""
    with visit.changing() if change.plans else visit.reading() as conn:
        return change.look(conn, order(visit, more or {}))


def change_of(word: str) -> Verb:
    """Return the change with this word. Raises Refused if it is unknown."""
    if word not in CHANGES:
        known = ", ".join(CHANGES)
        raise Missing(f"there is no change {word!r}; there are: {known}")
    return CHANGES[word]


def _address(path: str, query: Query) -> str:
    return f"{path}?{urlencode(list(query))}"


@router.post("/change/{word}")
def make_change(visit: SignedIn, form: Form, word: str) -> Response:
    """Make the change and show the result; on a conflict, show the preview again.

    A form without a reason asks what its patch would change. The patch is in the body,
    never in the address.
    """
    visit.require_operator()
    change = change_of(word)
    if "why" not in form and word == "edit":
        return _change_page(visit, word, form)

    why = change.why(form.get("why", ""))

    try:
        done = change.do(visit.changing, order(visit, form, why))
    except Conflict as refused:
        return _change_page(visit, word, form, refused.text)

    return done_page(visit, done)


def order(visit: Visit, fields: Mapping[str, str], why: str = "") -> Order:
    """Return the change that a user asks for, with the other fields of the form."""
    handlers = visit.console.handlers
    return Order(
        query=visit.query,
        why=why,
        actor=visit.user.actor,
        more=fields,
        handlers=handlers,
    )


def done_page(visit: Visit, done: Done) -> Response:
    """Redirect to the page after a change, with a sentence about the result."""
    if done.is_shown:
        return visit.page("shown.html", done=done)

    here = visit.console
    notice = here.access.sign_notice(done.text)

    mark = "&" if "?" in done.path else "?"
    query = urlencode({"said": notice})
    return RedirectResponse(f"{here.root}{done.path}{mark}{query}", 303)
