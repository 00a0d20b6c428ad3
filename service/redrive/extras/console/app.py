"""The ASGI application of the console: routes, errors, probes, metrics, server."""

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlencode

import psycopg
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from prometheus_client import generate_latest
from psycopg import errors
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from redrive.database.ask import ask_all
from redrive.errors import Busy, InvalidJob, SchemaError, SettingsError
from redrive.extras.console import metrics
from redrive.extras.console.connections import PageConnection
from redrive.extras.console.links import Links
from redrive.extras.console.pages import (
    campaigns,
    cells,
    dead_letters,
    jobs,
    of_one,
    sign_in,
    system,
)
from redrive.extras.console.pages.forms import act, changes, proposals
from redrive.extras.console.pages.json_api import api, export
from redrive.extras.console.pages.render import environment
from redrive.extras.console.security.access import Access
from redrive.extras.console.security.guard import Guard
from redrive.extras.console.security.logins import Logins
from redrive.extras.console.state import (
    NO_LINKS,
    PREFIX,
    Console,
    NoCell,
    NotSignedIn,
    console,
)
from redrive.handlers import Handlers
from redrive.observability.metrics import Exposition
from redrive.observability.tracing import Tracing
from redrive.verbs.refusal import Refused

logger = logging.getLogger("redrive.extras.console")

STOP_SECONDS = 10
READY_SECONDS = 2.0
TITLES = {
    400: "Invalid request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "No longer valid",
    413: "Too large",
    415: "Unsupported format",
    422: "Invalid request",
    429: "Too many requests",
    503: "Unavailable",
}

NO_RIGHT = (
    "the database login of your role lacks this right; docs/roles.md lists the rights"
)
TOO_SLOW = "the query took too long; narrow the filter, or try again"
NO_ANSWER = "the database does not answer; try again in a moment"
AGAINST_A_RULE = "a rule of Redrive does not allow this"
NO_PAGE = "there is no such page; the id of a job must be a number"
BROKEN = "Redrive failed to answer; the log of the console has the error"

METRICS_FORMAT = "text/plain; version=0.0.4"
PARTS = (
    api,
    system,
    of_one,
    jobs,
    dead_letters,
    export,
    campaigns,
    proposals,
    changes,
    act,
    sign_in,
    cells,
)


def application(
    access: Access,
    logins: Logins | Mapping[str, Logins],
    handlers: Handlers | None = None,
    *,
    links: Links = NO_LINKS,
    tracing: Tracing | None = None,
) -> Guard:
    """Return the console as an ASGI application.

    Args:
        access: rules that identify users and give them roles.
        logins: logins of one database, or logins by cell if there are several.
        handlers: handlers that decode payloads; None shows payloads undecoded.
        links: address templates for traces and logs.
        tracing: tracer that records a span for each response; None records none.
    """
    by_cell = {"": logins} if isinstance(logins, Logins) else logins
    # `each` puts the logins of every cell into a console of its own.
    here = Console(
        access=access,
        logins=Logins({}),
        templates=environment(),
        handlers=handlers,
        links=links,
    )

    requests = metrics.requests()
    sign_ins = metrics.sign_ins()
    app = _routed()
    app.state.consoles = here.each(by_cell)
    _add_probes(app, by_cell, Exposition(None, requests.collect, sign_ins.collect))

    return Guard(
        cells.addressed(cast("Any", app), by_cell),
        access,
        requests,
        sign_ins,
        trace=tracing and tracing.answered,
    )


