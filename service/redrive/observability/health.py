"""The HTTP side of a process: /metrics, /livez, /readyz and nothing else."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app  # pyright: ignore[reportUnknownVariableType]

from redrive.errors import SettingsError

logger = logging.getLogger("redrive.http")

Checks = Callable[[], dict[str, str | None]]
"""Name of each check -> what is wrong, or None."""

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
"""A WSGI application: what it answers to an environment, by way of `start_response`."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True


class _Quiet(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its name in the base class
        """Probes and scrapes are not worth a line each."""


def serve(port: int, registry: CollectorRegistry, *, live: Checks, ready: Checks) -> int:
    """Serve on `port` of all addresses, in a thread of its own. Returns the port.

    Raises:
        SettingsError: the port cannot be served, e.g. because it is taken.
    """
    application = _application(registry, {"/livez": live, "/readyz": ready})
    try:
        server = make_server("", port, application, _Server, _Quiet)
    except OSError as error:
        msg = f"REDRIVE_HTTP_PORT is {port}; it cannot be served: {error.strerror}"
        raise SettingsError(msg) from None
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return int(server.server_port)


def _application(registry: CollectorRegistry, probes: Mapping[str, Checks]) -> Application:
    metrics = cast("Application", make_wsgi_app(registry))

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ.get("REQUEST_METHOD") not in {"GET", "HEAD"}:
            return _answer(start_response, "405 Method Not Allowed", "only GET\n")
        if path == "/metrics":
            return metrics(environ, start_response)
        if path not in probes:
            return _answer(start_response, "404 Not Found", "/metrics /livez /readyz\n")
        return _answer(start_response, *_probe(probes[path]))

    return application


def _probe(checks: Checks) -> tuple[str, str]:
    """The status and the body of a probe's answer."""
    faults = checks()
    body = "".join(f"{name}: {fault or 'ok'}\n" for name, fault in faults.items())
    return ("503 Service Unavailable" if any(faults.values()) else "200 OK"), body


def _answer(start_response: Any, status: str, body: str) -> list[bytes]:
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
    start_response(status, headers)
    return [body.encode()]
