"""Guard of every request: body size, rate, host name, and security headers.

Plain ASGI, around the application: it also holds for what the framework answers by
    itself.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import cookie_parser

from redrive.console.security.access import COOKIE, IDLE_SECONDS, cookie
from redrive.observability.metrics import Counter, Histogram

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 65_536
REQUESTS_A_MINUTE = 600
"""Limit per session, or per address without a session. Behind an Ingress, all users
share an address. A proxy that signs users in must limit them itself."""
MAX_ADDRESSES = 10_000
SERVER_ERROR = 500
PROBES = ("/livez", "/readyz", "/metrics")

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Forbid inline code, content from other sites, and frames."""

HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)


class Window:
    """Counts requests per key and minute; dropping whole windows keeps it small."""

    def __init__(self, most: int, seconds: float = 60.0) -> None:
        self._most, self._seconds = most, seconds
        self._until = 0.0
        self._counts: dict[str, int] = {}

    def is_full(self, key: str, now: float | None = None) -> bool:
        """Count a request; return True if it exceeds the limit."""
        now = time.monotonic() if now is None else now
        if now >= self._until or len(self._counts) > MAX_ADDRESSES:
            self._counts.clear()
            self._until = now + self._seconds
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key] > self._most


class Guard:
    """The outermost ASGI layer.

    Args:
        hosts: names by which it may be asked for; None = any. On this machine without a
            sign-in another site could otherwise come in by a name of its own that leads
            here.
        unlimited: function that returns True for the address of a trusted proxy.
        session: function that returns the session in a cookie, or None.
        stop: function that ends all streams.
        trace: function called after each response: method, page, status, seconds.
    """

    def __init__(  # noqa: PLR0913 # what stands around one application
        self,
        app: App,
        requests: Histogram,
        sign_ins: Counter,
        *,
        hosts: frozenset[str] | None = None,
        unlimited: Callable[[str], bool] = lambda _: False,
        session: Callable[[str | None], str | None] = lambda _: None,
        stop: Callable[[], None] = lambda: None,
        trace: Callable[[str, str, int, float], None] = lambda *_: None,
    ) -> None:
        self.stop = stop
        self._trace = trace
        self._app, self._hosts, self._unlimited = app, hosts, unlimited
        self._session = session
        self._window = Window(REQUESTS_A_MINUTE)
        self._requests, self._sign_ins = requests, sign_ins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check and answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        began = time.monotonic()

        async def answer(event: dict[str, Any]) -> None:
            if event["type"] == "http.response.start":
                self._count(scope, event["status"], time.monotonic() - began)
                event = event | {"headers": _guarded(scope, event["headers"])}
            await send(event)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _say(answer, *refusal)
            return
        body = await _body(receive)
        if body is None:
            await _say(answer, 413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        else:
            await self._app(scope, _again(body, receive), answer)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a response; one thread does this, so no count is lost."""
        page, outcome = _page(scope), scope.get("state", {}).get("sign_in")
        self._requests.observe((page, str(status)), [seconds])
        if outcome and status < SERVER_ERROR:
            self._sign_ins.add((outcome,))
        if page not in PROBES:
            self._trace(scope["method"], page, status, seconds)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and text if the request is refused; None if it may pass."""
        headers = dict[bytes, bytes](scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").rsplit(":", 1)[0]
        if self._hosts is not None and host not in self._hosts:
            return 421, "the host name is not allowed; open the demo as localhost"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > MAX_BODY_BYTES:
            return 413, f"the body is larger than {MAX_BODY_BYTES} bytes"
        peer = (scope.get("client") or ("",))[0]
        if scope["path"] in PROBES or self._unlimited(peer):
            return None
        cookies = cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))
        if self._window.is_full(self._session(cookies.get(COOKIE)) or peer):
            return (
                429,
                f"more than {REQUESTS_A_MINUTE} requests a minute; wait and try again",
            )
        return None


async def _body(receive: Receive) -> bytes | None:
    """Read the whole body; return None if it exceeds the limit."""
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not event.get("more_body"):
            return body


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that replays the body of a request that was already read."""
    events = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_event() -> dict[str, Any]:
        return events.pop() if events else await receive()

    return next_event


def _guarded(scope: Scope, headers: Any) -> list[tuple[bytes, bytes]]:
    given = {bytes(name).lower() for name, _ in headers}
    more = [(n.encode(), v.encode()) for n, v in HEADERS if n.encode() not in given]
    if (
        b"cache-control" not in given
    ):  # the next user of the browser must not see the page
        more.append((b"cache-control", b"no-store"))
    renewed = scope.get("state", {}).get("renewed")
    if renewed and b"set-cookie" not in given:  # a sign-out takes precedence
        more.append((b"set-cookie", cookie(COOKIE, renewed, IDLE_SECONDS).encode()))
    if scope.get("scheme") == "https":
        more.append((b"strict-transport-security", b"max-age=31536000"))
    return [*headers, *more]


def _page(scope: Scope) -> str:
    """Return the route pattern as a label, without the values in the path."""
    route = scope.get("route")
    return str(getattr(route, "path", "none"))


async def _say(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
