"""Bounded queue of spans before export.

OpenTelemetry's own processor flushes without a time limit.
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
"""Capacity before the first successful export, and after a failed one."""

EXPORT_SECONDS = 1.0
LAST_EXPORT_SECONDS = 1.0
"""How long the end of a process waits for queued spans."""

REPORT_SECONDS = 60.0


class SpanQueue(SpanProcessor):
    """Span processor that never blocks and never waits for long.

    If the queue is full or an export fails, spans are dropped and counted. The capacity
    is small until an export has succeeded, and again after a failed export, so that a
    missing collector costs little.
    """

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self._spans: deque[Any] = deque()
        self._wake = threading.Event()
        self._ending = False
        self._capacity = PROBE_SPANS

        self.dropped = 0
        self._reported = 0
        self._reported_at = float("-inf")
        self.is_full = False
        """True if the collector is missing or too slow.

        It is a flag because it is read before every job.
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
        # Only the span that completes a batch wakes the thread early.
        if queued + 1 == min(self._capacity, BATCH_SPANS):
            self._wake.set()

    def shutdown(self) -> None:
        """Export the queued spans, for at most LAST_EXPORT_SECONDS."""
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
            # When the end is seen, this round exports the last spans.
            ending = self._ending or (self._wake.wait(EXPORT_SECONDS) and self._ending)
            self._wake.clear()
            worked = True

            while worked and (batch := self._take()):
                worked = self._export(batch)
                self._report_dropped()

    def _report_dropped(self) -> None:
        """Log how many spans were dropped since the last time, at most once a minute."""
        now = time.monotonic()
        dropped = self.dropped - self._reported
        if dropped and now > self._reported_at + REPORT_SECONDS:
            logger.warning("spans dropped", extra={"spans": dropped})
            self._reported = self.dropped
            self._reported_at = now

    def _take(self) -> list[Any]:
        number = min(BATCH_SPANS, len(self._spans))
        batch = [self._spans.popleft() for _ in range(number)]
        # Also without spans: one that ended during the last batch may have set it.
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
