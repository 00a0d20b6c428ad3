"""All metrics that a worker exports.

A worker may settle thousands of jobs a second. So it counts a batch of jobs at a time
into dictionaries, and only a scrape creates the library's objects. One process exports,
so there is no multiprocess mode and nothing to merge.
"""

import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar

from redrive.observability import process
from redrive.rules.times import DURATION_BUCKETS, WAIT_BUCKETS

Labels = tuple[str, ...]

CALL_BUCKETS = (0.0005, 0.001, 0.0025, *DURATION_BUCKETS[:11])
DEATH_BUCKETS = (1, 10, 60, 300, 900, 3600, 14_400, 43_200, 86_400, 259_200, 604_800)
"""From a second to a week."""

MAX_LABEL_SETS = 5_000
MAX_HISTOGRAMS = 500
"""Largest number of label sets of a histogram. Each has a series for every bucket."""

OTHER = "other"


def _bounded(
    labels: Labels, names: Labels, known: Collection[Labels], limit: int
) -> Labels:
    """Return the label set to count under; past the limit it contains `other`.

    At first only the kind is replaced, so that queue and outcome stay known. With still
    more label sets, all labels are replaced.
    """
    if labels in known or len(known) < limit:
        return labels

    by_name = dict(zip(names, labels, strict=True))
    if "kind" in by_name:
        by_name["kind"] = OTHER

    folded = tuple(by_name.values())
    if folded in known or len(known) < limit * 1.1:
        return folded

    return (OTHER,) * len(labels)


class _Family:
    """Family with one value for each label set."""

    made: ClassVar[type[CounterMetricFamily | GaugeMetricFamily]]

    def __init__(self, name: str, documentation: str, labels: Labels = ()) -> None:
        self.name = name
        self.documentation = documentation
        self.labels = labels
        self._values: dict[Labels, float] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the family as it is now."""
        family = self.made(self.name, self.documentation, labels=self.labels)
        # A copy: the worker's loop may add a label set during the scrape.
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        yield family


class Counter(_Family):
    """Family of counters, which only `add` and `create` change."""

    made = CounterMetricFamily

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Add to the count of a label set; past the limit, to that of `other`."""
        labels = _bounded(labels, self.labels, self._values, MAX_LABEL_SETS)
        self._values[labels] = self._values.get(labels, 0) + amount

    def create(self, labels: Labels) -> None:
        """Export a label set as 0; increase() does not see a step from nothing."""
        # Label sets that may stay at 0 leave room for the others.
        if len(self._values) < MAX_LABEL_SETS / 2:
            self.add(labels, 0)


class Gauge(_Family):
    """Family of gauges, replaced as a whole or set one by one."""

    made = GaugeMetricFamily

    def set(self, labels: Labels, value: float) -> None:
        """Set the value of one label set."""
        self._values[labels] = value

    def replace(self, values: dict[Labels, float]) -> None:
        """Set all values.

        A missing label set becomes 0; past the limit its series ends.
        """
        gone = self._values if len(self._values) < MAX_LABEL_SETS else {}
        self._values = dict.fromkeys(gone, 0.0) | values


class Histogram:
    """Family of histograms in seconds."""

    def __init__(
        self, name: str, documentation: str, labels: Labels, buckets: tuple[float, ...]
    ) -> None:
        self.name = name
        self.documentation = documentation
        self.labels = labels
        self.buckets = buckets
        self._bounds = (*[str(float(bound)) for bound in buckets], "+Inf")

        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = defaultdict(float)
        self._exemplars: dict[tuple[Labels, int], Exemplar] = {}

    def exemplify(self, labels: Labels, value: float, trace_id: str) -> None:
        """Point to an observation's trace, one per bucket; only OpenMetrics shows it."""
        # A label set beyond the limit is counted as `other`, without exemplars.
        if labels in self._counts:
            place = bisect_left(self.buckets, value)
            exemplar = Exemplar({"trace_id": trace_id}, value, time.time())
            self._exemplars[labels, place] = exemplar

    def observe(self, labels: Labels, values: Iterable[float]) -> None:
        """Add observations."""
        counts = self._counts.get(labels)
        if counts is None:
            labels = _bounded(labels, self.labels, self._counts, MAX_HISTOGRAMS)
            counts = self._counts.setdefault(labels, [0] * (len(self.buckets) + 1))

        ordered = sorted(values)
        self._count(ordered, counts)
        self._sums[labels] += sum(ordered)

    def counts(self) -> dict[Labels, tuple[int, ...]]:
        """Return the number of observations in each bucket, by label set."""
        return {labels: tuple(n) for labels, n in list(self._counts.items())}

    def _count(self, ordered: list[float], counts: list[int]) -> None:
        """Add to the counts of the buckets, one bucket at a time.

        Hundreds of jobs fall into few buckets.
        """
        below = 0
        for n, bound in enumerate(self.buckets):
            if below == len(ordered):
                break

            upto = bisect_right(ordered, bound, below)
            counts[n] += upto - below
            below = upto

        counts[-1] += len(ordered) - below

    def collect(self) -> Iterator[Metric]:
        """Yield the family as it is now."""
        family = HistogramMetricFamily(
            self.name, self.documentation, labels=self.labels
        )

        # A copy, as in Counter.
        for labels, counts in list(self._counts.items()):
            buckets = list(self._buckets(labels, list(counts)))
            family.add_metric(labels, buckets, self._sums[labels])

        yield family

    def _buckets(self, labels: Labels, counts: list[int]) -> Iterator[Any]:
        """Yield each bucket's bound, its cumulative count, and its exemplar if any."""
        cumulative = zip(self._bounds, accumulate(counts), strict=True)
        for place, (bound, count) in enumerate(cumulative):
            exemplar = self._exemplars.get((labels, place))
            if exemplar is None:
                yield bound, count
            else:
                yield bound, count, exemplar


