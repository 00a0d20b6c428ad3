"""What the database knows of all queues, as metric families: the same from whichever process serves
them.

The figures come as one object from `redrive.stats_v1`, which is made new at most every few seconds
by whoever asks first, in one snapshot. The exporter asks ahead of its scrapes, while there are any,
so that they only show what is there. When the database does not answer, or what it answers is old,
the block is left out and `redrive_stats_up` says 0: an old figure would look like a calm one.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from redrive.database.connect import Link, Watchdog
from redrive.rules.model import Reason

MAX_AGE_SECONDS = 2.0
AHEAD_SECONDS = 6.0
"""How long figures that were read ahead are shown; reading again comes long before."""

WANTED_SECONDS = 70.0
"""How long after a scrape figures are read ahead: by default Prometheus comes once a minute."""

STALE_SECONDS = 30.0
STATES = ("ready", "scheduled", "retrying", "running")
OPEN_ENDS = frozenset({"redriven", "dismissed", "purged"})
REMOVALS = OPEN_ENDS | {"resolved"}
BREAKER_STATES = ("closed", "open", "half_open")
OUTCOMES = ("succeeded", "dead_again", "cancelled", "blocked")

Labels = tuple[str, ...]


class DatabaseStats:
    """Reads the figures for one process; scrapes within two seconds share one reading."""

    def __init__(self, url: str) -> None:
        self.link = Link(url, "redrive stats", statement_timeout="5s")
        Watchdog(self.link).start()  # a server that is frozen ends no statement by itself
        self._lock = threading.Lock()
        self._families: list[Metric] = []
        self._fresh_until = self._wanted_until = float("-inf")
        self._highest: dict[Labels, float] = {}

    def collect(self) -> Iterator[Metric]:
        """The families; only `redrive_stats_up` when the database cannot be read."""
        self._wanted_until = time.monotonic() + WANTED_SECONDS
        if time.monotonic() > self._fresh_until:
            with self._lock:
                if time.monotonic() > self._fresh_until:  # whoever had the lock may have read them
                    self._renew(MAX_AGE_SECONDS)
        yield from self._families

    def read_ahead(self) -> None:
        """Read for the next scrape, if there was one lately; to be called every two seconds."""
        if time.monotonic() < self._wanted_until:
            with self._lock:
                self._renew(AHEAD_SECONDS)

    def _renew(self, shown_seconds: float) -> None:
        self._families = list(self._read())
        self._fresh_until = time.monotonic() + shown_seconds

    @contextmanager
    def exclusive(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """The connection, while no scrape uses it."""
        with self._lock, self.link.use(bound=6.0) as conn:
            yield conn

    def _read(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "redrive_stats_up", "1 when the figures of the database could be read."
        )
        began = time.monotonic()
        try:
            with self.link.use(bound=6.0) as conn:
                row = conn.execute(
                    "select body, extract(epoch from clock_timestamp())::float8 - (body ->> 'taken_at')::float8"
                    " from redrive.stats_v1(%s * interval '1 second') as s(body)",
                    (MAX_AGE_SECONDS,),
                ).fetchone()
        except psycopg.Error:
            row = None
        usable = row is not None and row[1] is not None and row[1] < STALE_SECONDS
        up.add_metric((), float(usable))
        yield up
        if row is not None and usable:
            yield _one(
                "redrive_stats_duration_seconds",
                "How long reading them took.",
                time.monotonic() - began,
            )
            yield from self._translate(row[0])

    def _translate(self, body: Mapping[str, Any]) -> Iterator[Metric]:
        yield _one(
            "redrive_stats_timestamp_seconds",
            "When they were read, by the database's clock.",
            body["taken_at"],
        )
        yield from self._counters(body["totals"])
        yield from _depths(body["depths"])
        yield _gauge(
            "redrive_dlq_added_per_minute",
            "Dead letters added in the last full minute.",
            ("queue",),
            {(queue,): n for queue, n in body["added_per_minute"].items()},
        )
        yield _gauge(
            "redrive_dlq_oldest_age_seconds",
            "Age of the oldest open dead letter.",
            ("queue",),
            {(queue,): age for queue, age in body["oldest_dead"].items()},
        )
        yield _objectives(body["objectives"], [depth["queue"] for depth in body["depths"]])
        breakers: Mapping[str, str] = body["breakers"]
        yield _gauge(
            "redrive_circuit_breaker_state",
            "1 for the state each breaker is in.",
            ("breaker", "state"),
            {(n, s): float(s == now) for n, now in breakers.items() for s in BREAKER_STATES},
        )
        about_chores = "When the task last succeeded; 0 = never yet."
        yield _gauge(
            "redrive_maintenance_last_success_timestamp_seconds",
            about_chores,
            ("task",),
            {(name,): ran_at or 0.0 for name, ran_at, _ in body["chores"]},
        )
        yield _gauge(
            "redrive_maintenance_interval_seconds",
            "How often it should.",
            ("task",),
            {(name,): every for name, _, every in body["chores"] if every},
        )
        yield _one("redrive_workers", "Workers whose heartbeat is heard.", body["workers"])
        yield _one(
            "redrive_workers_lost",
            "Silent workers whose jobs are not taken back yet.",
            body["workers_lost"],
        )
        yield _one(
            "redrive_pg_oldest_transaction_age_seconds",
            "Age of the oldest transaction that holds vacuum back.",
            body["oldest_transaction"],
        )
        yield _gauge(
            "redrive_pg_table_dead_tuples",
            "Dead rows by table.",
            ("table",),
            {(t,): n for t, n, _ in body["tables"]},
        )
        yield _gauge(
            "redrive_pg_table_size_bytes",
            "Size with indexes.",
            ("table",),
            {(t,): n for t, _, n in body["tables"]},
        )

    def _counters(self, totals: Sequence[tuple[str, str, str, str, int]]) -> Iterator[Metric]:
        added: dict[Labels, float] = defaultdict(float)
        ended: dict[str, dict[Labels, float]] = {
            "enqueued": defaultdict(float),
            "completed": defaultdict(float),
        }
        removed: dict[Labels, float] = defaultdict(float)
        outcomes: dict[Labels, float] = defaultdict(float)
        depth: dict[Labels, float] = defaultdict(float)
        for queue, kind, event, reason, n in totals:
            if event == "dead":
                added[queue, kind, reason] += n
                depth[queue, reason] += n
            elif event in ended:
                ended[event][queue, kind] += n
            elif event == "outcome":
                outcomes[queue, reason] += n
            if event in OPEN_ENDS:
                depth[queue, reason] -= n
            if event in REMOVALS:
                removed[queue, event] += n
        # At 0 from the start: a first appearance at n is invisible to increase().
        for queue, kind in {
            (queue, kind) for queue, kind, event, _, _ in totals if event in {"dead", *ended}
        }:
            for known in Reason:
                added[queue, kind, known] += 0
            for counts in ended.values():
                counts[queue, kind] += 0
        for queue in {labels[0] for labels in added}:
            for outcome in OUTCOMES:
                outcomes[queue, outcome] += 0
            for action in REMOVALS:
                removed[queue, action] += 0
            for known in Reason:
                depth[queue, known] += 0
        yield self._counter(
            "redrive_dlq_added", "Dead letters ever added.", ("queue", "kind", "reason"), added
        )
        about_removed = "Dead letters redriven, dismissed or purged while open, or resolved."
        yield self._counter("redrive_dlq_removed", about_removed, ("queue", "action"), removed)
        yield self._counter(
            "redrive_redrive_outcomes",
            "What became of redriven jobs.",
            ("queue", "outcome"),
            outcomes,
        )
        yield self._counter(
            "redrive_jobs_enqueued", "Jobs enqueued.", ("queue", "kind"), ended["enqueued"]
        )
        yield self._counter(
            "redrive_jobs_completed", "Jobs completed.", ("queue", "kind"), ended["completed"]
        )
        yield _gauge(
            "redrive_dlq_depth",
            "Open dead letters.",
            ("queue", "reason"),
            {labels: max(0.0, n) for labels, n in depth.items()},
        )

    def _counter(
        self, name: str, text: str, labels: Labels, values: Mapping[Labels, float]
    ) -> Metric:
        """A counter that never steps back: a database that was restored or failed over may have
        forgotten some, and the step would be read as a reset, and the whole total as an increase.
        """
        family = CounterMetricFamily(name, text, labels=labels)
        for key, value in values.items():
            highest = self._highest[name, *key] = max(self._highest.get((name, *key), 0.0), value)
            family.add_metric(key, highest)
        return family


def _depths(depths: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    yield _gauge(
        "redrive_queue_depth",
        "Jobs by state.",
        ("queue", "state"),
        {(d["queue"], state): d[state] for d in depths for state in STATES},
    )
    yield _gauge(
        "redrive_queue_oldest_ready_age_seconds",
        "How long the oldest ready job has been due.",
        ("queue",),
        {(d["queue"],): d["oldest_ready_seconds"] for d in depths},
    )
    yield _gauge(
        "redrive_queue_paused",
        "1 while the queue is paused.",
        ("queue",),
        {(d["queue"],): float(d["paused"]) for d in depths},
    )


def _objectives(rows: Sequence[tuple[str, str, float]], queues: Sequence[str]) -> Metric:
    """Each queue's thresholds: its own, else those for all others."""
    defaults = {objective: value for queue, objective, value in rows if queue == "*"}
    values: dict[Labels, float] = {
        (queue, name): value for queue in queues for name, value in defaults.items()
    }
    values |= {(queue, objective): value for queue, objective, value in rows if queue != "*"}
    return _gauge(
        "redrive_queue_objective", "Thresholds of the alerts.", ("queue", "objective"), values
    )


def _gauge(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family


def _one(name: str, text: str, value: float) -> Metric:
    return _gauge(name, text, (), {(): value})
