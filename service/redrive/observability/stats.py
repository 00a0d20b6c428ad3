"""The database's figures about all queues, as metric families: the same from every
process.

The figures come as one object from `redrive.stats_v1`: a snapshot that whoever asks
first renews, at most every few seconds. The exporter reads ahead of its scrapes, as
long as there are any, so that a scrape only shows what is there. When the database does
not answer, or its answer is old, the figures are left out and `redrive_stats_up` is 0:
    an old figure would look like a calm one.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import psycopg
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from psycopg.rows import namedtuple_row

from redrive.database.connect import Address, Link, Watchdog
from redrive.rules.model import BREAKER_STATES, Reason

MAX_AGE_SECONDS = 2.0
AHEAD_SECONDS = 6.0
"""How long figures that were read ahead are shown; reading again comes long before."""

WANTED_SECONDS = 70.0
"""How long after a scrape figures are read ahead: by default Prometheus comes once a
minute.
"""

STALE_SECONDS = 30.0
STATES = ("ready", "scheduled", "retrying", "running")
OPEN_ENDS = frozenset({"redriven", "dismissed", "purged"})
"""Events that take a dead letter out of the open ones."""

REMOVALS = OPEN_ENDS | {"resolved"}
OUTCOMES = ("succeeded", "dead_again", "cancelled", "blocked")
REASONS = tuple(reason.value for reason in Reason)
OTHER = "other"
"""The queues, and the kinds, that are too many to be told apart; `redrive.shown_v1`
chooses.
"""

FEW = 500
"""Up to so many kinds of queues, what has not happened to them yet is shown, too, as
0.
"""

Labels = tuple[str, ...]
Values = Mapping[Labels, float]
"""The values of one family, by the values of its labels."""


# ---------------------------------------------------------------------- the snapshot


class Tally(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Count of an event. `reason` is that of a death, or the outcome of a redriven job.

    The kind '' stands for those that were forgotten; it counts for its queue.
    """

    queue: str
    kind: str
    event: str
    reason: str
    n: float


class Depth(msgspec.Struct, frozen=True, gc=False):
    """The jobs of a queue by state, and for how many seconds the oldest ready one has
    been due.
    """

    queue: str
    ready: int
    scheduled: int
    retrying: int
    running: int
    oldest_ready_seconds: float
    paused: bool


class Objective(NamedTuple):
    """A threshold of the alerts; the queue `*` stands for all that have none of their
    own.
    """

    queue: str
    name: str
    value: float


class Limit(NamedTuple):
    """Use of a limit; `customer:*` stands for all its keys, which share no slots."""

    name: str
    slots: int | None
    used: int
    waiting: int


class Chore(NamedTuple):
    """Last success of a chore (Unix time), and its interval (seconds)."""

    task: str
    ran_at: float | None
    every: float | None


class Table(NamedTuple):
    """The size of a table. `size` is in bytes, with indexes."""

    name: str
    dead_rows: int
    size: int


class Campaign(NamedTuple):
    """One that is not over: those whose turn has not come; of what ended how many died
    again.
    """

    state: str
    waiting: int
    ended: int
    dead: int


class Unhandled(NamedTuple):
    """Due jobs of a kind that none of the workers of their queue handles."""

    queue: str
    kind: str
    jobs: int


class Snapshot(msgspec.Struct, frozen=True):
    """Result of `redrive.stats_v1`. Instants are Unix time, ages seconds.

    `bases`: what queues had counted while they were among `other`. `totals` count it
        there still.
    """

    taken_at: float
    totals: list[Tally]
    depths: list[Depth]
    added_per_minute: dict[str, float]
    oldest_dead: dict[str, float]
    objectives: list[Objective]
    breakers: dict[str, str]
    chores: list[Chore]
    workers: int
    workers_lost: int
    oldest_transaction: float
    tables: list[Table]
    # a snapshot of the release before has none of these
    unhandled: list[Unhandled] = []
    bases: list[Tally] = []
    campaigns: list[Campaign] = []
    expected: dict[str, float] = {}
    schedule_overdue: float = 0.0
    limits: list[Limit] = []


# ---------------------------------------------------------------------- from snapshot
# to families


@dataclass(frozen=True, slots=True)
class Figure:
    """A family of gauges whose values are read off the snapshot."""

    name: str
    help: str
    labels: Labels
    values: Callable[[Snapshot], Values]