def _routed() -> FastAPI:
    """Return the FastAPI application with all pages, the API and its errors."""
    app = FastAPI(
        title="Redrive",
        description="The lists of the command line with its filters, and its changes.",
        version="1",
        openapi_url=f"{api.PREFIX}/openapi.json",
        # Both pages would load scripts from another host, which our policy forbids.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )

    for part in PARTS:
        app.include_router(part.router)

    static = StaticFiles(packages=[("redrive.extras.console", "static")])
    app.mount("/static", static, name="static")

    for kind, handle in HANDLERS.items():
        app.add_exception_handler(kind, handle)

    return app


def _add_probes(
    app: FastAPI, by_cell: Mapping[str, Logins], exposition: Exposition
) -> None:
    """Add the probes of Kubernetes and Prometheus.

    They need no sign-in and reveal nothing about jobs.
    """

    @app.get("/livez", include_in_schema=False)
    def livez() -> Response:
        return PlainTextResponse("process: ok\n")

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> Response:
        if _any_answers(by_cell):
            return PlainTextResponse("database: ok\n")
        return PlainTextResponse("database: it does not answer\n", 503)

    @app.get("/metrics", include_in_schema=False)
    def show_metrics() -> Response:
        return Response(generate_latest(exposition.registry), media_type=METRICS_FORMAT)


def _any_answers(by_cell: Mapping[str, Logins]) -> bool:
    """Return True if a database answers in time; one reachable cell is enough."""
    asked = {cell: partial(_answers, logins) for cell, logins in by_cell.items()}
    return any(ask_all(asked, READY_SECONDS).values())


def _answers(logins: Logins) -> bool:
    try:
        with logins.reading(min(logins.roles)) as conn:
            conn.execute("select")
    except (psycopg.Error, SchemaError, SettingsError, Refused):
        return False
    return True


# ---------------------------------------------------------------------- errors


def _failed(request: Request, status: int, text: str) -> Response:
    """Return an error response: JSON for the API, a page for browsers."""
    if _is_api(request):
        found = api.answer({"error": text}, status)
    else:
        title = TITLES.get(status, "Request failed")
        found = _error_page(request, status, title=title, text=text)

    if status == HTTPStatus.UNAUTHORIZED:
        found.headers["www-authenticate"] = "Bearer"

    return found


def _error_page(
    request: Request,
    status: int,
    *,
    title: str,
    text: str,
    elsewhere: Sequence[tuple[str, str]] = (),
) -> Response:
    """Return the page of an error; `elsewhere` are names and addresses to offer."""
    values = {"title": title, "text": text, "elsewhere": elsewhere}
    return console(request).page("error.html", request, None, status, **values)


def _is_api(request: Request) -> bool:
    """Return True for API paths, with or without a cell prefix, known or not."""
    path = request.url.path
    if path.startswith(PREFIX):
        _, _, rest = path.removeprefix(PREFIX).partition("/")
        path = f"/{rest}"
    return path.startswith(api.PREFIX)


def _address(request: Request) -> str:
    """Return path and query string of a request."""
    path = request.url.path
    query = request.url.query
    return f"{path}?{query}" if query else path


def _no_cell(request: Request, _error: Exception) -> Response:
    """Offer the same address in every cell, because old links name no cell."""
    names = console(request).cells
    if _is_api(request):
        path = f"{PREFIX}NAME{request.url.path}"
        rule = f"write {path}, where NAME is one of: {', '.join(names)}"
        return _failed(request, 404, f"the address names no cell; {rule}")

    address = _address(request)

    return _error_page(
        request,
        404,
        title="Choose a cell",
        text="This console shows several databases. Choose a cell.",
        elsewhere=[(name, f"{PREFIX}{name}{address}") for name in names],
    )


def _not_signed_in(request: Request, _error: Exception) -> Response:
    access = console(request).access
    has_page = access.tokens is not None or access.provider is not None
    if has_page and not _is_api(request):
        # A form cannot be sent again after the sign-in, so lead to the first page.
        onward = _address(request) if request.method == "GET" else "/"
        query = urlencode({"next": onward})
        return RedirectResponse(f"/sign-in?{query}", 303)

    rule = "send a bearer token, or sign in through the proxy"
    return _failed(request, 401, f"you are not signed in; {rule}")


def _of_database(request: Request, error: Exception) -> Response:
    """Return the response to an error of the database.

    It leaves out the error's DETAIL, which holds values of rows.
    """
    status, text = _fault_of_database(cast("psycopg.Error", error))
    return _failed(request, status, text)


def _fault_of_database(error: psycopg.Error) -> tuple[int, str]:
    state = {"sqlstate": error.sqlstate}

    match error:
        case errors.InsufficientPrivilege() | errors.ReadOnlySqlTransaction():
            return 403, NO_RIGHT
        # QueryCanceled is an OperationalError, so it must come before that.
        case errors.QueryCanceled():
            return 503, TOO_SLOW
        case psycopg.OperationalError():
            logger.warning("the database does not answer", extra=state)
            return 503, NO_ANSWER

        case psycopg.Error(sqlstate="RD001"):
            # A function of Redrive raised it, and its text is for users.
            return 409, error.diag.message_primary or AGAINST_A_RULE

        case _:
            logger.error("the database refused", extra=state)
            fault = "the database rejected the request"
            return 400, f"{fault} (SQLSTATE {error.sqlstate})"


def _say_error(request: Request, error: Exception, *, status: int) -> Response:
    """Answer with the text of the error."""
    return _failed(request, status, str(error))


def _refused(request: Request, error: Exception) -> Response:
    refused = cast("Refused", error)
    return _failed(request, refused.status, refused.text)


def _http(request: Request, error: Exception) -> Response:
    found = cast("HTTPException", error)
    return _failed(request, found.status_code, str(found.detail))


def _broken(request: Request, error: Exception) -> Response:
    logger.error("a request failed", exc_info=error, extra={"path": request.url.path})
    return _failed(request, 500, BROKEN)


HANDLERS: dict[Any, Callable[[Request, Exception], Response]] = {
    NoCell: _no_cell,
    NotSignedIn: _not_signed_in,
    Refused: _refused,
    Busy: partial(_say_error, status=409),
    HTTPException: _http,
    InvalidJob: partial(_say_error, status=400),
    RequestValidationError: lambda request, _error: _failed(request, 404, NO_PAGE),
    SchemaError: partial(_say_error, status=503),
    SettingsError: partial(_say_error, status=503),
    psycopg.Error: _of_database,
    Exception: _broken,
}


# ---------------------------------------------------------------------- the server


def run(app: Guard, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; finish the requests in flight."""
    config = uvicorn.Config(
        cast("Any", app),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the peer address must be the real one
        http=PageConnection,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=10,
    )
    uvicorn.Server(config).run(sockets=[listener])
