"""State of every request: the user, the connections, the form."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from redrive.database.connections.connect import OwnConnection
from redrive.extras.console.links import Links
from redrive.extras.console.metrics import REFUSED
from redrive.extras.console.security import sessions
from redrive.extras.console.security.access import (
    COOKIE,
    Access,
    Principal,
    Role,
    is_own_site,
)
from redrive.extras.console.security.logins import Logins
from redrive.handlers import Handlers
from redrive.rules.rows import Row
from redrive.verbs.query import Query
from redrive.verbs.refusal import Invalid, Refused

MAX_FIELDS = 50
FORM = "application/x-www-form-urlencoded"
NO_LINKS = Links()
PREFIX = "/cells/"
NOT_IN_FILTER = {"said", "after"}
"""Parameters of a page's address that are no filter: the notice, and the position."""


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
        """Return a console per cell; the key "" holds the one for all cells.

        A single database has no name, so that its addresses have no prefix.
        """
        whole = replace(self, cells=tuple(filter(None, logins)))
        return {"": whole} | {
            cell: replace(whole, cell=cell or None, logins=own)
            for cell, own in logins.items()
        }

    def command(self, shell: str) -> str:
        """Return the shell command for this database."""
        if self.cell and shell:
            return f"{shell} --cell {self.cell}"
        return shell

    def page(
        self,
        template: str,
        request: Request,
        user: Principal | None,
        status: int = 200,
        **values: Any,
    ) -> HTMLResponse:
        """Render a template as an HTML response."""
        shared = self._of_every_page(request, user)
        text = self.templates.get_template(template).render(values | shared)
        return HTMLResponse(text, status)

    def _of_every_page(self, request: Request, user: Principal | None) -> Row:
        """Return the values that the base template needs."""
        return {
            "user": user,
            "links": self.links,
            "may_change": user is not None and user.may_change,
            "has_sign_out": user is not None and bool(user.session),
            "csrf": self.access.form_token(user) if user else "",
            "path": request.url.path.removeprefix(self.root),
            "root": self.root,
            "cell": self.cell,
            "cells": self.cells,
            "notice": self.access.read_notice(request.query_params.get("said")),
        }


def console(request: Request) -> Console:
    """Return the console for the cell that a request names."""
    cell = request.scope.get("cell", "")
    return consoles(request)[cell]


def consoles(request: Request) -> Mapping[str, Console]:
    """Return the consoles of all cells, by their names."""
    return request.app.state.consoles


Here = Annotated[Console, Depends(console)]


def known(request: Request, here: Here) -> Principal:
    """Return the user of a request, whatever their role.

    Raises:
        NotSignedIn: the user is unknown.
        Refused: the user is known but has no access.
    """
    peer = request.client.host if request.client else None
    session = request.cookies.get(COOKIE)

    try:
        user = here.access.identify(peer, request.headers.items(), session)
    except Refused:
        # The guard reads this, and counts the request as a refused sign-in.
        request.state.sign_in = REFUSED
        raise

    if user is None:
        raise NotSignedIn

    # The guard sends this cookie with the response.
    request.state.renewed = user.renewed

    return user


Known = Annotated[Principal, Depends(known)]


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a signed-in user for a page, a list or a change of one database."""

    request: Request
    console: Console
    user: Principal

    @property
    def query(self) -> Query:
        """Return the parameters of the query string that belong to the filter."""
        given = self.request.query_params.multi_items()
        return [(name, text) for name, text in given if name not in NOT_IN_FILTER]

    @property
    def after(self) -> str | None:
        """Return the position in a list after which this page begins."""
        return self.request.query_params.get("after")

    def reading(self) -> AbstractContextManager[OwnConnection]:
        """Open a read-only connection of the user's role."""
        return self.console.logins.reading(self.user.role, self.user.actor)

    def changing(self) -> AbstractContextManager[OwnConnection]:
        """Open a connection of the user's role that may write."""
        return self.console.logins.changing(self.user.role, self.user.actor)

    def page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a template as the response."""
        return self.console.page(template, self.request, self.user, status, **values)

    def require_operator(self) -> None:
        """Check that the user's role may make changes.

        Raises:
            Refused: it may not.
        """
        if not self.user.may_change:
            role = self.user.role.word
            rule = f"it must be {Role.OPERATOR.word} or higher"
            raise Refused(403, f"your role is {role}; {rule}")


def signed_in(request: Request, here: Here, user: Known) -> Visit:
    """Return the visit of a user who may use the database of the address.

    Raises:
        NotSignedIn: the session was signed out.
        NoCell: there are several cells, and the address names none.
        Refused: the role of the user has no login to this database.
    """
    if here.cells and here.cell is None:
        raise NoCell
    if user.role not in here.logins.roles:
        place = f"cell {here.cell}" if here.cell else "database here"
        raise Refused(403, f"the role {user.role.word} has no login to the {place}")

    visit = Visit(request, here, user)
    # The signed cookie stays valid after a sign-out. Only the database knows of it.
    if user.session:
        with visit.reading() as conn:
            if sessions.is_ended(conn, user.session):
                raise NotSignedIn

    return visit


SignedIn = Annotated[Visit, Depends(signed_in)]


async def own_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form that one of the console's pages sent.

    Raises:
        Refused: the request came from another site, or its body is not a form.
    """
    if not is_own_site(request.headers):
        rule = "open the page and try again"
        raise Refused(403, f"the form was not sent from a page of this console; {rule}")
    if media_type(request) != FORM:
        raise Refused(415, "the body must be a form; the JSON API is under /api/v1")

    return _fields((await request.body()).decode("utf-8", "replace"))


def media_type(request: Request) -> str:
    """Return the type of a request's body, without parameters."""
    name, _, _ = request.headers.get("content-type", "").partition(";")
    return name.strip()


def _fields(body: str) -> Mapping[str, str]:
    try:
        fields = parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        rule = f"it may have at most {MAX_FIELDS} fields"
        raise Invalid(f"the form is invalid; {rule}") from None

    found = dict(fields)
    if len(found) < len(fields):
        raise Invalid("a field of the form is there more than once")

    return found


OwnForm = Annotated[Mapping[str, str], Depends(own_form)]


def signed_form(here: Here, user: Known, form: OwnForm) -> Mapping[str, str]:
    """Return the fields of a form that was issued to this user.

    Raises:
        Refused: the form was issued to another user, or has expired.
    """
    if not here.access.is_own_form(user, form.get("csrf", "")):
        fault = "the form has expired, or was issued to another user"
        raise Refused(403, f"{fault}; reload the page")
    return form


Form = Annotated[Mapping[str, str], Depends(signed_form)]