@dataclass(frozen=True, slots=True)
class Total:
    """A family that adds up tallies.

    Args:
        labels: label -> the field of a tally that it shows.
        events: the events that count -> what each counts for, 1 or -1.
        known: values of the last label that are shown at 0 before they happen, unless
            too many.
    """

    name: str
    help: str
    labels: Mapping[str, str]
    events: Mapping[str, int]
    known: tuple[str, ...] = ()

    def add_up(
        self, tallies: Mapping[str, Sequence[Tally]], kinds: Collection[Labels]
    ) -> Values:
        """The values, from tallies by their event; at least 0 for each (queue,
        kind).
        """
        values = defaultdict(float, self._zeros(kinds))
        labels_of: Callable[[Tally], Labels] = attrgetter(*self.labels.values())
        for event, sign in self.events.items():
            for tally in tallies[event]:
                if tally.kind or "kind" not in self.labels:
                    values[labels_of(tally)] += sign * tally.n
        return values

    def _zeros(self, kinds: Collection[Labels]) -> dict[Labels, float]:
        """Label sets that start at 0: increase() does not see a step from nothing.

        The alerts do. So of a thousand queues only what has happened is shown.
        """
        by_kind = "kind" in self.labels
        born = (
            {labels for labels in kinds if labels[1]}
            if by_kind
            else {labels[:1] for labels in kinds}
        )
        if not self.known:
            return dict.fromkeys(born, 0.0)
        if len(kinds) > FEW:
            return {}
        return {(*labels, value): 0.0 for labels in born for value in self.known}


COUNTERS = (
    Total(
        "redrive_dlq_added",
        "Dead letters added.",
        {"queue": "queue", "kind": "kind", "reason": "reason"},
        {"dead": 1},
        known=REASONS,
    ),
    Total(
        "redrive_dlq_imported",
        "Dead letters of other systems taken in; none of them counts as added.",
        {"queue": "queue", "kind": "kind"},
        {"imported": 1},
    ),
    Total(
        "redrive_dlq_removed",
        "Dead letters redriven, dismissed or purged while open, or resolved.",
        {"queue": "queue", "action": "event"},
        dict.fromkeys(REMOVALS, 1),
        known=tuple(sorted(REMOVALS)),
    ),
    Total(
        "redrive_redrive_outcomes",
        "What became of redriven jobs.",
        {"queue": "queue", "outcome": "reason"},
        {"outcome": 1},
        known=OUTCOMES,
    ),
    Total(
        "redrive_jobs_enqueued",
        "Jobs enqueued.",
        {"queue": "queue", "kind": "kind"},
        {"enqueued": 1},
    ),
    Total(
        "redrive_jobs_completed",
        "Jobs completed.",
        {"queue": "queue", "kind": "kind"},
        {"completed": 1},
    ),
)
DLQ_DEPTH = Total(
    "redrive_dlq_depth",
    "Open dead letters.",
    {"queue": "queue", "reason": "reason"},
    dict.fromkeys(("dead", "imported", "reopened"), 1) | dict.fromkeys(OPEN_ENDS, -1),
    known=REASONS,
)
CAMPAIGN_STATES = ("waiting", "canary", "ramp", "running", "paused", "aborted")
"""Of those that are not over."""

BIRTHS = ("enqueued", "completed", "dead", "imported")
"""Events that make a kind known on a queue."""


def _campaigns(snapshot: Snapshot) -> Values:
    """Count campaigns by state."""
    states = [campaign.state for campaign in snapshot.campaigns]
    return {(state,): states.count(state) for state in CAMPAIGN_STATES}


def _dead_again(snapshot: Snapshot) -> Values:
    """The largest share of those that go on."""
    shares = (c.dead / c.ended for c in snapshot.campaigns if c.ended)
    return {(): max(shares, default=0.0)}


def _objectives(snapshot: Snapshot) -> Values:
    """The thresholds of each queue: its own, else those for all others."""
    defaults = [o for o in snapshot.objectives if o.queue == "*"]
    values = {
        (depth.queue, o.name): o.value for depth in snapshot.depths for o in defaults
    }
    return values | {
        (o.queue, o.name): o.value for o in snapshot.objectives if o.queue != "*"
    }