class Metrics:
    """The families of one worker process."""

    def __init__(self) -> None:
        self._add_jobs()
        self._add_worker()

    def _add_jobs(self) -> None:
        """Add the metrics of jobs and their attempts."""
        self.inflight = Gauge(
            "redrive_jobs_inflight", "Jobs this worker holds.", ("queue", "kind")
        )
        self.retries = Counter(
            "redrive_job_retries_total",
            "Failed attempts that will be retried, by category of failure.",
            ("queue", "kind", "reason"),
        )
        self.attempts = Counter(
            "redrive_job_attempts_total",
            "Attempts that ended, by outcome.",
            ("queue", "kind", "outcome"),
        )

        self.duration = Histogram(
            "redrive_job_duration_seconds",
            "Time spent in the handler.",
            ("queue", "kind", "outcome"),
            DURATION_BUCKETS,
        )
        self.wait = Histogram(
            "redrive_job_wait_seconds",
            "Time from due to claimed.",
            ("queue",),
            WAIT_BUCKETS,
        )
        self.time_to_dlq = Histogram(
            "redrive_dlq_time_to_death_seconds",
            "Time from a job's enqueueing to its first death.",
            ("queue",),
            DEATH_BUCKETS,
        )

        self.claims = Counter("redrive_claims_total", "Claims, by result.", ("result",))
        self.exchange = Histogram(
            "redrive_exchange_duration_seconds",
            "Duration of one round trip that settles and claims.",
            (),
            CALL_BUCKETS,
        )

        self.stale = Counter(
            "redrive_stale_settlements_total",
            "Settlements refused because the worker no longer held the job.",
            ("queue", "kind"),
        )
        self.released = Counter(
            "redrive_jobs_released_total",
            "Jobs given back without using up an attempt, by reason.",
            ("queue", "reason"),
        )

        self.lost = Counter(
            "redrive_jobs_lost_total",
            "Jobs dropped because this worker was declared lost.",
            (),
        )
        self.rescued = Counter(
            "redrive_jobs_rescued_total",
            "Jobs this worker took back from lost workers.",
            (),
        )

    def _add_worker(self) -> None:
        """Add the metrics of the worker itself."""
        self.runner_deaths = Counter(
            "redrive_runner_deaths_total",
            "Runner processes that died, by cause.",
            ("cause",),
        )
        self.database_errors = Counter(
            "redrive_db_errors_total",
            "Database errors, by operation and SQLSTATE.",
            ("operation", "sqlstate"),
        )
        self.maintenance_failures = Counter(
            "redrive_maintenance_failures_total",
            "Chores of all workers that this worker could not do, by chore.",
            ("chore",),
        )

        self.slots = Gauge("redrive_worker_slots", "Jobs this worker can run at once.")
        self.busy = Gauge(
            "redrive_worker_slots_busy",
            "Slots in use: jobs this worker holds, capped at its slots.",
        )

        self.up = Gauge(
            "redrive_worker_up",
            "1 for each queue this worker serves ('*' means all).",
            ("queue",),
        )
        self.timeout = Gauge(
            "redrive_queue_timeout_seconds",
            "Longest timeout of an attempt among this worker's jobs, 0 for none.",
            ("queue",),
        )
        self.draining = Gauge(
            "redrive_worker_draining",
            "1 while this worker finishes its jobs before it stops, else 0.",
        )


def exchange_figures(
    age: Callable[[], float], slowdown: Callable[[], float]
) -> Callable[[], Iterable[Metric]]:
    """Return the source of the exchange's age and slowdown, read at each scrape.

    The loop that sets the other gauges may be the part that hangs.
    """

    def collect() -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "redrive_worker_exchange_age_seconds",
            "Time since the last successful exchange of this worker with the database; near 0"
            " while it has nothing to send and no free slots.",
            age(),
        )
        yield GaugeMetricFamily(
            "redrive_worker_exchange_slowdown_ratio",
            "How often their usual duration the recent exchanges of this worker take; 1 while"
            " they take less than 0.1 s or less than ten times that.",
            slowdown(),
        )

    return collect


class Exposition:
    """Contents of /metrics: the process, its work, and other sources."""

    def __init__(
        self, metrics: Metrics | None, *sources: Callable[[], Iterable[Metric]]
    ) -> None:
        # With auto_describe, the registration would collect all families once.
        self.registry = CollectorRegistry(auto_describe=False)
        self._metrics = metrics
        self._sources = sources
        self._lock = threading.Lock()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield every family, one scrape at a time."""
        with self._lock:
            yield from process.collect()
            if self._metrics is not None:
                for family in vars(self._metrics).values():
                    yield from family.collect()

            for source in self._sources:
                yield from source()
