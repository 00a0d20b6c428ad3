"""Guard of every request: body size, rate, host name, and security headers.

It wraps the application as plain ASGI, so it also guards the framework's own answers.
"""

import asyncio
import time
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from starlette.requests import cookie_parser

from redrive.extras.console.security.access import COOKIE, IDLE_SECONDS, Access, cookie
from redrive.observability.metrics import Counter, Histogram

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = dict[bytes, bytes]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 65_536
BODY_SECONDS = 10.0
REQUESTS_A_MINUTE = 600
"""Limit per person, or per address if nobody is signed in.

Behind an Ingress, all users share an address. A proxy that signs users in must limit
them itself.
"""
MAX_ADDRESSES = 10_000
SERVER_ERROR = 500
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
PROBES = ("/livez", "/readyz", "/metrics")

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Forbid inline code, content from other sites, and frames."""

HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    # The next user of the browser must not see the page.
    (b"cache-control", b"no-store"),
)
HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")

TOO_LARGE = 413, f"the body is larger than {MAX_BODY_BYTES} bytes"
TOO_SLOW = 408, f"the body took longer than {BODY_SECONDS:g} seconds"
TOO_OFTEN = 429, f"more than {REQUESTS_A_MINUTE} requests a minute; wait and try again"


class Window:
    """Counts requests per key and minute; dropping whole minutes keeps it small."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._until = 0.0
        self._counts = Counts[str]()

    def is_full(self, key: str) -> bool:
        """Count a request; return True if it exceeds the limit."""
        now = time.monotonic()
        if now >= self._until or len(self._counts) > MAX_ADDRESSES:
            self._counts.clear()
            self._until = now + 60.0

        self._counts[key] += 1
        return self._counts[key] > self._most


class Guard:
    """The outermost ASGI layer.

    Args:
        access: ways to sign in. Requests through its proxy have no limit. If nobody
            signs in, only names of this machine are allowed as the host: another site
            could otherwise reach it by a name of its own.
        trace: function called after each response: method, page, status, seconds.
    """

    def __init__(  # what stands around one application
        self,
        app: App,
        access: Access,
        requests: Histogram,
        sign_ins: Counter,
        *,
        trace: Callable[[str, str, int, float], None] | None = None,
    ) -> None:
        self._app = app
        self._access = access
        self._requests = requests
        self._sign_ins = sign_ins
        self._trace = trace
        self._window = Window(REQUESTS_A_MINUTE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check and answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        # Refusals are sent this way, too: they are counted, and have our headers.
        answer = partial(self._answer, scope, send, time.monotonic())
        refusal = self._refusal(scope)
        if refusal is not None:
            await _say(answer, *refusal)
            return

        # A body that is slow or has no end is refused before the application runs.
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(receive)
        except TimeoutError:
            await _say(answer, *TOO_SLOW)
            return

        if body is None:
            await _say(answer, *TOO_LARGE)
            return

        await self._app(scope, _again(body, receive), answer)

    async def _answer(
        self, scope: Scope, send: Send, began: float, event: dict[str, Any]
    ) -> None:
        """Send an event of the response; count it, and add headers, if it begins."""
        if event["type"] == "http.response.start":
            self._count(scope, event["status"], time.monotonic() - began)
            event = event | {"headers": _guarded(scope, event["headers"])}
        await send(event)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a response; one thread does this, so no count is lost."""
        page = str(getattr(scope.get("route"), "path", "none"))
        self._requests.observe((page, str(status)), [seconds])

        sign_in = _state(scope, "sign_in")
        # A sign-in that failed by an error here was neither accepted nor refused.
        if sign_in and status < SERVER_ERROR:
            self._sign_ins.add((sign_in,))

        if self._trace and page not in PROBES:
            self._trace(scope["method"], page, status, seconds)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and text if the request is refused; None if it may pass."""
        headers = dict[bytes, bytes](scope["headers"])
        if not self._is_known_host(headers):
            return 421, "the host name is not allowed; open the demo as localhost"
        if _is_too_large(headers):
            return TOO_LARGE
        if self._is_too_often(scope, headers):
            return TOO_OFTEN

        return None

    def _is_known_host(self, headers: Headers) -> bool:
        if self._access.everybody is None:
            return True

        name, *_ = _text(headers, b"host").rsplit(":", 1)

        return name in LOOPBACK_NAMES

    def _is_too_often(self, scope: Scope, headers: Headers) -> bool:
        """Count the request of a person, or of an address if nobody is signed in."""
        if scope["path"] in PROBES:
            return False

        address, *_ = scope.get("client") or ("",)
        if self._access.is_proxy(address):
            return False

        cookies = cookie_parser(_text(headers, b"cookie"))
        # Only valid ones count. A client could invent another for each request.
        person = self._access.person(
            _text(headers, b"authorization"), cookies.get(COOKIE)
        )

        return self._window.is_full(person or address)


def _text(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def _is_too_large(headers: Headers) -> bool:
    length = headers.get(b"content-length", b"0")
    # 20 digits are enough to compare. int() fails if there are thousands.
    return not length.isdigit() or int(length[:20]) > MAX_BODY_BYTES


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
        # After the body, the application can only learn that the client disconnects.
        return events.pop() if events else await receive()

    return next_event


def _guarded(scope: Scope, headers: Any) -> list[tuple[bytes, bytes]]:
    """Add the security headers that a response does not have."""
    given = {bytes(name).lower() for name, _ in headers}
    # A page may have its own. The cookie of a sign-out takes precedence.
    missing = [header for header in _our_headers(scope) if header[0] not in given]
    return [*headers, *missing]


def _our_headers(scope: Scope) -> Iterator[tuple[bytes, bytes]]:
    yield from HEADERS
    if scope.get("scheme") == "https":
        yield HTTPS_ONLY
    if renewed := _state(scope, "renewed"):
        yield b"set-cookie", cookie(COOKIE, renewed, IDLE_SECONDS).encode()


def _state(scope: Scope, name: str) -> Any:
    """Return a value that a page stored with its request; None if it did not."""
    return scope.get("state", {}).get(name)


async def _say(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
