"""The page that edits payloads: it takes a patch, shows the diffs, then makes the
edit.
"""

from functools import partial
from http import HTTPStatus
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from redrive.console.actions import edits
from redrive.console.actions.change import Order, why_of
from redrive.console.pages.views import asked, done_page
from redrive.console.security.access import Principal, Refused, Role
from redrive.console.state import Form, Here, Signed, require

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/edit")
def look(request: Request, here: Here, who: Signed) -> Response:
    """Show the payloads to edit, and the form."""
    require(who, Role.OPERATOR)
    return _looked(
        request, here, who, Order(asked(request), "", who.name, {}, here.handlers)
    )


@router.post("/edit")
def edit(request: Request, here: Here, who: Signed, form: Form) -> Response:
    """Preview a patch, or apply it. The patch is in the body, never in the address."""
    require(who, Role.OPERATOR)
    order = Order(asked(request), "", who.name, form, here.handlers)
    if form.get("act") != "edit":
        return _looked(request, here, who, order)
    why = why_of(form.get("why", ""))
    order = Order(order.query, why, who.name, form, here.handlers)
    try:
        done = edits.edit(partial(here.logins.changing, who.role), order)
    except Refused as refused:
        if refused.status != HTTPStatus.CONFLICT:
            raise
        return _looked(request, here, who, order, refused.text)
    return done_page(here, done)


def _looked(
    request: Request,
    here: Here,
    who: Principal,
    order: Order,
    refusal: str | None = None,
) -> Response:
    with here.logins.reading(who.role) as conn:
        seen = edits.look(conn, order)
    fault = refusal or seen.fault
    action = f"/edit?{urlencode(list(seen.query))}"
    status = 200 if fault is None else 409 if refusal else 400
    return here.page(
        "edit.html",
        request,
        who,
        status,
        seen=seen,
        action=action,
        fault=fault,
        example=edits.EXAMPLE,
        shell=seen.shell,
    )
