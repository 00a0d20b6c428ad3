"""A stand-in for PagerDuty: takes what Alertmanager sends, and says what a phone would show."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "0123456789abcdef0123456789abcdef"
"""The integration key it is sent."""


class _Handler(BaseHTTPRequestHandler):
    """Passes on the path and the JSON body of each POST."""

    def __init__(self, take: Callable[[str, dict[str, Any]], None], *arguments: Any) -> None:
        self._take = take  # first: the base class answers the request at once
        super().__init__(*arguments)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its name in the base class
        """Say nothing."""

    def do_POST(self) -> None:
        """Accept everything."""
        self._take(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(202)
        self.end_headers()
        self.wfile.write(b'{"status": "success"}')


class Pager:
    """PagerDuty's Events API v2 and the webhook of a ticket system, on one port of loopback."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.events: list[dict[str, Any]] = []
        self.tickets: list[dict[str, Any]] = []
        self._read = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self._take))
        self.address = f"127.0.0.1:{self._server.server_port}"

    def _take(self, path: str, body: dict[str, Any]) -> None:
        with self.changed:
            (self.events if path == "/v2/enqueue" else self.tickets).append(body)
            self.changed.notify_all()

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Answer, from a thread."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def until(self, what: Callable[[], object], seconds: float) -> bool:
        """Wait until `what` holds; False when it does not in time."""
        with self.changed:
            return bool(self.changed.wait_for(what, seconds))

    def sent(self, action: str, queue: str) -> list[dict[str, Any]]:
        """The events of one action, `trigger` or `resolve`, about one queue."""
        return [
            event
            for event in self.events
            if event["event_action"] == action and queue in event["payload"]["summary"]
        ]

    def news(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        news = self.events[self._read :]
        self._read += len(news)
        return news

    def unresolved(self) -> set[str]:
        """Keys of incidents that were opened and not closed."""
        keys: dict[str, set[str]] = {"trigger": set(), "resolve": set()}
        for event in self.events:
            keys[event["event_action"]].add(event["dedup_key"])
        return keys["trigger"] - keys["resolve"]


def as_shown(event: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of an event by name, as a phone shows a page, or the incident
    that ended.
    """
    payload = event["payload"]
    summary, key = ("summary", payload["summary"]), ("dedup key", event["dedup_key"])
    if event["event_action"] == "resolve":
        return [summary, key]
    details = payload["custom_details"]["firing"].strip()
    links = [(link["text"].lower(), link["href"]) for link in event.get("links", ())]
    return [summary, ("severity", payload["severity"]), ("details", details), *links, key]
