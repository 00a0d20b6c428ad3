"""State of every request: the user, the connections, the form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from redrive.console.links import Links
from redrive.console.metrics import REFUSED
from redrive.console.security import sessions
from redrive.console.security.access import (
    COOKIE,
    Access,
    Principal,
    Refused,
    Role,
    is_own_site,
)
from redrive.console.security.logins import Logins
from redrive.console.streams import Streams
from redrive.handlers import Handlers

MAX_FIELDS = 50
NO_LINKS = Links()


PREFIX = "/cells/"


class NotSignedIn(Exception):
    """The request carries no valid identity."""


class NoCell(Exception):
    """The address names no cell, but there are several."""


@dataclass(frozen=True, slots=True)
class Console:
    """Settings and connections that every request needs, for one cell.

    Attributes:
        logins: logins of the database, or of the cell that the address names.
        handlers: handlers that decode payloads.
        cells: names of all cells; empty if there is only one database.
        cell: name of the cell in the address; None if the address names none.
    """

    access: Access
    logins: Logins
    templates: Environment
    handlers: Handlers | None = None
    links: Links = NO_LINKS
    streams: Streams = field(default_factory=Streams)
    cells: Sequence[str] = ()
    cell: str | None = None

    @property
    def root(self) -> str:
        """Return the prefix of every page's address.

        Every address names its cell. A form in an old tab therefore reaches the
        database that the tab shows, even if the user has opened another cell since.
        """
        return f"{PREFIX}{self.cell}" if self.cell else ""

    def each(self, logins: Mapping[str, Logins]) -> Mapping[str, "Console"]:
        """Return a console per cell; the key "" holds the one for all cells."""
        if len(logins) == 1:
            return {"": replace(self, logins=next(iter(logins.values())))}
        those = replace(self, cells=tuple(logins))
        each = {
            cell: replace(those, cell=cell, logins=own) for cell, own in logins.items()
        }
        return {"": those, **each}

    def command(self, shell: str) -> str:
        """Return the shell command for this database."""
        return f"{shell} --cell {self.cell}" if self.cell and shell else shell

    def page(
        self,
        template: str,
        request: Request,
        who: Principal | None,
        status: int = 200,
        **values: Any,
    ) -> HTMLResponse:
        """Render a template as an HTML response."""
        values |= {
            "who": who,
            "links": self.links,
            "may_change": who is not None and who.role >= Role.OPERATOR,
            "has_sign_out": who is not None and bool(who.session),
            "csrf": self.access.form_token(who) if who else "",
            "path": request.url.path.removeprefix(self.root),
            "root": self.root,
            "cell": self.cell,
            "cells": self.cells,
            "said": self.access.heard(request.query_params.get("said")),
        }
        return HTMLResponse(
            self.templates.get_template(template).render(values), status
        )


def console(request: Request) -> Console:
    """Return the console for the cell that a request names."""
    consoles: Mapping[str, Console] = request.app.state.consoles
    return consoles[request.scope.get("cell", "")]


Here = Annotated[Console, Depends(console)]


def known(request: Request, here: Here) -> Principal:
    """Return the user of a request, whatever their role.

    Raises:
        NotSignedIn: the user is unknown.
        Refused: the user is known but has no access.
    """
    peer = request.client.host if request.client else None
    try:
        who = here.access.identify(
            peer, request.headers.items(), request.cookies.get(COOKIE)
        )
    except Refused:
        request.state.sign_in = REFUSED
        raise
    if who is None:
        raise NotSignedIn
    request.state.renewed = who.renewed
    return who


Known = Annotated[Principal, Depends(known)]


def signed_in(here: Here, who: Known) -> Principal:
    """Return the user of a request about a database.

    Raises:
        NotSignedIn: the session was signed out.
        NoCell: there are several cells, and the address names none.
        Refused: the role of the user has no login to this database.
    """
    if here.cells and here.cell is None:
        raise NoCell
    if who.role not in here.logins.roles:
        where = f"cell {here.cell}" if here.cell else "database here"
        raise Refused(403, f"the role {who.role.word} has no login to the {where}")
    if who.session:
        with here.logins.reading(who.role) as conn:
            if sessions.is_ended(conn, who.session):
                raise NotSignedIn
    return who


Signed = Annotated[Principal, Depends(signed_in)]


async def own_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form that one of the console's pages sent.

    Raises:
        Refused: the request came from another site, or its body is not a form.
    """
    if not is_own_site(request.headers):
        raise Refused(
            403,
            "the form was not sent from a page of this console; open the page and try again",
        )
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "the body must be a form; the JSON API is under /api/v1")
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise Refused(
            400, f"the form is invalid; it may have at most {MAX_FIELDS} fields"
        ) from None


OwnForm = Annotated[Mapping[str, str], Depends(own_form)]


def signed_form(here: Here, who: Known, form: OwnForm) -> Mapping[str, str]:
    """Return the fields of a form that was issued to this user.

    Raises:
        Refused: the form was issued to another user, or has expired.
    """
    if not here.access.is_own_form(who, form.get("csrf", "")):
        raise Refused(
            403, "the form has expired, or was issued to another user; reload the page"
        )
    return form


Form = Annotated[Mapping[str, str], Depends(signed_form)]


def require(who: Principal, role: Role) -> None:
    """Raise Refused if the user's role is lower than `role`."""
    if who.role < role:
        raise Refused(
            403, f"your role is {who.role.word}; it must be {role.word} or higher"
        )