FIGURES = (
    Figure(
        "redrive_stats_timestamp_seconds",
        "When the figures were taken, as Unix time of the database's clock.",
        (),
        lambda s: {(): s.taken_at},
    ),
    Figure(
        "redrive_queue_depth",
        "Jobs in the queue, by state.",
        ("queue", "state"),
        lambda s: {
            (d.queue, state): getattr(d, state) for d in s.depths for state in STATES
        },
    ),
    Figure(
        "redrive_queue_oldest_ready_age_seconds",
        "How long the oldest ready job has been due.",
        ("queue",),
        lambda s: {(d.queue,): d.oldest_ready_seconds for d in s.depths},
    ),
    Figure(
        "redrive_jobs_unhandled",
        "Due jobs of a kind that no live worker of their queue handles.",
        ("queue", "kind"),
        lambda s: {(u.queue, u.kind): u.jobs for u in s.unhandled},
    ),
    Figure(
        "redrive_queue_paused",
        "1 while the queue is paused, else 0.",
        ("queue",),
        lambda s: {(d.queue,): d.paused for d in s.depths},
    ),
    Figure(
        "redrive_dlq_added_per_minute",
        "Dead letters added in the last full minute.",
        ("queue",),
        lambda s: {(queue,): n for queue, n in s.added_per_minute.items()},
    ),
    Figure(
        "redrive_dlq_oldest_age_seconds",
        "Age of the oldest open dead letter.",
        ("queue",),
        lambda s: {(queue,): age for queue, age in s.oldest_dead.items()},
    ),
    Figure(
        "redrive_queue_objective",
        "Alert thresholds of the queue.",
        ("queue", "objective"),
        _objectives,
    ),
    Figure(
        "redrive_circuit_breaker_state",
        "1 for the state the breaker is in, 0 for the others.",
        ("breaker", "state"),
        lambda s: {
            (name, state): state == current
            for name, current in s.breakers.items()
            for state in BREAKER_STATES
        },
    ),
    Figure(
        "redrive_limit_slots",
        "Jobs that may run at once under the limit.",
        ("limit",),
        lambda s: {(n.name,): n.slots for n in s.limits if n.slots is not None},
    ),
    Figure(
        "redrive_limit_slots_used",
        "Jobs that run under the limit; of `customer:*` those of all keys.",
        ("limit",),
        lambda s: {(n.name,): n.used for n in s.limits},
    ),
    Figure(
        "redrive_limit_waiting",
        "Jobs that wait behind the limit, as far as 100,000 are looked at.",
        ("limit",),
        lambda s: {(n.name,): n.waiting for n in s.limits},
    ),
    Figure(
        "redrive_campaigns",
        "Campaigns that are not over, by state.",
        ("state",),
        _campaigns,
    ),
    Figure(
        "redrive_campaign_waiting_jobs",
        "Dead letters of campaigns whose turn has not come.",
        (),
        lambda s: {(): sum(c.waiting for c in s.campaigns)},
    ),
    Figure(
        "redrive_campaign_dead_again_ratio",
        "Share of what campaigns put back that died again; of several the largest.",
        (),
        _dead_again,
    ),
    Figure(
        "redrive_maintenance_last_success_timestamp_seconds",
        "When the task last succeeded, as Unix time; 0 if it never has.",
        ("task",),
        lambda s: {(chore.task,): chore.ran_at or 0.0 for chore in s.chores},
    ),
    Figure(
        "redrive_maintenance_interval_seconds",
        "How often the task should run.",
        ("task",),
        lambda s: {(chore.task,): chore.every for chore in s.chores if chore.every},
    ),
    Figure(
        "redrive_maintenance_expected_timestamp_seconds",
        "Since when the task is expected to run that often, as Unix time.",
        ("task",),
        lambda s: {(task,): since for task, since in s.expected.items()},
    ),
    Figure(
        "redrive_schedule_overdue_seconds",
        "How late the slot is that has waited longest, of schedules that are declared and not"
        " paused.",
        (),
        lambda s: {(): s.schedule_overdue},
    ),
    Figure(
        "redrive_workers",
        "Workers with a recent heartbeat.",
        (),
        lambda s: {(): s.workers},
    ),
    Figure(
        "redrive_workers_lost",
        "Workers without a recent heartbeat that hold jobs which have not been rescued yet.",
        (),
        lambda s: {(): s.workers_lost},
    ),
    Figure(
        "redrive_pg_oldest_transaction_age_seconds",
        "Age of the oldest transaction that holds back vacuum.",
        (),
        lambda s: {(): s.oldest_transaction},
    ),
    Figure(
        "redrive_pg_table_dead_tuples",
        "Dead rows in the table.",
        ("table",),
        lambda s: {(table.name,): table.dead_rows for table in s.tables},
    ),
    Figure(
        "redrive_pg_table_size_bytes",
        "Size of the table with its indexes.",
        ("table",),
        lambda s: {(table.name,): table.size for table in s.tables},
    ),
)


