"""Result of `redrive.stats_v1`: figures about all queues, taken at one instant."""

from typing import NamedTuple

import msgspec


class Tally(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Count of an event.

    `reason`: the reason of a death, or the outcome of a redriven job. `kind` is empty
    for kinds that are no longer counted separately; the queue's total includes them.
    """

    queue: str
    kind: str
    event: str
    reason: str
    n: float


class Depth(msgspec.Struct, frozen=True, gc=False):
    """Jobs of a queue by state, and how long its oldest ready job has been due."""

    queue: str
    ready: int
    scheduled: int
    retrying: int
    running: int
    oldest_ready_seconds: float
    paused: bool


class Objective(NamedTuple):
    """Threshold of the alerts; `*` = every queue without a threshold of its own."""

    queue: str
    name: str
    value: float


class KindObjective(NamedTuple):
    """Threshold of the alerts on a kind of a queue; `*` = all queues, or all kinds."""

    queue: str
    kind: str
    name: str
    value: float


class Owner(NamedTuple):
    """Owner of a queue; with a kind, of the jobs of this kind on the queue."""

    queue: str
    kind: str
    owner: str


class Unacknowledged(NamedTuple):
    """Groups of a queue that nobody acknowledged.

    `dead_letters`: their open dead letters. `age_seconds`: how long the first of these
    groups has waited.
    """

    queue: str
    dead_letters: int
    age_seconds: float


class NewestGroup(NamedTuple):
    """Group of a queue that opened last (Unix time) and that nobody acknowledged."""

    queue: str
    kind: str
    group: str
    opened_at: float


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
    """Campaign that is not over.

    `waiting`: dead letters whose turn has not come. `ended`: jobs that ended. `dead`:
    jobs that died again.
    """

    state: str
    waiting: int
    ended: int
    dead: int


class Unhandled(NamedTuple):
    """Due jobs of a kind that no worker of their queue handles."""

    queue: str
    kind: str
    jobs: int


class FailingJobs(NamedTuple):
    """Jobs of a kind that have failed and are retried, by category of their failure."""

    queue: str
    kind: str
    category: str
    jobs: int


class FailingCause(NamedTuple):
    """Cause of most failing jobs of a kind. `since`: its first failure, as Unix time."""

    queue: str
    kind: str
    category: str
    group: str
    since: float


class Behind(NamedTuple):
    """Kind with failing jobs that wait, because a breaker is open."""

    kind: str
    breaker: str


class Failing(msgspec.Struct, frozen=True):
    """Result of `redrive.failing_figures_v1`."""

    jobs: list[FailingJobs] = []
    causes: list[FailingCause] = []
    behind: list[Behind] = []


class Connections(NamedTuple):
    """Used and available connections; `scope` is `server` or `database`."""

    scope: str
    used: int
    available: int


class FreezeAge(NamedTuple):
    """Age of the oldest id that is not frozen.

    `counter`: `transaction` or `multixact`. `scope`: `server` is the oldest database.
    """

    counter: str
    scope: str
    age: int


class Vacuumed(NamedTuple):
    """Dead rows of a table, how many start autovacuum, and the last vacuum's age."""

    table: str
    dead_rows: int
    threshold: float
    seconds: float | None


class Standby(NamedTuple):
    """WAL that a receiver has not applied yet, in bytes and as a delay."""

    name: str
    lag_bytes: float
    lag_seconds: float


class Slot(NamedTuple):
    """Replication slot, and the bytes of WAL that the server keeps for it."""

    name: str
    is_active: bool
    kept_bytes: float


class Names(NamedTuple):
    """Used and allowed names; `what` is `queues` or `kinds`."""

    what: str
    used: int
    allowed: int


class LongTransaction(NamedTuple):
    """Transaction that has held vacuum back for long.

    `session`: its process id, or the name of a prepared transaction.
    """

    session: str
    login: str
    application: str
    seconds: float


class Health(msgspec.Struct, frozen=True):
    """Result of `redrive.health_v1`.

    If the schema's owner may not see all sessions (`sees_sessions`), what it cannot see
    is empty. `horizons`: holder of vacuum's horizon -> age in transactions. `disk`: bytes
    of `dead_letters` and of `history`.
    """

    sees_sessions: bool
    connections: list[Connections]
    horizons: dict[str, int]
    freeze: list[FreezeAge]
    freeze_at: dict[str, int]
    tables: list[Vacuumed]
    standbys: list[Standby]
    slots: list[Slot]
    database_size: float | None
    schema_size: float
    sequences: dict[str, float]
    limits: dict[str, float]
    campaigns: dict[str, float]
    heals_aborted: int
    names: list[Names] = []
    disk: dict[str, float] = {}
    oldest_transaction: LongTransaction | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """Result of `redrive.stats_v1`. Instants are Unix time, ages seconds.

    `bases`: counts from the time when a queue was part of `other`. `totals` still
    counts them under `other`.
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
    # A snapshot of the previous release has none of these.
    unhandled: list[Unhandled] = []
    bases: list[Tally] = []
    oldest_retrying: dict[str, float] = {}
    campaigns: list[Campaign] = []
    expected: dict[str, float] = {}
    schedule_overdue: float = 0.0
    limits: list[Limit] = []
    kind_objectives: list[KindObjective] = []
    owners: list[Owner] = []
    unacknowledged: list[Unacknowledged] = []
    newest_groups: list[NewestGroup] = []
    health: Health | None = None
    failing: Failing = Failing()
