"""Metric families from the database's figures: what each shows, and where from."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from redrive.observability.snapshot import Snapshot, Tally
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

Labels = tuple[str, ...]
Values = Mapping[Labels, float]
"""Values of one family, by label values."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A family of gauges whose values come from the snapshot."""

    name: str
    help: str
    labels: Labels
    values: Callable[[Snapshot], Values]


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


def _campaigns(snapshot: Snapshot) -> Values:
    """Count campaigns by state."""
    states = [campaign.state for campaign in snapshot.campaigns]
    return {(state,): states.count(state) for state in CAMPAIGN_STATES}


def _dead_again(snapshot: Snapshot) -> Values:
    """Return the largest share of jobs that died again, among all campaigns."""
    shares = (c.dead / c.ended for c in snapshot.campaigns if c.ended)
    return {(): max(shares, default=0.0)}


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
        _depths,
    ),
    Figure(
        "redrive_queue_oldest_ready_age_seconds",
        "How long the oldest ready job has been due.",
        ("queue",),
        lambda s: {(d.queue,): d.oldest_ready_seconds for d in s.depths},
    ),
    Figure(
        "redrive_queue_retrying_age_seconds",
        "How long ago the first failure of the oldest retrying job was.",
        ("queue",),
        lambda s: {(queue,): age for queue, age in s.oldest_retrying.items()},
    ),
    Figure(
        "redrive_failing_jobs",
        "Jobs that have failed and are retried, by category of their last failure.",
        ("queue", "kind", "category"),
        lambda s: {(f.queue, f.kind, f.category): f.jobs for f in s.failing.jobs},
    ),
    Figure(
        "redrive_failing_since_timestamp_seconds",
        "First failure of the cause that has most failing jobs of the kind, as Unix time.",
        ("queue", "kind", "category", "group"),
        lambda s: {tuple(cause[:4]): cause.since for cause in s.failing.causes},
    ),
    Figure(
        "redrive_failing_behind_breaker",
        "1 for a kind with failing jobs that wait, because this breaker is open.",
        ("kind", "breaker"),
        lambda s: dict.fromkeys(s.failing.behind, 1.0),
    ),
    Figure(
        "redrive_jobs_unhandled",
        "Due jobs of a kind that no live worker of their queue handles.",
        ("queue", "kind"),
        lambda s: {(u.queue, u.kind): u.jobs for u in s.unhandled},
    ),
    Figure(
        "redrive_queue_paused",
        "1 while the queue is paused.",
        ("queue",),
        lambda s: {(d.queue,): 1.0 for d in s.depths if d.paused},
    ),
    Figure(
        "redrive_dlq_added_per_minute",
        "Dead letters added in the last full minute.",
        ("queue",),
        lambda s: {(queue,): n for queue, n in s.added_per_minute.items() if n},
    ),
    Figure(
        "redrive_dlq_oldest_age_seconds",
        "Age of the oldest open dead letter.",
        ("queue",),
        lambda s: {(queue,): age for queue, age in s.oldest_dead.items()},
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
        lambda s: dict.fromkeys(s.owners, 1.0),
    ),
    Figure(
        "redrive_dlq_unacknowledged",
        "Open dead letters of groups that nobody acknowledged.",
        ("queue",),
        lambda s: {(u.queue,): u.dead_letters for u in s.unacknowledged},
    ),
    Figure(
        "redrive_dlq_unacknowledged_age_seconds",
        "How long a group has had open dead letters and no acknowledgement, at most.",
        ("queue",),
        lambda s: {(u.queue,): u.age_seconds for u in s.unacknowledged},
    ),
    Figure(
        "redrive_dlq_newest_group",
        "When the newest group that nobody acknowledged opened, as Unix time.",
        ("queue", "kind", "group"),
        lambda s: {(g.queue, g.kind, g.group): g.opened_at for g in s.newest_groups},
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
        lambda s: {(n.name,): n.slots for n in s.limits if n.slots is not None},
    ),
    Figure(
        "redrive_limit_slots_used",
        "Running jobs under the limit; `customer:*` includes all its keys.",
        ("limit",),
        lambda s: {(n.name,): n.used for n in s.limits},
    ),
    Figure(
        "redrive_limit_waiting",
        "Jobs that wait for the limit; at most 100,000 are counted.",
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
        "Dead letters whose turn has not come, of campaigns that have not aborted.",
        (),
        lambda s: {(): sum(c.waiting for c in s.campaigns if c.state != "aborted")},
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
        "When this interval began to apply to the task, as Unix time.",
        ("task",),
        lambda s: {(task,): since for task, since in s.expected.items()},
    ),
    Figure(
        "redrive_schedule_overdue_seconds",
        "Delay of the latest slot among declared schedules that are not paused.",
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
        "Workers without a recent heartbeat whose jobs have not been rescued yet.",
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
