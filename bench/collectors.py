"""Where spans go: nowhere, to a collector that takes them, and into black holes."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Taker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # as http.server calls it
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextlib.contextmanager
def _takes() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Taker)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _never_answers() -> Iterator[str]:
    """Connections are accepted by the kernel and served by nobody."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def _drops() -> Iterator[str]:
    """The backlog is full, so packets that would connect are dropped, as by a firewall."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(
            socket.create_server(("127.0.0.1", 0), backlog=0)
        )
        address = listener.getsockname()
        while True:
            try:
                stack.enter_context(socket.create_connection(address, 0.5))
            except TimeoutError:
                break
        yield f"http://127.0.0.1:{address[1]}"


COLLECTORS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "tracing off": lambda: contextlib.nullcontext(""),
    "collector takes them": _takes,
    "collector never answers": _never_answers,
    "collector drops packets": _drops,
}
