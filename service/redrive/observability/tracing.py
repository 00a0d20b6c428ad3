"""Spans by OpenTelemetry's messaging conventions (1.44): send, receive, process, settle.

An attempt's span links to the span that enqueued the job and, after a redrive, to the
attempt that died. These are links and not parents, because hours may lie between them.

Telemetry never delays a job. A thread exports spans from a bounded queue, and spans are
dropped if it is full.

The settings are OpenTelemetry's own: OTEL_EXPORTER_OTLP_ENDPOINT turns it on (with the
otlp extra), OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and so on. Attributes hold ids and
kinds, never payloads or messages of failures.
"""

import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from redrive.errors import SettingsError
from redrive.rules.rows import Fields

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanKind, Tracer

    from redrive.observability.span_queue import SpanQueue

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SYSTEM = "redrive"
MAX_LINKS = 32

ROLES = {
    "traceparent": "creation",
    "attempt_traceparent": "attempt before",
    "dead_traceparent": "dead attempt",
}
"""Header of a job -> name of an attempt's link to it."""


def is_asked_for() -> bool:
    """Return True if spans are to be exported."""
    return any(os.environ.get(name) for name in ENDPOINTS)


def set_up() -> "Tracing":
    """Export this process's spans from now on, including the spans of handlers.

    Raises:
        SettingsError: the otlp extra is not installed.
    """
    from importlib.metadata import version

    from opentelemetry import trace
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider

    spans = _exporting_queue()
    ours = Resource({"service.name": "redrive", "service.version": version("redrive")})
    provider = TracerProvider(
        resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False
    )
    provider.add_span_processor(spans)

    # The application may have set one of its own.
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)

    return Tracing(provider.get_tracer("redrive", version("redrive")), spans)


def _exporting_queue() -> "SpanQueue":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )

        from redrive.observability.span_queue import SpanQueue
    except ImportError as error:
        msg = f"{ENDPOINTS[0]} is set; exporting needs the otlp extra: pip install 'redrive[otlp]'"
        raise SettingsError(msg) from error

    # The exporter logs each failed export. The span queue logs them once a minute.
    exporter_log = logging.getLogger("opentelemetry.exporter")
    exporter_log.addHandler(logging.NullHandler())
    exporter_log.propagate = False

    return SpanQueue(OTLPSpanExporter())


class Tracing:
    """Source of the spans of one process."""

    def __init__(self, tracer: "Tracer", spans: "SpanQueue | None" = None) -> None:
        self._tracer = tracer
        self._spans = spans

    @property
    def is_overrun(self) -> bool:
        """Return True if new spans would be dropped, so that none should be made."""
        return self._spans is not None and self._spans.is_full

    @contextmanager
    def process(
        self, queue: str, kind: str, job: int, attempt: int, headers: Fields
    ) -> Iterator["Span"]:
        """Make an attempt's span the current one while its handler runs.

        Args:
            headers: headers of the job. The span links to the contexts in them.
        """
        from opentelemetry.trace import SpanKind

        attributes = _attributes("process", queue) | {
            "messaging.message.id": str(job),
            "redrive.kind": kind,
            "redrive.attempt": attempt,
        }
        links = _links((headers.get(name), role) for name, role in ROLES.items())

        with self._tracer.start_as_current_span(
            f"process {queue}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            # An exception's message may hold values of the payload.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    def call(
        self,
        operation: str,
        queue: str,
        seconds: float,
        count: int,
        created: Iterable[object] = (),
    ) -> None:
        """Record a round trip (receive or settle) that just ended, of `count` jobs.

        Args:
            operation: receive or settle.
            seconds: duration of the round trip.
            created: traceparent headers of some of the jobs; the span links to them.
        """
        from opentelemetry.trace import SpanKind

        ended = time.time_ns()
        attributes = _attributes(operation, queue) | {
            "messaging.batch.message_count": count
        }
        span = self._tracer.start_span(
            f"{operation} {queue}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=ended - int(seconds * 1e9),
            links=_links((header, "creation") for header in created),
        )
        span.end(ended)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a request to the console that has just been answered.

        Args:
            route: pattern of the path, without the values in it.
            seconds: duration of the request.
        """
        from opentelemetry.trace import SpanKind, StatusCode

        if self.is_overrun:
            return

        ended = time.time_ns()
        span = self._tracer.start_span(
            f"{method} {route}",
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
            },
            start_time=ended - int(seconds * 1e9),
        )
        if status >= 500:  # noqa: PLR2004 # a fault of the server
            span.set_status(StatusCode.ERROR)

        span.end(ended)

    def shut_down(self) -> None:
        """Export the queued spans, for at most a second."""
        if self._spans is not None:
            self._spans.shutdown()


def fail(span: "Span", error_class: str) -> None:
    """Mark an attempt's span as failed, by class only."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", error_class)
    span.set_status(Status(StatusCode.ERROR))


def traceparent(span: "Span") -> str:
    """Return a span's context as the W3C header."""
    context = span.get_span_context()
    ids = f"{context.trace_id:032x}-{context.span_id:016x}"
    return f"00-{ids}-{context.trace_flags:02x}"


def is_sampled(span: "Span") -> bool:
    """Return True if the trace is kept, so that it is worth linking to."""
    return span.get_span_context().trace_flags.sampled


def current_traceparent() -> str | None:
    """Return the context of the running attempt, or None if it is not traced."""
    if "opentelemetry.trace" not in sys.modules:
        return None

    from opentelemetry import trace

    span = trace.get_current_span()
    if span.get_span_context().is_valid:
        return traceparent(span)

    return None


@contextmanager
def sending(queue: str, kind: str, headers: Fields) -> Iterator[Fields]:
    """Yield the headers of a job to enqueue, with a send span's context if traced.

    This costs nothing in a process that has not loaded OpenTelemetry.
    """
    if "opentelemetry.trace" not in sys.modules or "traceparent" in headers:
        yield headers
        return

    from opentelemetry import trace

    if not trace.get_current_span().get_span_context().is_valid:
        yield headers
        return

    producer: SpanKind = trace.SpanKind.PRODUCER
    attributes = _attributes("send", queue) | {"redrive.kind": kind}
    tracer = trace.get_tracer("redrive")

    with tracer.start_as_current_span(
        f"send {queue}", kind=producer, attributes=attributes
    ) as span:
        yield {**headers, "traceparent": traceparent(span)}


def _attributes(operation: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def _links(found: Iterable[tuple[object, str]]) -> "list[Link]":
    """Return the links to all headers with a context, each with its role."""
    links = (_link(header, role) for header, role in found)
    return [link for link in links if link is not None]


def _link(header: object, role: str) -> "Link | None":
    """Return a link to the context in a traceparent header; None without a context."""
    from opentelemetry.trace import Link, SpanContext, TraceFlags

    parts = header.split("-") if isinstance(header, str) else []
    # A wrong number of parts is a ValueError, too.
    try:
        _, trace_id, span_id, flags = parts
        context = SpanContext(
            int(trace_id, 16),
            int(span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(int(flags, 16)),
        )
    except ValueError:
        return None

    if context.is_valid:
        return Link(context, {"redrive.link": role})

    return None
