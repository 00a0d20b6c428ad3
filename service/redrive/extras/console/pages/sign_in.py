"""The sign-in page, sign-in at a provider, and sign-out."""

from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from redrive.extras.console.metrics import ACCEPTED, REFUSED
from redrive.extras.console.security import sessions
from redrive.extras.console.security.access import (
    CALLBACK,
    COOKIE,
    IDLE_SECONDS,
    PENDING,
    SIGN_IN_SECONDS,
    Provider,
    cookie,
)
from redrive.extras.console.state import Console, Form, Here, Known, OwnForm, consoles
from redrive.verbs.refusal import Missing

NOT_EVERYWHERE = (
    "You are signed out in this browser, but a database could not record it. There, a"
    " copy of the cookie stays valid for two hours after its last use."
)
MAX_PATH_LENGTH = 1000
"""A longer path would not fit in the cookie of a sign-in."""

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/sign-in")
def ask_who(request: Request, here: Here) -> Response:
    """Show the form for a token and the link to the provider."""
    return _sign_in_page(request, here)


def _sign_in_page(
    request: Request, here: Console, fault: str | None = None
) -> Response:
    return here.page(
        "sign_in.html",
        request,
        None,
        200 if fault is None else 401,
        onward=_own_path(request.query_params.get("next")),
        by_token=here.access.tokens is not None,
        provider=here.access.provider and here.access.provider.host,
        fault=fault,
    )


def _own_path(path: str | None) -> str:
    """Return the path of the next page; "/" unless `path` is on this site."""
    if not path or len(path) > MAX_PATH_LENGTH:
        return "/"

    # Browsers read // and /\ as the beginning of another host.
    is_local = path.startswith("/") and not path.startswith(("//", "/\\"))
    is_plain = path.isascii() and path.isprintable()

    return path if is_local and is_plain else "/"


@router.post("/sign-in")
def sign_in(request: Request, here: Here, form: OwnForm) -> Response:
    """Begin a session with a token."""
    session = here.access.sign_in(form.get("token", ""))
    request.state.sign_in = ACCEPTED if session else REFUSED

    if not session:
        return _sign_in_page(request, here, "The token is unknown or was revoked.")

    return _begun(session, request.query_params.get("next"))


def _begun(session: str, onward: str | None) -> Response:
    answer = RedirectResponse(_own_path(onward), 303)
    _set_cookie(answer, name=COOKIE, value=session, seconds=IDLE_SECONDS)
    return answer


def _set_cookie(answer: Response, name: str, value: str, seconds: int) -> None:
    """Add a cookie to a response; 0 seconds delete it."""
    answer.headers.append("set-cookie", cookie(name, value, seconds))


def _provider(here: Console) -> Provider:
    if here.access.provider is None:
        rule = "sign in with a token"
        raise Missing(f"this console has no identity provider; {rule}")
    return here.access.provider


@router.get("/sign-in/provider")
async def ask_provider(request: Request, here: Here) -> Response:
    """Redirect the user to the identity provider."""
    pending = {"next": _own_path(request.query_params.get("next"))}
    answer = await _provider(here).begin(request, pending)
    signed = here.access.sign_pending(pending)
    _set_cookie(answer, name=PENDING, value=signed, seconds=SIGN_IN_SECONDS)

    return answer


@router.get(CALLBACK)
async def come_back(request: Request, here: Here) -> Response:
    """Begin a session for a user who comes back from the provider."""
    pending = here.access.read_pending(request.cookies.get(PENDING))
    provider = _provider(here)

    # Until the sign-in is accepted below, each way out is a refusal.
    request.state.sign_in = REFUSED
    name, groups = await provider.complete(request, pending)
    session = here.access.sign_in_by_provider(name, groups)
    request.state.sign_in = ACCEPTED

    answer = _begun(session, pending.get("next"))
    _set_cookie(answer, name=PENDING, value="", seconds=0)

    return answer


@router.post("/sign-out")
def sign_out(request: Request, here: Here, user: Known, form: Form) -> Response:
    """End a session in every database, and always in this browser."""
    # The parameter only requires the user's own form: no other site can sign them out.
    del form
    path = "/sign-in"
    if not _end_everywhere(request, user.session):
        query = urlencode({"said": here.access.sign_notice(NOT_EVERYWHERE)})
        path = f"{path}?{query}"

    answer = RedirectResponse(path, 303)
    _set_cookie(answer, name=COOKIE, value="", seconds=0)

    return answer


def _end_everywhere(request: Request, session: str) -> bool:
    """End a session in every database; return True if all of them recorded it."""
    every = consoles(request).values()
    return sessions.end(session, [each.logins for each in every if each.logins.roles])
