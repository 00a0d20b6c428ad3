"""HTTP server of a process: /metrics, /livez and /readyz.

A connection serves one request and ends after a limited time. So probes are answered
while other clients hold connections open, and the process keeps descriptors for its
work.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import uvicorn
from prometheus_client import CollectorRegistry, make_wsgi_app  # pyright: ignore[reportUnknownVariableType]
from uvicorn.protocols.http.h11_impl import H11Protocol

from redrive.errors import SettingsError

logger = logging.getLogger("redrive.http")

MAX_CONNECTIONS = 100
MAX_HEADER_BYTES = 16_384
MAX_SCRAPES = 4
CONNECTION_SECONDS = 30.0
"""Maximum life of a connection. Statement timeouts of a scrape are much shorter."""

ACCEPTED_AT_ONCE = 64
"""Largest number of connections that wait to be accepted."""

PLAIN = (("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store"))


class Remark(str):
    """Answer of a check that found no fault, but something worth to know."""

    __slots__ = ()


Checks = Callable[[], dict[str, str | None]]
"""Name of each check -> what is wrong, a Remark, or None."""

Scope = dict[str, Any]
Answer = tuple[int, tuple[tuple[str, str], ...], bytes]
"""Status, headers and body."""


class Connection(H11Protocol):
    """Connection that ends in time, and is closed if there are too many.

    Attributes:
        most: largest number of connections of the server.
    """

    most = MAX_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin, and close another connection if there are too many.

        That is the oldest one without a request, or else the oldest one.
        """
        super().connection_made(transport)
        self.since = self.loop.time()
        self.deadline = self.until_deadline()

        if len(self.connections) > self.most:
            crowd = cast("set[Connection]", self.connections)
            slowest = min(crowd, key=Connection.turn)
            # Aborted, it would stay in the set until a later step of the loop.
            crowd.discard(slowest)
            slowest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.deadline.cancel()
        super().connection_lost(exc)

    def until_deadline(self) -> asyncio.TimerHandle:
        """Return the timer that ends the connection."""
        return self.loop.call_later(CONNECTION_SECONDS, self.transport.abort)

    def turn(self) -> tuple[bool, float]:
        """Return the sort key for closing: without a request first, then the oldest."""
        return self.is_asking, self.since

    @property
    def is_asking(self) -> bool:
        """Return True while a request is answered."""
        cycle = cast("Any", self.cycle)
        return cycle is not None and not cycle.response_complete


class _Server(uvicorn.Server):
    """Server that sleeps while there is no request, and ends with the process."""

    async def main_loop(self) -> None:
        """Wait forever. The library would check ten times a second if it should stop."""
        await asyncio.get_running_loop().create_future()


def listen(port: int, setting: str, host: str = "") -> socket.socket:
    """Bind a port to serve HTTP on.

    Args:
        port: 0 = a free one.
        setting: name of the setting that gives the port, for the error.
        host: "" = all addresses.

    Raises:
        SettingsError: the port cannot be served, e.g. because it is taken.
    """
    try:
        listener = socket.create_server((host, port), backlog=ACCEPTED_AT_ONCE)
    except OSError as error:
        msg = f"{setting} is {port}; it cannot be served: {error.strerror}"
        raise SettingsError(msg) from None

    # An answer goes out as headers and body. Without this, the body waits until the
    # client acknowledges the headers, which takes 40 ms. asyncio does not set it on
    # connections of a listener that somebody else made.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(
    port: int, registry: CollectorRegistry, *, live: Checks, ready: Checks
) -> int:
    """Serve on `port` of all addresses, in a thread of its own; return the port.

    Args:
        port: 0 = a free one.
        registry: source of /metrics.
        live: checks of /livez; with a fault, the process should be restarted.
        ready: checks of /readyz.

    Raises:
        SettingsError: the port cannot be served, e.g. because it is taken.
    """
    listener = listen(port, "REDRIVE_HTTP_PORT")
    config = uvicorn.Config(
        _Application(registry, {"/livez": live, "/readyz": ready}),
        http=Connection,
        loop="asyncio",
        ws="none",
        lifespan="off",
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        log_config=None,
        log_level="critical",  # a stranger's bad request is not worth a line
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )
    run = partial(_Server(config).run, sockets=[listener])
    threading.Thread(target=run, name="http", daemon=True).start()

    return int(listener.getsockname()[1])


