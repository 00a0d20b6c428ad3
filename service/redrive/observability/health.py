"""The HTTP side of a process: /metrics, /livez, /readyz and nothing else.

One request a connection, and an end to both whatever the other side does: probes are answered while
others hold connections open, and the process keeps its descriptors for its work. What HTTP is, h11
knows; a server for applications, most of it its command line, would be 2 MiB of each worker.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import h11
from prometheus_client import CollectorRegistry, make_wsgi_app  # pyright: ignore[reportUnknownVariableType]

from redrive.errors import SettingsError

logger = logging.getLogger("redrive.http")

MAX_CONNECTIONS = 100
MAX_HEADER_BYTES = 16_384
MAX_SCRAPES = 4
CONNECTION_SECONDS = 30.0
"""From its first byte to its last: a scrape's queries have a statement timeout well below."""

ACCEPTED_AT_ONCE = 64
"""Descriptors that a flood can take before the first of its connections is looked at."""

PLAIN = (("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store"))

Checks = Callable[[], dict[str, str | None]]
"""Name of each check -> what is wrong, or None."""

Answer = tuple[int, tuple[tuple[str, str], ...], bytes]
"""Status, headers and body."""


class _Request(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]

    @classmethod
    def of(cls, event: h11.Request) -> "_Request":
        path, _, query = event.target.decode("latin-1").partition("?")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return cls(event.method.decode("latin-1"), path, query, headers)


class _Connection(asyncio.Protocol):
    """A connection that ends in time, and gives way when there are too many."""

    def __init__(self, application: "_Application", crowd: "set[_Connection]") -> None:
        self._application = application
        self._crowd = crowd
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; past the limit the oldest goes that has not asked yet, or else the oldest."""
        self._transport = cast("asyncio.Transport", transport)
        loop = asyncio.get_running_loop()
        self.since = loop.time()
        self._deadline = loop.call_later(CONNECTION_SECONDS, self._transport.abort)
        self._crowd.add(self)
        if len(self._crowd) > MAX_CONNECTIONS:
            slowest = min(self._crowd, key=lambda one: (one.has_asked, one.since))
            slowest.give_way()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 # of the interface
        """End."""
        self._deadline.cancel()
        self._crowd.discard(self)

    def give_way(self) -> None:
        """End now, for another."""
        self._crowd.discard(self)
        self._transport.abort()

    @property
    def has_asked(self) -> bool:
        """Whether the head of a request has come."""
        return self._answering is not None

    def data_received(self, data: bytes) -> None:
        """Read on, until the head of a request has come; a body or another one is not looked at."""
        if self.has_asked or self._transport.is_closing():
            return
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._send(error.error_status_hint, PLAIN, b"not a request\n")
            return
        if isinstance(event, h11.Request):
            self._answering = asyncio.get_running_loop().create_task(self._answer(event))

    async def _answer(self, event: h11.Request) -> None:
        request = _Request.of(event)
        try:
            status, headers, body = await self._application.answer(request)
        except Exception:
            logger.exception("a request failed", extra={"path": request.path})
            status, headers, body = 500, PLAIN, b"it failed; the log says why\n"
        self._send(status, headers, body, is_shown=request.method != "HEAD")

    def _send(
        self,
        status: int,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        *,
        is_shown: bool = True,
    ) -> None:
        """Send an answer, which ends the connection."""
        if self._transport.is_closing():
            return
        told = (*headers, ("content-length", str(len(body))), ("connection", "close"))
        head = self._http.send(h11.Response(status_code=status, headers=list(told)))
        self._transport.write((head or b"") + (body if is_shown else b""))
        self._transport.close()


def serve(port: int, registry: CollectorRegistry, *, live: Checks, ready: Checks) -> int:
    """Serve on `port` of all addresses, in a thread of its own. Returns the port.

    Raises:
        SettingsError: the port cannot be served, e.g. because it is taken.
    """
    try:
        listener = socket.create_server(("", port), backlog=ACCEPTED_AT_ONCE)
    except OSError as error:
        msg = f"REDRIVE_HTTP_PORT is {port}; it cannot be served: {error.strerror}"
        raise SettingsError(msg) from None
    application = _Application(registry, {"/livez": live, "/readyz": ready})
    threading.Thread(
        target=asyncio.run, args=(_serve(listener, application),), name="http", daemon=True
    ).start()
    return int(listener.getsockname()[1])


async def _serve(listener: socket.socket, application: "_Application") -> None:
    """Answer for ever: it ends with the process."""
    crowd = set[_Connection]()
    loop = asyncio.get_running_loop()
    await loop.create_server(
        lambda: _Connection(application, crowd), sock=listener, backlog=ACCEPTED_AT_ONCE
    )
    await loop.create_future()


class _Application:
    """What is answered: probes at once, scrapes from threads, a few at a time."""

    def __init__(self, registry: CollectorRegistry, probes: Mapping[str, Checks]) -> None:
        self._metrics = cast("Any", make_wsgi_app(registry))
        self._probes = probes
        self._scrapes = 0

    async def answer(self, request: _Request) -> Answer:
        """What is said to a request. Raises whatever a check or a scrape does."""
        if request.method not in {"GET", "HEAD"}:
            return 405, PLAIN, b"only GET\n"
        if request.path == "/metrics":
            return await self._scraped(request)
        if request.path not in self._probes:
            return 404, PLAIN, b"/metrics /livez /readyz\n"
        return _probed(self._probes[request.path])

    async def _scraped(self, request: _Request) -> Answer:
        """The figures, by a thread: they ask the database, and probes must not wait for it."""
        if self._scrapes >= MAX_SCRAPES:
            return 503, PLAIN, b"too many scrapes at once\n"
        self._scrapes += 1
        try:
            return await _in_thread(lambda: _exposed(self._metrics, request))
        finally:
            self._scrapes -= 1


async def _in_thread(work: Callable[[], Answer]) -> Answer:
    """What `work` returns or raises; no executor, whose threads would hold up the process's end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Answer] = loop.create_future()

    def run() -> None:
        try:
            loop.call_soon_threadsafe(done.set_result, work())
        except Exception as error:  # noqa: BLE001 # raised where it is awaited
            loop.call_soon_threadsafe(done.set_exception, error)

    threading.Thread(target=run, name="scrape", daemon=True).start()
    return await done


def _exposed(metrics: Any, request: _Request) -> Answer:
    """The library's own answer to a scrape: form and compression as they were asked for."""
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/metrics",
        "QUERY_STRING": request.query,
        "HTTP_ACCEPT": request.headers.get("accept", ""),
        "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
    }
    begun: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]]) -> None:
        begun.extend((int(status.split(maxsplit=1)[0]), tuple(headers)))

    body = b"".join(metrics(environ, start_response))
    status, headers = begun
    return status, headers, body


def _probed(checks: Checks) -> Answer:
    faults = checks()
    body = "".join(f"{name}: {fault or 'ok'}\n" for name, fault in faults.items())
    return (503 if any(faults.values()) else 200), PLAIN, body.encode()