# ---------------------------------------------------------------------- reading it


class DatabaseStats:
    """Reads the figures for one process; scrapes within two seconds share one
    reading.
    """

    def __init__(self, where: Address | str) -> None:
        self.link = Link(where, "redrive stats", statement_timeout="5s")
        Watchdog(
            self.link
        ).start()  # a server that is frozen ends no statement by itself
        self._lock = threading.Lock()
        self._decode = msgspec.json.Decoder(Snapshot).decode
        self._families: list[Metric] = []
        self._fresh_until = self._wanted_until = float("-inf")

    def collect(self) -> Iterator[Metric]:
        """The families; only `redrive_stats_up` when the database cannot be read."""
        self._wanted_until = time.monotonic() + WANTED_SECONDS
        if time.monotonic() > self._fresh_until:
            with self._lock:
                if (
                    time.monotonic() > self._fresh_until
                ):  # whoever had the lock may have read them
                    self._renew(MAX_AGE_SECONDS)
        yield from self._families

    def read_ahead(self) -> None:
        """Read for the next scrape, if there was one lately; to be called every two
        seconds.
        """
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
        began = time.monotonic()
        body = self._fetch()
        yield up(is_up=body is not None)
        if body is not None:
            snapshot = self._decode(body)
            about_duration = "How long reading the database's figures took."
            duration = time.monotonic() - began
            yield _gauge(
                "redrive_stats_duration_seconds", about_duration, (), {(): duration}
            )
            yield from self._translate(snapshot)

    def _fetch(self) -> str | None:
        """The snapshot as JSON; None when it cannot be read or is too old to be
        shown.
        """
        try:
            with (
                self.link.use(bound=6.0) as conn,
                conn.cursor(row_factory=namedtuple_row) as cursor,
            ):
                row: Any = cursor.execute(
                    "select body::text as body, extract(epoch from clock_timestamp())::float8"
                    " - (body ->> 'taken_at')::float8 as age"
                    " from redrive.stats_v1(%s * interval '1 second') as s(body)",
                    (MAX_AGE_SECONDS,),
                ).fetchone()
        except psycopg.Error:
            return None
        # age is null until the first snapshot is there
        return row.body if row.age is not None and row.age < STALE_SECONDS else None

    def _translate(self, snapshot: Snapshot) -> Iterator[Metric]:
        """The families of a snapshot."""
        for figure in FIGURES:
            yield _gauge(
                figure.name, figure.help, figure.labels, figure.values(snapshot)
            )
        yield from self._totals(snapshot)

    def _totals(self, snapshot: Snapshot) -> Iterator[Metric]:
        tallies = _by_event(snapshot.totals)
        kinds = _born(tallies)
        for total in COUNTERS:
            yield _counter(total, total.add_up(tallies, kinds))
        depths = DLQ_DEPTH.add_up(_by_event(_where_it_is(snapshot)), kinds)
        shown = {labels: max(0.0, depth) for labels, depth in depths.items()}
        yield _gauge(DLQ_DEPTH.name, DLQ_DEPTH.help, tuple(DLQ_DEPTH.labels), shown)


def up(*, is_up: bool) -> Metric:
    """Return the metric that says whether the following figures could be read."""
    about = "1 if the database's figures could be read, else 0."
    return _gauge("redrive_stats_up", about, (), {(): is_up})


def _by_event(totals: Iterable[Tally]) -> Mapping[str, Sequence[Tally]]:
    tallies: dict[str, list[Tally]] = defaultdict(list)
    for tally in totals:
        tallies[tally.event].append(tally)
    return tallies


def _where_it_is(snapshot: Snapshot) -> Iterator[Tally]:
    """The totals, with what is counted among `other` put back where it is."""
    yield from snapshot.totals
    for base in snapshot.bases:
        yield base
        yield Tally(OTHER, base.kind, base.event, base.reason, -base.n)


def _born(tallies: Mapping[str, Sequence[Tally]]) -> set[Labels]:
    """The kinds that are known, each on its queue."""
    return {(tally.queue, tally.kind) for event in BIRTHS for tally in tallies[event]}


def _counter(total: Total, values: Values) -> Metric:
    """A counter as the database has it now, even if it was restored and has forgotten
    some.

    Every process shows the same that way. The alerts bear a step down; held up, the
    figure would hide what dies until it is passed again.
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
