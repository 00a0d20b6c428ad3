"""An HTTP endpoint that behaves as the path says; a real socket, so that it can also misbehave."""

import functools
import gzip
import socket
import ssl
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

SECRETS = (
    b'{"error": "cannot log in with password=Zx9-canary-77-f as shop",'
    b' "password": "Zx9-canary-77-g",'
    b' "request": {"api_key": "Zx9-canary-77-h", "secrets": [{"of": ["Zx9-canary-77-i"]}]},'
    b' "headers": {"Authorization": "Bearer Zx9-canary-77-j",'
    b' "Cookie": "session=Zx9-canary-77-k; lang=en"},'
    b' "debug": "postgresql://shop:Zx9-canary-77-l@db/shop, access_token: Zx9-canary-77-m,'
    b' you sent Zx9-canary-77-n with Zx9-canary-77-r"}'
)
"""A provider that tells everything when it fails; the last of it was in payload and header."""

LAYERS = 5


@functools.cache
def bomb() -> bytes:
    """Return a kilobyte that is 100 MB once it is inflated, layer by layer."""
    return functools.reduce(
        lambda inner, _: gzip.compress(inner), range(LAYERS), bytes(100_000_000)
    )


class Endpoint:
    """Serves each connection in a thread; keeps what it was sent."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        self.port = self._server.getsockname()[1]
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def of(self, path: str) -> list[tuple[dict[str, str], bytes]]:
        """Headers and body of the requests for a path."""
        return [
            (headers, body) for found, headers, body in self.requests if found == path
        ]

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(
                target=self._serve, args=(connection,), daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        # A client that hangs up, or does not like what it sees, is no fault of a test's.
        with connection, suppress(OSError):
            if self._tls is None:
                self._talk(connection)
            else:
                with self._tls.wrap_socket(connection, server_side=True) as secured:
                    self._talk(secured)

    def _talk(self, connection: socket.socket) -> None:
        file = connection.makefile("rb")
        while len(line := file.readline().split()) > 1:  # no end in the middle of it
            path = line[1].decode().lstrip("/")
            headers: dict[str, str] = {}
            while (header := file.readline().strip()) != b"":
                name, _, value = header.decode("latin-1").partition(": ")
                headers[name.lower()] = value
            body = file.read(int(headers.get("content-length", 0)))
            self.requests.append((path, headers, body))
            if not self._answer(connection, path, len(self.of(path))):
                return

    def _answer(self, connection: socket.socket, path: str, count: int) -> bool:
        """Answer one request. Returns whether the connection stays open."""
        first, _, rest = path.partition("/")
        more: dict[str, Any] = {}
        body = b'{"error": "no", "password": "Zx9-canary-77"}'
        match first:
            case "metrics":  # a Prometheus that knew this port as another program's
                return False
            case "reset":
                connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
                )
                return False
            case "garbage":
                connection.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
                return False
            case "slow":
                time.sleep(20)
                return False
            case "drip":
                connection.sendall(b"HTTP/1.1 500 x\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(100):
                    connection.sendall(b"x")
                    time.sleep(0.2)
                return False
            case "secrets":
                body = SECRETS
            case "big":
                body = b"x" * 10_000_000
            case "bomb":
                body = bomb()
                more["Content-Encoding"] = ", ".join(["gzip"] * LAYERS)
            case "after":
                more["Retry-After"] = rest
            case "after-date":
                more["Retry-After"] = format_datetime(
                    datetime.now(UTC) + timedelta(seconds=int(rest)), usegmt=True
                )
            case "redirect":
                more["Location"] = self.url("200")
        status = {
            "secrets": 500,
            "bomb": 500,
            "after": 429,
            "after-date": 503,
            "redirect": 302,
        }.get(first, int(rest or 200) if first == "big" else 0)
        status = status or int(first)
        if rest == "then-200" and count > 1:
            status = 200
        head = f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in more.items())
        connection.sendall(head.encode() + b"\r\n" + body)
        return True


@contextmanager
def endpoint(tls: ssl.SSLContext | None = None) -> Any:
    served = Endpoint(tls)
    try:
        yield served
    finally:
        served.close()
