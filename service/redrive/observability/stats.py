"""The database's figures about all queues, as metric families.

Every process exports the same figures. They come as one object from `redrive.stats_v1`,
a snapshot that a reader renews if it is a few seconds old. The exporter reads ahead
while there are scrapes, so that a scrape does not wait for the database.

If the database does not answer or its answer is old, the figures are left out and
`redrive_stats_up` is 0. An old figure would suggest that all is quiet.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from psycopg.rows import namedtuple_row

from redrive.database.connections.address import Address
from redrive.database.connections.link import Link, Watchdog
from redrive.observability.families import (
    COUNTERS,
    DLQ_DEPTH,
    FIGURES,
    HEALTH_FIGURES,
    Labels,
    Total,
    Values,
    by_current_queue,
    by_event,
    known_kinds,
)
from redrive.observability.snapshot import Snapshot

MAX_AGE_SECONDS = 2.0
AHEAD_SECONDS = 6.0
"""How long figures that were read ahead are shown. They are renewed much earlier."""

WANTED_SECONDS = 70.0
"""How long after a scrape figures are read ahead.

By default Prometheus scrapes once a minute.
"""

READ_SECONDS = 6.0
"""Longest time of one reading. By default Prometheus waits ten seconds for a scrape."""

STALE_SECONDS = 30.0
_READ = (
    "select body::text as body, extract(epoch from clock_timestamp())::float8"
    " - (body ->> 'taken_at')::float8 as age"
    " from redrive.stats_v1(%s * interval '1 second') as s(body)"
)


class DatabaseStats:
    """Reader of the figures for one process.

    Scrapes within MAX_AGE_SECONDS share one reading.

    Args:
        disk_budget: bytes that dead letters and the history may take; 0 = no budget.
    """

    def __init__(self, where: Address | str, disk_budget: int = 0) -> None:
        self._disk_budget = disk_budget
        self.link = Link(where, "redrive stats", statement_timeout="5s")

        # A frozen server does not apply its statement timeout.
        Watchdog(self.link).start()

        self._lock = threading.Lock()
        self._decode = msgspec.json.Decoder(Snapshot).decode
        self._families: list[Metric] = []
        self._fresh_until = self._wanted_until = float("-inf")

    def collect(self) -> Iterator[Metric]:
        """Yield the families; only `redrive_stats_up` if the database does not answer."""
        self._wanted_until = time.monotonic() + WANTED_SECONDS
        if not self._is_fresh():
            with self._lock:
                # Another thread may have read them while this one waited for the lock.
                if not self._is_fresh():
                    self._renew(MAX_AGE_SECONDS)

        yield from self._families

    def read_ahead(self) -> None:
        """Read for the next scrape, if there was one recently. Call it every 2 seconds."""
        if time.monotonic() < self._wanted_until:
            with self._lock:
                self._renew(AHEAD_SECONDS)

    def _is_fresh(self) -> bool:
        return time.monotonic() <= self._fresh_until

    def _renew(self, shown_seconds: float) -> None:
        self._families = list(self._read())
        self._fresh_until = time.monotonic() + shown_seconds

    @contextmanager
    def exclusive(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Yield the connection when no scrape uses it."""
        with self._lock, self.link.use(bound=READ_SECONDS) as conn:
            yield conn

    def _read(self) -> Iterator[Metric]:
        began = time.monotonic()
        body = self._fetch()
        yield up(is_up=body is not None)

        if body is not None:
            snapshot = self._decode(body)
            yield _gauge(
                "redrive_stats_duration_seconds",
                "How long reading the database's figures took.",
                (),
                {(): time.monotonic() - began},
            )
            yield _gauge(
                "redrive_disk_budget_bytes",
                "Bytes that dead letters and the history may take, if limited.",
                (),
                {(): self._disk_budget} if self._disk_budget else {},
            )
            yield from _gauges(snapshot)
            yield from _totals(snapshot)

    def _fetch(self) -> str | None:
        """Return the snapshot as JSON; None if it is too old or cannot be read."""
        try:
            with (
                self.link.use(bound=READ_SECONDS) as conn,
                conn.cursor(row_factory=namedtuple_row) as cursor,
            ):
                row: Any = cursor.execute(_READ, (MAX_AGE_SECONDS,)).fetchone()
        except psycopg.Error:
            return None

        # The age is null until there is a first snapshot.
        is_recent = row.age is not None and row.age < STALE_SECONDS
        return row.body if is_recent else None


def _gauges(snapshot: Snapshot) -> Iterator[Metric]:
    for figure in FIGURES:
        yield _gauge(figure.name, figure.help, figure.labels, figure.values(snapshot))

    for figure in HEALTH_FIGURES:
        values: Values = figure.values(snapshot.health) if snapshot.health else {}
        yield _gauge(figure.name, figure.help, figure.labels, values)


def _totals(snapshot: Snapshot) -> Iterator[Metric]:
    tallies = by_event(snapshot.totals)
    kinds = known_kinds(tallies)

    for total in COUNTERS:
        yield _counter(total, total.add_up(tallies, kinds))

    depths = DLQ_DEPTH.add_up(by_event(by_current_queue(snapshot)), kinds)
    # A dead letter that somebody inserted by hand, such as from a backup, was not counted
    # when it came. It is counted when it leaves.
    shown = {labels: max(0.0, depth) for labels, depth in depths.items()}
    yield _gauge(DLQ_DEPTH.name, DLQ_DEPTH.help, tuple(DLQ_DEPTH.labels), shown)


def up(*, is_up: bool) -> Metric:
    """Return the metric that says whether the following figures could be read."""
    about = "1 if the database's figures could be read, else 0."
    return _gauge("redrive_stats_up", about, (), {(): is_up})


def _counter(total: Total, values: Values) -> Metric:
    """Return a counter with the database's current values.

    After a restore of the database they may be lower than before. The alerts tolerate
    that, and every process exports the same. If the old values were kept, new deaths
    would be hidden until the counter has passed them.
    """
    family = CounterMetricFamily(total.name, total.help, labels=tuple(total.labels))
    for labels, value in values.items():
        family.add_metric(labels, value)

    return family


def _gauge(name: str, about: str, labels: Labels, values: Values) -> Metric:
    family = GaugeMetricFamily(name, about, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family
