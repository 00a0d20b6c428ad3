"""Bounded queue of spans before export; OpenTelemetry's own processor flushes without a
limit.
"""

import logging
import threading
import time
from collections import deque
from typing import Any

from opentelemetry.sdk.trace import SpanProcessor

logger = logging.getLogger("redrive.tracing")

QUEUED_SPANS = 2048
BATCH_SPANS = 512
PROBE_SPANS = 64
"""Spans that are queued for a collector that has not taken any yet, or not the last
ones.
"""

EXPORT_SECONDS = 1.0
LAST_EXPORT_SECONDS = 1.0
"""How long the end of a process waits for what is queued."""

REPORT_SECONDS = 60.0


class SpanQueue(SpanProcessor):
    """A span processor that never blocks and never waits for long.

    Spans that find it full are dropped and counted; so are those of an export that
    failed. Its capacity is small until an export has succeeded, and again after one
    that failed: a collector that is gone must not cost spans that go nowhere.
    """

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self._spans: deque[Any] = deque()
        self._wake = threading.Event()
        self._ending = False
        self._capacity = PROBE_SPANS
        self.dropped = 0
        self._reported, self._reported_at = 0, float("-inf")
        self.is_full = False
        """Whether the collector is gone or too slow; asked before every job, so kept as
        a flag.
        """
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Do nothing: spans are queued when they end."""

    def on_end(self, span: Any) -> None:
        """Queue a sampled span, or drop it when the queue is full."""
        if not span.context.trace_flags.sampled:
            return
        queued = len(self._spans)
        self.is_full = queued >= self._capacity
        if self.is_full or self._ending:
            self.dropped += 1
            return
        self._spans.append(span)
        if queued + 1 == min(self._capacity, BATCH_SPANS):
            self._wake.set()

    def shutdown(self) -> None:
        """Export what is queued, for at most LAST_EXPORT_SECONDS; then leave the thread
        behind.
        """
        self._ending = True
        self._wake.set()
        self._thread.join(LAST_EXPORT_SECONDS)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wake the exporting thread without waiting for it."""
        self._wake.set()
        return timeout_millis > 0

    def _run(self) -> None:
        ending = False
        while not ending:
            ending = self._ending or (self._wake.wait(EXPORT_SECONDS) and self._ending)
            self._wake.clear()
            worked = True
            while worked and (batch := self._take()):
                worked = self._export(batch)
                self._report_dropped()

    def _report_dropped(self) -> None:
        """Log how many spans were dropped since the last time, at most once a
        minute.
        """
        now = time.monotonic()
        if self.dropped > self._reported and now > self._reported_at + REPORT_SECONDS:
            logger.warning(
                "spans dropped", extra={"spans": self.dropped - self._reported}
            )
            self._reported, self._reported_at = self.dropped, now

    def _take(self) -> list[Any]:
        batch = [
            self._spans.popleft() for _ in range(min(BATCH_SPANS, len(self._spans)))
        ]
        # even when there was none: a span that ended during the last batch may have set
        # it
        self.is_full = False
        return batch

    def _export(self, batch: list[Any]) -> bool:
        try:
            worked = bool(self._exporter.export(batch).name == "SUCCESS")
        except Exception:  # noqa: BLE001 # no exception may end the thread
            worked = False
        self._capacity = QUEUED_SPANS if worked else PROBE_SPANS
        self.dropped += 0 if worked else len(batch)
        return worked
