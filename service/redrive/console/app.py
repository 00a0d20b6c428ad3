"""Build the ASGI application: routes, error responses, probes, metrics. Run its
server.
"""

import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any, cast
from urllib.parse import urlencode

import psycopg
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from redrive.console import metrics
from redrive.console.links import Links
from redrive.console.pages import api, cells, edit_page, live, sign_in, system, views
from redrive.console.pages.render import environment
from redrive.console.security.access import Access, Refused
from redrive.console.security.guard import Guard
from redrive.console.security.logins import Crowded, Logins
from redrive.console.state import (
    NO_LINKS,
    PREFIX,
    Console,
    NoCell,
    NotSignedIn,
    console,
)
from redrive.database.ask import ask_all
from redrive.errors import Busy, InvalidJob, SchemaError, SettingsError
from redrive.handlers import Handlers
from redrive.observability.metrics import Exposition
from redrive.observability.tracing import Tracing

logger = logging.getLogger("redrive.console")

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({"localhost", LOOPBACK, "[::1]"})
MAX_CONNECTIONS = 200
STOP_SECONDS = 10
READY_SECONDS = 2.0
TITLES = {
    400: "Invalid request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported format",
    422: "Invalid request",
    429: "Too many requests",
    503: "Unavailable",
}


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
    requests, sign_ins = metrics.requests(), metrics.sign_ins()
    app = _routed()
    here = Console(access, Logins({}), environment(), handlers, links)
    by_cell = {"": logins} if isinstance(logins, Logins) else logins
    app.state.consoles = here.each(by_cell)
    _probes(app, by_cell, Exposition(None, requests.collect, sign_ins.collect))
    for kind, handle in HANDLERS.items():
        app.add_exception_handler(kind, handle)
    proxy = access.proxy
    return Guard(
        cells.addressed(cast("Any", app), by_cell),
        requests,
        sign_ins,
        hosts=LOOPBACK_NAMES if access.everybody else None,
        unlimited=proxy.knows if proxy else lambda _: False,
        session=access.session,
        stop=here.streams.end,
        trace=tracing.answered if tracing else _untraced,
    )


