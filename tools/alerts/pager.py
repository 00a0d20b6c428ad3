"""A stand-in for PagerDuty: it receives alerts and shows what a phone would show."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from redrive.rules.rows import Row

KEY = "0123456789abcdef0123456789abcdef"
"""Integration key that Alertmanager sends."""


class _Handler(BaseHTTPRequestHandler):
    """Request handler that passes on the path and the JSON body of each POST."""

    def __init__(self, take: Callable[[str, Row], None], *arguments: Any) -> None:
        self._take = take  # first, because the base class answers the request
        super().__init__(*arguments)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its name in the base class
        """Log nothing."""

    def do_POST(self) -> None:
        """Accept every request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._take(self.path, json.loads(body))

        self.send_response(202)
        self.end_headers()
        self.wfile.write(b'{"status": "success"}')


class Pager:
    """PagerDuty's Events API v2 and a ticket system's webhook, on one loopback port."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.events: list[Row] = []
        self.tickets: list[Row] = []

        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), partial(_Handler, self._take)
        )
        self.address = f"127.0.0.1:{self._server.server_port}"

    def _take(self, path: str, body: Row) -> None:
        with self.changed:
            (self.events if path == "/v2/enqueue" else self.tickets).append(body)
            self.changed.notify_all()

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Answer requests in a thread."""
        thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        thread.start()

        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def until(self, what: Callable[[], object], seconds: float) -> bool:
        """Wait until `what` returns True; return False if the time is up."""
        with self.changed:
            return bool(self.changed.wait_for(what, seconds))

    def sent(self, action: str, queue: str) -> list[Row]:
        """Return the events about one queue with one action, `trigger` or `resolve`."""
        return [
            event
            for event in self.events
            if event["event_action"] == action and queue in event["payload"]["summary"]
        ]

    def unresolved(self) -> set[str]:
        """Return the keys of incidents that were opened and not closed."""
        return self._keys("trigger") - self._keys("resolve")

    def _keys(self, action: str) -> set[str]:
        return {
            event["dedup_key"]
            for event in self.events
            if event["event_action"] == action
        }
