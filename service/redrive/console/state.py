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
from redrive.console.security.access import COOKIE, Access, Principal, Refused, Role, is_own_site
from redrive.console.security.logins import Logins
from redrive.console.streams import Streams
from redrive.handlers import Handlers

MAX_FIELDS = 50
NO_LINKS = Links()


PREFIX = "/cells/"


class NotSignedIn(Exception):
    """Nobody that we know asks."""


class NoCell(Exception):
    """The request is about one database, and its address names none of several."""


@dataclass(frozen=True, slots=True)
class Console:
    """The console: who may come in, their logins, the templates.

    Attributes:
        logins: of one database; of several, those of the cell that the address names.
        handlers: of ours, to read payloads with.
        cells: the names of several databases; none where there is one.
        cell: which of them the address names.
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

        The cell is a part of each of them, so what an old tab sends goes to the database that the
        tab shows, whatever was looked at since.
        """
        return f"{PREFIX}{self.cell}" if self.cell else ""

    def each(self, logins: Mapping[str, Logins]) -> Mapping[str, "Console"]:
        """The console of each cell by its name, and under no name that of all, or of the one."""
        if len(logins) == 1:
            return {"": replace(self, logins=next(iter(logins.values())))}
        those = replace(self, cells=tuple(logins))
        each = {cell: replace(those, cell=cell, logins=own) for cell, own in logins.items()}
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
        """An answer in HTML."""
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
        return HTMLResponse(self.templates.get_template(template).render(values), status)


def console(request: Request) -> Console:
    """The console that a request is for: of the cell that its address names."""
    consoles: Mapping[str, Console] = request.app.state.consoles
    return consoles[request.scope.get("cell", "")]


Here = Annotated[Console, Depends(console)]


def known(request: Request, here: Here) -> Principal:
    """Return the user of a request, whatever they may do.

    Raises:
        NotSignedIn: nobody that we know.
        Refused: somebody who may not come in.
    """
    peer = request.client.host if request.client else None
    try:
        who = here.access.identify(peer, request.headers.items(), request.cookies.get(COOKIE))
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
        NotSignedIn: they signed out of this session.
        NoCell: there are several, and none is named.
        Refused: their role has no login there.
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


def signed_form(here: Here, who: Known, form: OwnForm) -> Mapping[str, str]:
    """The fields of a form that was made for whoever sends it.

    Raises:
        Refused: it was not, or long ago.
    """
    if not here.access.is_own_form(who, form.get("csrf", "")):
        raise Refused(403, "this form is not yours, or too old: load the page again")
    return form


Form = Annotated[Mapping[str, str], Depends(signed_form)]


def require(who: Principal, role: Role) -> None:
    """Refuse whoever has a lower role."""
    if who.role < role:
        raise Refused(403, f"your role is {who.role.word}; this takes an {role.word}")
