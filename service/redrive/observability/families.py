"""Metric families from the database's figures: what each shows, and where from."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast

from redrive.observability.snapshot import Health, Snapshot, Tally
from redrive.rules.model import BREAKER_STATES, Reason

STATES = ("ready", "scheduled", "retrying", "running")
OPEN_ENDS = frozenset({"redriven", "dismissed", "purged"})
"""Events that take a dead letter out of the open ones."""

REMOVALS = OPEN_ENDS | {"resolved"}
OUTCOMES = ("succeeded", "dead_again", "cancelled", "blocked")
REASONS = tuple(reason.value for reason in Reason)
OTHER = "other"
"""Name for queues, and for kinds, beyond the number that is exported separately.

`redrive.shown_v1` chooses which ones are exported.
"""

MAX_ZERO_PAIRS = 500
"""Largest number of (queue, kind) pairs whose counters are exported as 0 at first."""

T = TypeVar("T")
Labels = tuple[str, ...]
Values = Mapping[Labels, float]
"""Values of one family, by label values."""


@dataclass(frozen=True, slots=True)
class Figure(Generic[T]):
    """A family of gauges whose values come from the snapshot.

    Args:
        source: function that returns rows, values by label, or the only value. A row
            begins with its labels. None = no values.
        value: field of a row that has the value; rows without a value are left out.
            "" = 1 for every row.
    """

    name: str
    help: str
    labels: Labels
    source: Callable[[T], Iterable[Any] | float | None]
    value: str = ""

    def values(self, of: T) -> Values:
        """Return the values, by their labels."""
        found: Any = self.source(of)
        if found is None:
            return {}
        if isinstance(found, int | float):
            return {(): found}
        if isinstance(found, dict):
            values = cast("dict[Any, float]", found).items()
            return {n if isinstance(n, tuple) else (n,): value for n, value in values}

        of_rows = ((row[: len(self.labels)], self._value(row)) for row in found)
        return {labels: value for labels, value in of_rows if value is not None}

    def _value(self, row: Any) -> float | None:
        return getattr(row, self.value) if self.value else 1.0


@dataclass(frozen=True, slots=True)
class Total:
    """A family that adds up tallies.

    Args:
        labels: label -> the field of a tally that it shows.
        events: counted event -> 1 or -1.
        known: values of the last label that are exported as 0 before they happen,
            unless there are too many (queue, kind) pairs.
    """

    name: str
    help: str
    labels: Mapping[str, str]
    events: Mapping[str, int]
    known: tuple[str, ...] = ()

    def add_up(
        self, tallies: Mapping[str, Sequence[Tally]], kinds: Collection[Labels]
    ) -> Values:
        """Return the values.

        Args:
            tallies: the tallies by event.
            kinds: the (queue, kind) pairs whose values are at least 0.
        """
        values = defaultdict(float, self._zeros(kinds))
        labels_of: Callable[[Tally], Labels] = attrgetter(*self.labels.values())

        for event, sign in self.events.items():
            for tally in filter(self._counts, tallies[event]):
                labels = labels_of(tally)
                values[labels] += sign * tally.n

        return values

    def _counts(self, tally: Tally) -> bool:
        return bool(tally.kind) or "kind" not in self.labels

    def _zeros(self, kinds: Collection[Labels]) -> dict[Labels, float]:
        """Return the values that are exported as 0 from the start.

        increase() does not notice the first step of a series that did not exist. With
        more than MAX_ZERO_PAIRS pairs, only events that have happened are exported. The
        alerts handle a series that begins above 0.
        """
        label_sets = self._label_sets(kinds)
        if not self.known:
            return dict.fromkeys(label_sets, 0.0)
        if len(kinds) > MAX_ZERO_PAIRS:
            return {}

        return {(*labels, value): 0.0 for labels in label_sets for value in self.known}

    def _label_sets(self, kinds: Collection[Labels]) -> set[Labels]:
        """Return the labels of these pairs: queue and kind, or only the queue."""
        if "kind" in self.labels:
            return {(queue, kind) for queue, kind in kinds if kind}
        return {(queue,) for queue, _ in kinds}


COUNTERS = (
    Total(
        "redrive_dlq_added",
        "Dead letters added.",
        {"queue": "queue", "kind": "kind", "reason": "reason"},
        {"dead": 1},
        known=REASONS,
    ),
    Total(
        "redrive_dlq_groups_new",
        "Groups of dead letters that did not exist before.",
        {"queue": "queue", "kind": "kind"},
        {"new_group": 1},
    ),
    Total(
        "redrive_dlq_group_regressions",
        "Resolved groups that died in a version with the fix.",
        {"queue": "queue", "kind": "kind"},
        {"regressed": 1},
    ),
    Total(
        "redrive_dlq_imported",
        "Dead letters imported from files, or long after their death. They do not count as added.",
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
        "Outcomes of redriven jobs.",
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
"""States of campaigns that are not over."""

FIRST_EVENTS = ("enqueued", "completed", "dead", "imported")
"""Events that make a kind known on a queue."""


def _campaigns(snapshot: Snapshot) -> dict[str, int]:
    """Count campaigns by state."""
    states = [campaign.state for campaign in snapshot.campaigns]
    return {state: states.count(state) for state in CAMPAIGN_STATES}


def _dead_again(snapshot: Snapshot) -> float:
    """Return the largest share of jobs that died again, among all campaigns."""
    shares = (c.dead / c.ended for c in snapshot.campaigns if c.ended)
    return max(shares, default=0.0)


def _objectives(snapshot: Snapshot) -> Values:
    """Return the thresholds that queues have of their own, and the defaults of queue `*`."""
    own = {(o.queue, o.name): o.value for o in snapshot.objectives}
    return own | {
        (o.queue, o.name): o.value for o in snapshot.kind_objectives if o.kind == "*"
    }


def _kind_objectives(snapshot: Snapshot) -> Values:
    """Return the thresholds of kinds that have their own."""
    return {
        (o.queue, o.kind, o.name): o.value
        for o in snapshot.kind_objectives
        if o.kind != "*"
    }


def _depths(snapshot: Snapshot) -> Values:
    """Return the jobs of each queue, without zeros that no alert and no autoscaler needs."""
    return {
        (depth.queue, state): jobs
        for depth in snapshot.depths
        for state in STATES
        if (jobs := getattr(depth, state)) or state in {"ready", "running"}
    }


FIGURES: tuple[Figure[Snapshot], ...] = (
    Figure(
        "redrive_stats_timestamp_seconds",
        "When the figures were taken, as Unix time of the database's clock.",
        (),
        lambda s: s.taken_at,
    ),
    Figure(
        "redrive_queue_depth",
        "Jobs in the queue, by state.",
        ("queue", "state"),
        _depths,
    ),
    Figure(
        "redrive_queue_oldest_ready_age_seconds",
        "How long the oldest ready job has been due.",
        ("queue",),
        lambda s: {d.queue: d.oldest_ready_seconds for d in s.depths},
    ),
    Figure(
        "redrive_queue_retrying_age_seconds",
        "How long ago the first failure of the oldest retrying job was.",
        ("queue",),
        lambda s: s.oldest_retrying,
    ),
    Figure(
        "redrive_failing_jobs",
        "Jobs that have failed and are retried, by category of their last failure.",
        ("queue", "kind", "category"),
        lambda s: s.failing.jobs,
        "jobs",
    ),
    Figure(
        "redrive_failing_since_timestamp_seconds",
        "First failure of the cause that has most failing jobs of the kind, as Unix time.",
        ("queue", "kind", "category", "group"),
        lambda s: s.failing.causes,
        "since",
    ),
    Figure(
        "redrive_failing_behind_breaker",
        "1 for a kind with failing jobs that wait, because this breaker is open.",
        ("kind", "breaker"),
        lambda s: s.failing.behind,
    ),
    Figure(
        "redrive_jobs_unhandled",
        "Due jobs of a kind that no live worker of their queue handles.",
        ("queue", "kind"),
        lambda s: s.unhandled,
        "jobs",
    ),
    Figure(
        "redrive_queue_paused",
        "1 while the queue is paused.",
        ("queue",),
        lambda s: {d.queue: 1.0 for d in s.depths if d.paused},
    ),
    Figure(
        "redrive_dlq_added_per_minute",
        "Dead letters added in the last full minute.",
        ("queue",),
        lambda s: {queue: n for queue, n in s.added_per_minute.items() if n},
    ),
    Figure(
        "redrive_dlq_oldest_age_seconds",
        "Age of the oldest open dead letter.",
        ("queue",),
        lambda s: s.oldest_dead,
    ),
    Figure(
        "redrive_queue_objective",
        "Alert thresholds of the queue; `*` = all queues without one of their own.",
        ("queue", "objective"),
        _objectives,
    ),
    Figure(
        "redrive_kind_objective",
        "Alert thresholds of a kind on a queue, if it has its own.",
        ("queue", "kind", "objective"),
        _kind_objectives,
    ),
    Figure(
        "redrive_owner",
        "1 for the owner of the queue, or of a kind that fails or has objectives of its own.",
        ("queue", "kind", "owner"),
        lambda s: s.owners,
    ),
    Figure(
        "redrive_dlq_unacknowledged",
        "Open dead letters of groups that nobody acknowledged.",
        ("queue",),
        lambda s: s.unacknowledged,
        "dead_letters",
    ),
    Figure(
        "redrive_dlq_unacknowledged_age_seconds",
        "How long a group has had open dead letters and no acknowledgement, at most.",
        ("queue",),
        lambda s: s.unacknowledged,
        "age_seconds",
    ),
    Figure(
        "redrive_dlq_newest_group",
        "When the newest group that nobody acknowledged opened, as Unix time.",
        ("queue", "kind", "group"),
        lambda s: s.newest_groups,
        "opened_at",
    ),
    Figure(
        "redrive_circuit_breaker_state",
        "1 for the breaker's current state, 0 for the other states.",
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
        lambda s: s.limits,
        "slots",
    ),
    Figure(
        "redrive_limit_slots_used",
        "Running jobs under the limit; `customer:*` includes all its keys.",
        ("limit",),
        lambda s: s.limits,
        "used",
    ),
    Figure(
        "redrive_limit_waiting",
        "Jobs that wait for the limit; at most 100,000 are counted.",
        ("limit",),
        lambda s: s.limits,
        "waiting",
    ),
    Figure(
        "redrive_campaigns",
        "Campaigns that are not over, by state.",
        ("state",),
        _campaigns,
    ),
    Figure(
        "redrive_campaign_waiting_jobs",
        "Dead letters whose turn has not come, of campaigns that have not aborted.",
        (),
        lambda s: sum(c.waiting for c in s.campaigns if c.state != "aborted"),
    ),
    Figure(
        "redrive_campaign_dead_again_ratio",
        "Share of redriven jobs that died again, in the campaign with the largest share.",
        (),
        _dead_again,
    ),
    Figure(
        "redrive_maintenance_last_success_timestamp_seconds",
        "When the task last succeeded, as Unix time; 0 if it never has.",
        ("task",),
        lambda s: {chore.task: chore.ran_at or 0.0 for chore in s.chores},
    ),
    Figure(
        "redrive_maintenance_interval_seconds",
        "How often the task should run.",
        ("task",),
        lambda s: s.chores,
        "every",
    ),
    Figure(
        "redrive_maintenance_expected_timestamp_seconds",
        "When this interval began to apply to the task, as Unix time.",
        ("task",),
        lambda s: s.expected,
    ),
    Figure(
        "redrive_schedule_overdue_seconds",
        "Delay of the latest slot among declared schedules that are not paused.",
        (),
        lambda s: s.schedule_overdue,
    ),
    Figure(
        "redrive_workers", "Workers with a recent heartbeat.", (), lambda s: s.workers
    ),
    Figure(
        "redrive_workers_lost",
        "Workers without a recent heartbeat whose jobs have not been rescued yet.",
        (),
        lambda s: s.workers_lost,
    ),
    Figure(
        "redrive_pg_oldest_transaction_age_seconds",
        "Age of the oldest transaction that holds back vacuum.",
        (),
        lambda s: s.oldest_transaction,
    ),
    Figure(
        "redrive_pg_table_dead_tuples",
        "Dead rows in the table.",
        ("table",),
        lambda s: s.tables,
        "dead_rows",
    ),
    Figure(
        "redrive_pg_table_size_bytes",
        "Size of the table with its indexes.",
        ("table",),
        lambda s: s.tables,
        "size",
    ),
)


HEALTH_FIGURES: tuple[Figure[Health], ...] = (
    Figure(
        "redrive_pg_connections",
        "Connections in use, of the whole server or of this database.",
        ("scope",),
        lambda h: h.connections,
        "used",
    ),
    Figure(
        "redrive_pg_connections_available",
        "Connections that may be in use, without the reserved ones.",
        ("scope",),
        lambda h: h.connections,
        "available",
    ),
    Figure(
        "redrive_pg_horizon_age_transactions",
        "Transactions since vacuum's horizon, by what holds it back.",
        ("holder",),
        lambda h: h.horizons,
    ),
    Figure(
        "redrive_pg_long_transaction_age_seconds",
        "Age of the oldest transaction that holds back vacuum, if above five minutes.",
        ("session", "login", "application"),
        lambda h: filter(None, [h.oldest_transaction]),
        "seconds",
    ),
    Figure(
        "redrive_pg_freeze_age",
        "Age of the oldest transaction or multixact id that is not frozen.",
        ("counter", "scope"),
        lambda h: h.freeze,
        "age",
    ),
    Figure(
        "redrive_pg_freeze_max_age",
        "Age at which autovacuum begins to freeze in any case.",
        ("counter",),
        lambda h: h.freeze_at,
    ),
    Figure(
        "redrive_pg_table_vacuum_threshold",
        "Dead rows at which autovacuum begins to clean the table.",
        ("table",),
        lambda h: h.tables,
        "threshold",
    ),
    Figure(
        "redrive_pg_table_vacuum_age_seconds",
        "Time since the table was last vacuumed; absent if it never was.",
        ("table",),
        lambda h: h.tables,
        "seconds",
    ),
    Figure(
        "redrive_pg_replication_lag_bytes",
        "WAL that the standby has not applied.",
        ("standby",),
        lambda h: h.standbys,
        "lag_bytes",
    ),
    Figure(
        "redrive_pg_replication_lag_seconds",
        "Delay of the standby.",
        ("standby",),
        lambda h: h.standbys,
        "lag_seconds",
    ),
    Figure(
        "redrive_pg_replication_slot_kept_bytes",
        "WAL that the server keeps for the replication slot.",
        ("slot",),
        lambda h: h.slots,
        "kept_bytes",
    ),
    Figure(
        "redrive_pg_replication_slot_active",
        "1 while a receiver uses the replication slot, else 0.",
        ("slot",),
        lambda h: h.slots,
        "is_active",
    ),
    Figure(
        "redrive_pg_database_size_bytes",
        "Size of the database.",
        (),
        lambda h: h.database_size,
    ),
    Figure(
        "redrive_pg_schema_size_bytes",
        "Size of Redrive's tables and indexes, as vacuum last estimated it.",
        (),
        lambda h: h.schema_size,
    ),
    Figure(
        "redrive_disk_used_bytes",
        "Size of dead letters with their failures, and of the history, as vacuum last"
        " estimated it.",
        ("what",),
        lambda h: h.disk,
    ),
    Figure(
        "redrive_pg_sequence_used_ratio",
        "Share of the sequence's values that is used.",
        ("sequence",),
        lambda h: h.sequences,
    ),
    Figure(
        "redrive_names_used_ratio",
        "Share of the allowed names of queues, or of kinds, that is in use.",
        ("names",),
        lambda h: {n.what: n.used / max(n.allowed, 1) for n in h.names},
    ),
    Figure(
        "redrive_limit_oldest_wait_seconds",
        "How long a job has waited for the limit; `customer:*` includes all its keys.",
        ("limit",),
        lambda h: h.limits,
    ),
    Figure(
        "redrive_campaign_idle_seconds",
        "Time since the last step of a campaign with dead letters left, by state.",
        ("state",),
        lambda h: h.campaigns,
    ),
    Figure(
        "redrive_heals_aborted",
        "Campaigns of heal that aborted in the last day.",
        (),
        lambda h: h.heals_aborted,
    ),
)
"""Figures about the server, and about work that somebody has left behind.

A family has no values if the database may not show them, or shows none.
"""


def by_event(totals: Iterable[Tally]) -> Mapping[str, Sequence[Tally]]:
    """Return the tallies by event."""
    tallies: dict[str, list[Tally]] = defaultdict(list)
    for tally in totals:
        tallies[tally.event].append(tally)
    return tallies


def by_current_queue(snapshot: Snapshot) -> Iterator[Tally]:
    """Yield the totals, with the bases moved from `other` to their own queues."""
    yield from snapshot.totals
    for base in snapshot.bases:
        yield base
        yield Tally(
            queue=OTHER, kind=base.kind, event=base.event, reason=base.reason, n=-base.n
        )


def known_kinds(tallies: Mapping[str, Sequence[Tally]]) -> set[Labels]:
    """Return the (queue, kind) pairs that had one of FIRST_EVENTS."""
    first = chain.from_iterable(tallies[event] for event in FIRST_EVENTS)
    return {(tally.queue, tally.kind) for tally in first}