def _routed() -> FastAPI:
    """Return the FastAPI application with all pages and the API."""
    app = FastAPI(
        title="Redrive",
        description="The lists of the command line with its filters, and its changes.",
        version="1",
        openapi_url=f"{api.PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for part in (api, views, sign_in, system, cells, live, edit_page):
        app.include_router(part.router)
    app.mount(
        "/static", StaticFiles(packages=[("redrive.console", "static")]), name="static"
    )
    return app


def _untraced(_method: str, _page: str, _status: int, _seconds: float) -> None:
    """Record no span; used when tracing is off."""


def _probes(
    app: FastAPI, by_cell: Mapping[str, Logins], exposition: Exposition
) -> None:
    """Add the probes of Kubernetes and Prometheus, which need no sign-in and reveal
    nothing.
    """

    @app.get("/livez", include_in_schema=False)
    def livez() -> Response:
        return PlainTextResponse("process: ok\n")

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> Response:
        asked = {cell: partial(_answers, logins) for cell, logins in by_cell.items()}
        if any(ask_all(asked, READY_SECONDS).values()):  # one reachable cell is enough
            return PlainTextResponse("database: ok\n")
        return PlainTextResponse("database: it does not answer\n", 503)

    @app.get("/metrics", include_in_schema=False)
    def show_metrics() -> Response:
        return Response(
            generate_latest(exposition.registry), media_type="text/plain; version=0.0.4"
        )


def _answers(logins: Logins) -> bool:
    try:
        with logins.reading(min(logins.roles)) as conn:
            conn.execute("select")
    except (psycopg.Error, SchemaError, SettingsError, Crowded):
        return False
    return True


# ---------------------------------------------------------------------- errors


def _failed(request: Request, status: int, text: str) -> Response:
    """Return an error response: JSON for the API, a page for browsers."""
    if _is_of_program(request):
        found = api.answer({"error": text}, status)
    else:
        title = TITLES.get(status, "Request failed")
        found = console(request).page(
            "error.html", request, None, status, title=title, text=text, elsewhere=()
        )
    if status == 401:  # noqa: PLR2004 # Unauthorized
        found.headers["www-authenticate"] = "Bearer"
    return found


def _is_of_program(request: Request) -> bool:
    """Return True for API paths, with or without a cell prefix, known or not."""
    path = request.url.path
    if path.startswith(PREFIX):
        path = "/" + path.removeprefix(PREFIX).partition("/")[2]
    return path.startswith(api.PREFIX)


def _no_cell(request: Request, _error: Exception) -> Response:
    """Offer the same address in every cell, because old links name no cell."""
    here = console(request)
    names = ", ".join(here.cells)
    if _is_of_program(request):
        path = f"{PREFIX}NAME{request.url.path}"
        return _failed(
            request,
            404,
            f"the address names no cell; write {path}, where NAME is one of: {names}",
        )
    query = f"?{request.url.query}" if request.url.query else ""
    return here.page(
        "error.html",
        request,
        None,
        404,
        title="Choose a cell",
        text="This console shows several databases. Choose a cell.",
        elsewhere=[
            (cell, f"{PREFIX}{cell}{request.url.path}{query}") for cell in here.cells
        ],
    )


def _not_signed_in(request: Request, _error: Exception) -> Response:
    here = console(request)
    if not _is_of_program(request) and (here.access.tokens or here.access.provider):
        query = f"?{request.url.query}" if request.url.query else ""
        onward = request.url.path + query if request.method == "GET" else "/"
        return RedirectResponse(f"/sign-in?{urlencode({'next': onward})}", 303)
    text = "you are not signed in; send a bearer token, or sign in through the proxy"
    return _failed(request, 401, text)


def _of_database(request: Request, error: Exception) -> Response:
    """Turn a database error into a response without its DETAIL, which holds values of
    rows.
    """
    match error:
        case (
            psycopg.errors.InsufficientPrivilege()
            | psycopg.errors.ReadOnlySqlTransaction()
        ):
            text = "the database login of your role lacks this right; docs/roles.md lists the rights"
            return _failed(request, 403, text)
        case psycopg.errors.QueryCanceled():
            return _failed(
                request, 503, "the query took too long; narrow the filter, or try again"
            )
        case psycopg.OperationalError():
            logger.warning(
                "the database does not answer", extra={"sqlstate": error.sqlstate}
            )
            return _failed(
                request, 503, "the database does not answer; try again in a moment"
            )
        case psycopg.Error(
            sqlstate="RD001"
        ):  # raised by a Redrive function; its text is for users
            return _failed(
                request,
                409,
                error.diag.message_primary or "a rule of Redrive does not allow this",
            )
        case psycopg.Error():
            logger.error("the database refused", extra={"sqlstate": error.sqlstate})
            return _failed(
                request,
                400,
                f"the database rejected the request (SQLSTATE {error.sqlstate})",
            )
        case _:
            raise error


def _saying(status: int) -> Callable[[Request, Exception], Response]:
    return lambda request, error: _failed(request, status, str(error))


def _refused(request: Request, error: Exception) -> Response:
    refused = cast("Refused", error)
    return _failed(request, refused.status, refused.text)


def _http(request: Request, error: Exception) -> Response:
    found = cast("HTTPException", error)
    return _failed(request, found.status_code, str(found.detail))


def _invalid(request: Request, _error: Exception) -> Response:
    """Return 404 for a path of the wrong type, without repeating its value."""
    return _failed(
        request, 404, "there is no such page; the id of a job must be a number"
    )


def _broken(request: Request, error: Exception) -> Response:
    logger.error("a request failed", exc_info=error, extra={"path": request.url.path})
    return _failed(
        request, 500, "Redrive failed to answer; the log of the console has the error"
    )


def _crowded(request: Request, _error: Exception) -> Response:
    return _failed(request, 503, "too many requests run at once; try again in a moment")


HANDLERS: dict[Any, Callable[[Request, Exception], Response]] = {
    NoCell: _no_cell,
    NotSignedIn: _not_signed_in,
    Refused: _refused,
    Busy: _saying(409),
    Crowded: _crowded,
    HTTPException: _http,
    InvalidJob: _saying(400),
    RequestValidationError: _invalid,
    SchemaError: _saying(503),
    SettingsError: _saying(503),
    psycopg.Error: _of_database,
    Exception: _broken,
}


# ---------------------------------------------------------------------- the server


def listen(host: str, port: int) -> socket.socket:
    """Bind the console's port.

    Raises:
        SettingsError: the port cannot be bound, for example because it is in use.
    """
    try:
        return socket.create_server((host, port), backlog=128)
    except OSError as error:
        msg = f"REDRIVE_CONSOLE_PORT is {port}; it cannot be bound: {error.strerror}"
        raise SettingsError(msg) from None


class _Server(uvicorn.Server):
    """A server that ends event streams first, because shutdown waits for them."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        cast("Guard", self.config.app).stop()
        super().handle_exit(sig, frame)


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
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=10,
    )
    _Server(config).run(sockets=[listener])
