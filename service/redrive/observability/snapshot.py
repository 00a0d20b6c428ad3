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
    campaigns: list[Campaign] = []
    expected: dict[str, float] = {}
    schedule_overdue: float = 0.0
    limits: list[Limit] = []
    kind_objectives: list[KindObjective] = []
    owners: list[Owner] = []
    unacknowledged: list[Unacknowledged] = []
