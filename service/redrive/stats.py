"""What the database knows of all queues, as metric families: the same from whichever process serves them.

Counters live in the database and are read from its tallies, never by counting a big table. One process asks at most
every few seconds, however often it is scraped. When the database does not answer, the block is left out and
`redrive_stats_up` says 0: an old figure would look like a calm one.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from redrive.connect import Link

FRESH_SECONDS = 2.0
STATES = ("ready", "scheduled", "retrying", "running")
REMOVALS = {"redriven": "redriven", "dismissed": "dismissed", "purged": "purged", "resolved": "resolved"}


class DatabaseStats:
    """Reads one snapshot at a time; scrapes in between get the last one."""

    def __init__(self, url: str) -> None:
        self.link = Link(url, "redrive stats", statement_timeout="5s")
        self._lock = threading.Lock()
        self._families: list[Metric] = []
        self._read_at = 0.0
        self._highest: dict[tuple[str, ...], float] = {}

    def collect(self) -> Iterator[Metric]:
        """The families; only `redrive_stats_up` when the database cannot be read."""
        with self._lock:
            if time.monotonic() - self._read_at > FRESH_SECONDS:
                self._families = self._read()
                self._read_at = time.monotonic()
            yield from self._families

    @contextmanager
    def exclusive(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """The connection, while no scrape uses it."""
        with self._lock, self.link.use(bound=6.0) as conn:
            yield conn

    def _read(self) -> list[Metric]:
        up = GaugeMetricFamily("redrive_stats_up", "1 when the database block below could be read.")
        began = time.monotonic()
        try:
            with self.link.use(bound=6.0) as conn, conn.transaction():
                conn.execute("set transaction isolation level repeatable read, read only")
                families = [*self._depths(conn), *self._counters(conn), *self._dead_letters(conn)]
                row = conn.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
        except psycopg.Error:
            up.add_metric((), 0)
            return [up]
        up.add_metric((), 1)
        stamp = GaugeMetricFamily("redrive_stats_timestamp_seconds", "When this block was read, by the database's clock.")
        stamp.add_metric((), row[0] if row else 0)
        cost = GaugeMetricFamily("redrive_stats_duration_seconds", "How long reading it took.")
        cost.add_metric((), time.monotonic() - began)
        return [up, stamp, cost, *families]

    def _depths(self, conn: psycopg.Connection[tuple[object, ...]]) -> Iterator[Metric]:
        depth = GaugeMetricFamily("redrive_queue_depth", "Jobs by state.", labels=("queue", "state"))
        oldest = GaugeMetricFamily(
            "redrive_queue_oldest_ready_age_seconds", "How long the oldest ready job has been due.", labels=("queue",)
        )
        paused = GaugeMetricFamily("redrive_queue_paused", "1 while the queue is paused.", labels=("queue",))
        for queue, *counts, is_paused, age in conn.execute(
            "select queue, ready, scheduled, retrying, running, paused, oldest_ready_seconds from redrive.depths_v1()"
        ):
            for state, count in zip(STATES, counts, strict=True):
                depth.add_metric((str(queue), state), float(count))  # pyright: ignore[reportArgumentType]
            oldest.add_metric((str(queue),), float(age))  # pyright: ignore[reportArgumentType]
            paused.add_metric((str(queue),), float(bool(is_paused)))
        yield from (depth, oldest, paused)

    def _counters(self, conn: psycopg.Connection[tuple[object, ...]]) -> Iterator[Metric]:
        added = CounterMetricFamily(
            "redrive_dlq_added_total", "Dead letters ever added.", labels=("queue", "kind", "reason")
        )
        removed = CounterMetricFamily(
            "redrive_dlq_removed_total", "Dead letters that left the state open, or were resolved.",
            labels=("queue", "action"))  # fmt: skip
        enqueued = CounterMetricFamily("redrive_jobs_enqueued_total", "Jobs enqueued.", labels=("queue", "kind"))
        completed = CounterMetricFamily("redrive_jobs_completed_total", "Jobs completed.", labels=("queue", "kind"))
        depth: dict[tuple[str, str], float] = {}
        gone: dict[tuple[str, str], float] = {}
        for queue, kind, event, reason, n in conn.execute("select queue, kind, event, reason, n from redrive.totals"):
            labels = (str(queue), str(kind))
            count = self._never_lower((str(event), *labels, str(reason)), float(n))  # pyright: ignore[reportArgumentType]
            if event == "dead":
                added.add_metric((*labels, str(reason)), count)
                depth[labels[0], str(reason)] = depth.get((labels[0], str(reason)), 0.0) + float(n)  # pyright: ignore[reportArgumentType]
            elif event == "enqueued":
                enqueued.add_metric(labels, count)
                for reason_at_zero in ("attempts_exhausted",):
                    depth.setdefault((labels[0], reason_at_zero), 0.0)
            elif event == "completed":
                completed.add_metric(labels, count)
            if event in {"redriven", "dismissed", "purged"}:
                depth[labels[0], str(reason)] = depth.get((labels[0], str(reason)), 0.0) - float(n)  # pyright: ignore[reportArgumentType]
            if event in REMOVALS:
                action = (labels[0], REMOVALS[str(event)])
                gone[action] = gone.get(action, 0.0) + count
        for action, count in gone.items():
            removed.add_metric(action, count)
        open_now = GaugeMetricFamily("redrive_dlq_depth", "Open dead letters.", labels=("queue", "reason"))
        for labels, count in depth.items():
            open_now.add_metric(labels, max(0.0, count))
        yield from (added, removed, enqueued, completed, open_now)

    def _dead_letters(self, conn: psycopg.Connection[tuple[object, ...]]) -> Iterator[Metric]:
        rate = GaugeMetricFamily(
            "redrive_dlq_added_per_minute", "Dead letters added in the last full minute.", labels=("queue",)
        )
        for queue, added in conn.execute("select queue, added from redrive.added_per_minute_v1()"):
            rate.add_metric((str(queue),), float(added))  # pyright: ignore[reportArgumentType]
        oldest = GaugeMetricFamily("redrive_dlq_oldest_age_seconds", "Age of the oldest open dead letter.", labels=("queue",))
        for queue, age in conn.execute("select queue, age_seconds from redrive.oldest_dead_v1()"):
            oldest.add_metric((str(queue),), float(age))  # pyright: ignore[reportArgumentType]
        yield from (rate, oldest)

    def _never_lower(self, key: tuple[str, ...], value: float) -> float:
        """A database restored or failed over may have forgotten some: a counter that steps back would be read as a
        reset, and the whole total as an increase."""
        self._highest[key] = max(self._highest.get(key, 0.0), value)
        return self._highest[key]
