"""What every page and every call of the API gets: who asks, the connections, the form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from redrive.console.access import COOKIE, Access, Identity, Refused, Role, is_own_site
from redrive.console.links import Links
from redrive.console.logins import Logins
from redrive.console.streams import Streams
from redrive.handlers import Handlers

MAX_FIELDS = 50
NO_LINKS = Links()


class NotSignedIn(Exception):
    """Nobody that we know asks."""


@dataclass(frozen=True, slots=True)
class Console:
    """The console: who may come in, their logins, the templates.

    `handlers`: of ours, to read payloads with.
    """

    access: Access
    logins: Logins
    templates: Environment
    handlers: Handlers | None = None
    links: Links = NO_LINKS
    streams: Streams = field(default_factory=Streams)

    def page(
        self,
        template: str,
        request: Request,
        who: Identity | None,
        status: int = 200,
        **values: Any,
    ) -> HTMLResponse:
        """An answer in HTML."""
        values |= {
            "who": who,
            "links": self.links,
            "may_change": who is not None and who.role >= Role.OPERATOR,
            "has_sign_out": who is not None and bool(who.session),
            "csrf": self.access.form_token(who) if who else "",
            "path": request.url.path,
            "said": self.access.heard(request.query_params.get("said")),
        }
        return HTMLResponse(self.templates.get_template(template).render(values), status)


def console(request: Request) -> Console:
    """The console that a request is for."""
    found: Console = request.app.state.console
    return found


Here = Annotated[Console, Depends(console)]


def signed_in(request: Request, here: Here) -> Identity:
    """Who asks.

    Raises:
        NotSignedIn: nobody that we know.
        Refused: somebody who may not come in.
    """
    peer = request.client.host if request.client else None
    who = here.access.identify(peer, request.headers.items(), request.cookies.get(COOKIE))
    if who is None:
        raise NotSignedIn
    if who.role not in here.logins.roles:
        raise Refused(403, f"the role {who.role.word} has no login to the database here")
    request.state.renewed = who.renewed
    return who


Signed = Annotated[Identity, Depends(signed_in)]


async def own_form(request: Request) -> Mapping[str, str]:
    """The fields of a form that one of our pages sent.

    Raises:
        Refused: it came from another site, or is no form.
    """
    if not is_own_site(request.headers):
        raise Refused(403, "this came from another site, or from no page at all")
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "forms only; the JSON API is under /api/v1")
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise Refused(400, f"a form has at most {MAX_FIELDS} fields") from None


OwnForm = Annotated[Mapping[str, str], Depends(own_form)]


def signed_form(here: Here, who: Signed, form: OwnForm) -> Mapping[str, str]:
    """The fields of a form that was made for whoever sends it.

    Raises:
        Refused: it was not, or long ago.
    """
    if not here.access.is_own_form(who, form.get("csrf", "")):
        raise Refused(403, "this form is not yours, or too old: load the page again")
    return form


Form = Annotated[Mapping[str, str], Depends(signed_form)]


def require(who: Identity, role: Role) -> None:
    """Refuse whoever has a lower role."""
    if who.role < role:
        raise Refused(403, f"your role is {who.role.word}; this takes an {role.word}")
