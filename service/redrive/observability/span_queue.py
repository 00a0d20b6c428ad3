"""Where spans wait for their export: bounded, in nobody's way. OpenTelemetry's own batches flush
without a limit.
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
"""How many are made to try a collector that has not taken any, or not the last ones."""
EXPORT_SECONDS = 1.0
LAST_EXPORT_SECONDS = 1.0
"""How long the end of a process waits for what is queued."""


class SpanQueue(SpanProcessor):
    """A span processor that never blocks and never waits for long.

    Spans that find it full are dropped and counted; so are those of an export that failed. It holds
    few until one has succeeded, and again after one that failed: making spans that go nowhere is
    what a collector that is gone costs.
    """

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self._spans: deque[Any] = deque()
        self._wake = threading.Event()
        self._ending = False
        self._room = PROBE_SPANS
        self.dropped = 0
        self.is_full = False
        """Whether the collector does not keep up, or is gone; as old as the last span or export,
        for it is asked before every job.
        """
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Do nothing."""

    def on_end(self, span: Any) -> None:
        """Queue it."""
        if not span.context.trace_flags.sampled:
            return
        queued = len(self._spans)
        self.is_full = queued >= self._room
        if self.is_full or self._ending:
            self.dropped += 1
            return
        self._spans.append(span)
        if queued + 1 == min(self._room, BATCH_SPANS):
            self._wake.set()

    def shutdown(self) -> None:
        """Export what is queued, for at most LAST_EXPORT_SECONDS; the thread is left behind when
        that is not enough.
        """
        self._ending = True
        self._wake.set()
        self._thread.join(LAST_EXPORT_SECONDS)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wake the exporting thread; nobody waits for it."""
        self._wake.set()
        return timeout_millis > 0

    def _run(self) -> None:
        told, told_at, ending = 0, float("-inf"), False
        while not ending:
            ending = self._ending or (self._wake.wait(EXPORT_SECONDS) and self._ending)
            self._wake.clear()
            worked = True
            while worked and (batch := self._take()):
                worked = self._export(batch)
                if self.dropped > told and time.monotonic() > told_at + 60:  # once a minute
                    logger.warning("spans dropped", extra={"spans": self.dropped - told})
                    told, told_at = self.dropped, time.monotonic()

    def _take(self) -> list[Any]:
        batch = [self._spans.popleft() for _ in range(min(BATCH_SPANS, len(self._spans)))]
        # when there was none too: a span that ended while the last were taken may have said so
        self.is_full = False
        return batch

    def _export(self, batch: list[Any]) -> bool:
        try:
            worked = bool(self._exporter.export(batch).name == "SUCCESS")
        except Exception:  # noqa: BLE001 # whatever it is, it must not end the thread
            worked = False
        self._room = QUEUED_SPANS if worked else PROBE_SPANS
        self.dropped += 0 if worked else len(batch)
        return worked
