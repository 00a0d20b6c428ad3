"""A collector for OTLP over HTTP: it decodes each request, or never answers."""

import contextlib
import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Proto


class Span(NamedTuple):
    """What was sent of one."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    links: list[tuple[str, str]]  # (span, role)
    status: int
    service: str


class Collector:
    """Spans in the order they came."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.bodies = b""
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # named so by its base class
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    collector.take(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, body: bytes) -> None:
        """Decode a request."""
        request = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.bodies += body
            for resource in request.resource_spans:
                service = _values(resource.resource.attributes)["service.name"]
                for scope in resource.scope_spans:
                    self.spans += [_span(span, service) for span in scope.spans]
            self._changed.notify_all()

    def wait_for(
        self, condition: Callable[["Collector"], Any], seconds: float = 180
    ) -> Any:
        """Until it holds of what came."""
        with self._changed:
            found = self._changed.wait_for(lambda: condition(self), seconds)
        assert found, sorted(span.name for span in self.spans)
        return found

    def of(self, name: str, **attributes: Any) -> list[Span]:
        """Spans by name and attributes (dots written as double underscores)."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return [
            span
            for span in self.spans
            if span.name == name and wanted.items() <= span.attributes.items()
        ]


def _values(attributes: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


def _span(span: Proto, service: str) -> Span:
    links = [
        (link.span_id.hex(), _values(link.attributes)["redrive.link"])
        for link in span.links
    ]
    return Span(
        span.name,
        Proto.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _values(span.attributes),
        links,
        span.status.code,
        service,
    )


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """One that answers."""
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        thread.join()
        collector.server.server_close()


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """One that accepts and never answers: the backlog of a listener that nobody serves."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