class _Application:
    """Handler of requests: it answers probes at once, and scrapes in a few threads."""

    def __init__(
        self, registry: CollectorRegistry, probes: Mapping[str, Checks]
    ) -> None:
        self._metrics = cast("Any", make_wsgi_app(registry))
        self._probes = probes
        self._scrapes = 0

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer one request; the connection ends with it."""
        del receive  # no request that is answered has a body
        try:
            status, headers, body = await self._answer(scope)
        except Exception:
            logger.exception("a request failed", extra={"path": scope["path"]})
            status = 500
            headers = PLAIN
            body = b"it failed; the log says why\n"

        of_body = (("content-length", str(len(body))), ("connection", "close"))
        start = {
            "type": "http.response.start",
            "status": status,
            "headers": [(n.encode(), value.encode()) for n, value in headers + of_body],
        }
        await send(start)
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope) -> Answer:
        if scope["method"] not in {"GET", "HEAD"}:
            return 405, PLAIN, b"only GET\n"
        if scope["path"] == "/metrics":
            return await self._scraped(scope)
        if scope["path"] not in self._probes:
            return 404, PLAIN, b"/metrics /livez /readyz\n"

        return _probed(self._probes[scope["path"]])

    async def _scraped(self, scope: Scope) -> Answer:
        """Return the figures from a thread, because probes must not wait for them."""
        if self._scrapes >= MAX_SCRAPES:
            return 503, PLAIN, b"too many scrapes at once\n"

        self._scrapes += 1
        try:
            return await _in_thread(lambda: _exposed(self._metrics, scope))
        finally:
            self._scrapes -= 1


async def _in_thread(work: Callable[[], Answer]) -> Answer:
    """Run `work` in a thread.

    The threads of an executor would delay the exit of the process.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Answer] = loop.create_future()

    def run() -> None:
        try:
            loop.call_soon_threadsafe(done.set_result, work())
        except Exception as error:  # noqa: BLE001 # raised where it is awaited
            loop.call_soon_threadsafe(done.set_exception, error)

    threading.Thread(target=run, name="scrape", daemon=True).start()
    return await done


def _exposed(metrics: Any, scope: Scope) -> Answer:
    """Return the library's answer to a scrape, in the requested form."""
    environ = _environ(scope)
    begun: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]]) -> None:
        code, _, _ = status.partition(" ")
        begun.extend((int(code), tuple(headers)))

    body = b"".join(metrics(environ, start_response))
    status, headers = begun

    return status, headers, body


def _environ(scope: Scope) -> dict[str, str]:
    """Return the WSGI environment that the library reads."""
    headers = dict(scope["headers"])
    values = {
        "QUERY_STRING": scope["query_string"],
        "HTTP_ACCEPT": headers.get(b"accept", b""),
        "HTTP_ACCEPT_ENCODING": headers.get(b"accept-encoding", b""),
    }
    # WSGI takes header values in this encoding.
    decoded = {name: value.decode("latin-1") for name, value in values.items()}

    return {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics"} | decoded


def _probed(checks: Checks) -> Answer:
    faults = checks()
    text = "".join([f"{name}: {_answer(fault)}\n" for name, fault in faults.items()])

    is_ready = all(_is_fine(fault) for fault in faults.values())
    return 200 if is_ready else 503, PLAIN, text.encode()


def _is_fine(fault: str | None) -> bool:
    return not fault or isinstance(fault, Remark)


def _answer(fault: str | None) -> str:
    if not fault:
        return "ok"

    return f"ok; {fault}" if _is_fine(fault) else fault
