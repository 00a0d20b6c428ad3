"""Statements of the worker, one function each: rows in, rows out, no decisions.

Those of an exchange are in `exchange`.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, LiteralString, NamedTuple

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from redrive.database.arrays import Texts
from redrive.database.rows import column, records, value
from redrive.rules.heal import Heal
from redrive.rules.slots import Declaration
from redrive.worker.protocol import Dependency, Sampled, SideEffect
from redrive.worker.round_trip import Lane

Connection = psycopg.Connection[tuple[Any, ...]]

STEPS_SECONDS = 1.0
"""Longest time of a chore in short steps: others share its connection."""
FORGET_BATCH = 1000
"""Rows of each table that one step of `forget` looks at or deletes."""

_KEEP_CHECKPOINTS = (
    "select id, delivery, is_kept from redrive.keep_checkpoints_v1("
    "%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::jsonb[])"
)
_KEEP_PROGRESS = (
    "select redrive.keep_progress_v1("
    "%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::float8[], %s::jsonb[])"
)
_SIDE_EFFECTS = "select redrive.side_effects_v1(%s::int[], %s::bigint[], %s::int[], %s::text[], %s::jsonb[])"
_BEAT = (
    "select alive, others, place, late"
    " from redrive.beat_v2(%s::int[], %s::int[], %s::jsonb[])"
)
_BEAT_ONLY = "select redrive.beat_v1(%s::int[], %s::int[], %s::jsonb[])"
MOST_LANES = 1000
"""Lanes that one look returns."""

_LANES = (
    "select queue, priority, lane, due_in, is_paused"
    " from redrive.lanes_v2(%s::text[], %s, %s, %s, %s)"
)
_NEW_LANES = (
    "select queue, priority, lane, due_in from redrive.new_lanes_v1(%s::text[])"
)
_FOLD_STEPS: tuple[LiteralString, ...] = (
    "select moved, more from redrive.fold_v1()",
    "select moved, more from redrive.fold_groups_v1()",
)
_BREAKERS = (
    "select name, state, open_for, failing from redrive.breakers_v1("
    "%s::text[], %s::int[], %s::int[], %s::int[], %s::float8[], %s::float8[])"
)

_COUNT_TIMES: LiteralString = (
    "select redrive.count_times_v1(%s::text[], %s::text[], %s::text[], %s::text[])"
)
_TEND_LIMITS: LiteralString = "select redrive.tend_limits_v1(%s)"
_REGISTER: LiteralString = (
    "select redrive.register_v1("
    "%s, %s, %s * interval '1 second', %s::text[], %s::text[], %s::jsonb, %s::text[])"
)
_DECLARE_LIMITS: LiteralString = (
    "select redrive.declare_limits_v1(%s::text[], %s::jsonb)"
)

WOKEN_AT_A_TIME = 10_000
"""Jobs that one step of `tend_limits` wakes; sql/functions/limits has the same."""

KEYS_AT_A_TIME = 1000
"""Ordering keys that one step of `unpark` looks at; names in `tend_limits`."""

BATCHES_AT_A_TIME = 20
CANCELLATIONS_AT_A_TIME = 1000
HELD_AT_A_TIME = 1000

WorkerSideEffect = tuple[int, SideEffect]
"""Identity that holds a job, and what its handler reported."""


class Noted(NamedTuple):
    """Checkpoint or progress of a held job; `data` is JSON."""

    worker: int
    claim: int
    id: int
    deliveries: int
    data: str
    share: float = 0.0


class Measured(NamedTuple):
    """Number of attempts of a kind in each bucket of their durations and waits."""

    queue: str
    kind: str
    durations: Sequence[int]
    waits: Sequence[int]


class BreakerRow(NamedTuple):
    """State of a dependency; `open_for`: seconds until a probe may be sent."""

    name: str
    state: str
    open_for: float
    failing: bool


class RedriveTerms(NamedTuple):
    """Terms of redrives that a handler declares for its kind.

    Attributes:
        rate: redriven jobs that may begin per second; None = no limit.
        repeatable: False: its jobs must not run twice.
    """

    rate: float | None = None
    repeatable: bool = True


class Registration(NamedTuple):
    """Registration of a worker.

    Attributes:
        ttl: how long it may be silent, in seconds.
        kinds: its kinds; one may be a prefix (`mail.*`).
        queues: the queues to claim from; None = all.
        depends_on: kind -> breakers, for kinds that have any.
        holds: the kinds whose dead letters hold their ordering key.
        limits: kind -> limit templates, for kinds that have any.
        approvals: the kinds whose redrive needs two people.
        heals: kind -> how its dead letters are tried after a deploy.
        redrives: kind -> what its handler says about redrives, if it says any.
    """

    name: str
    version: str
    ttl: float
    kinds: Sequence[str]
    queues: Sequence[str] | None
    depends_on: Mapping[str, Sequence[str]] = {}
    holds: Sequence[str] = ()
    limits: Mapping[str, Sequence[str]] = {}
    approvals: Sequence[str] = ()
    heals: Mapping[str, Heal] = {}
    redrives: Mapping[str, RedriveTerms] = {}


class DueSchedule(NamedTuple):
    """Schedule that is due, by the database's clock: `as_of`.

    `expected`: its `next_at` in the database. `next_at`: None = to be computed, from
    `after` on.
    """

    name: str
    declaration: int
    cron: str
    tz: str
    catch_up: str
    expected: datetime | None
    next_at: datetime | None
    after: datetime
    as_of: datetime


class Rescued(NamedTuple):
    """Result of a rescue: workers lost, jobs rescued, jobs dead-lettered."""

    workers: int
    jobs: int
    dead: int


def side_effects(conn: Connection, reported: Sequence[WorkerSideEffect]) -> set[int]:
    """Keep side effects. Returns the jobs whose side effects must be sent again."""
    found = column(
        conn,
        _SIDE_EFFECTS,
        [worker for worker, _ in reported],
        [effect.id for _, effect in reported],
        [effect.deliveries for _, effect in reported],
        [effect.what for _, effect in reported],
        [effect.detail for _, effect in reported],
    )
    return set(found)


def keep_checkpoints(
    conn: Connection, noted: Sequence[Noted]
) -> dict[tuple[int, int], bool]:
    """Keep checkpoints.

    Returns, for jobs that are still held, (id, deliveries) -> False if it must be sent
    again.
    """
    # The last column is the share, which only progress has.
    *columns, _ = map(list, zip(*noted, strict=True))
    found = conn.execute(_KEEP_CHECKPOINTS, columns)

    return {(job, delivery): is_kept for job, delivery, is_kept in found}


def keep_progress(conn: Connection, noted: Sequence[Noted]) -> None:
    """Keep the progress of jobs that are still held."""
    *columns, data, shares = map(list, zip(*noted, strict=True))
    conn.execute(_KEEP_PROGRESS, (*columns, shares, data))


def is_any_due(
    conn: Connection, queues: Sequence[str] | None, kinds: Sequence[str]
) -> bool:
    """Return True if a free job of these kinds is due. `queues`: None = all."""
    asked = None if queues is None else list(queues), list(kinds)
    return bool(
        value(
            conn,
            "select exists (select from redrive.due_v1(%s::text[], %s::text[]))",
            *asked,
        )
    )


def known_queues(conn: Connection) -> list[str]:
    """Return the queues that ever had a job or a setting."""
    return column(
        conn, "select queue from redrive.totals union select queue from redrive.queues"
    )


def lanes(
    conn: Connection, queues: Sequence[str] | None, after: Lane | None = None
) -> tuple[list[tuple[Lane, float | None]], Lane | None]:
    """Return the lanes that hold jobs, from the one after `after` on.

    Each has the seconds until its next job is due. If there may be more than MOST_LANES,
    the second value is the lane to continue after; otherwise None.
    """
    place = (after.queue, after.priority, after.lane) if after else ("", 0, 0)
    found = conn.execute(
        _LANES, (queues and list(queues), *place, MOST_LANES), prepare=True
    ).fetchall()

    lanes = [
        (Lane(priority, queue, lane), due_in)
        for queue, priority, lane, due_in, is_paused in found
        if not is_paused
    ]
    if len(found) < MOST_LANES:
        return lanes, None

    queue, priority, lane, *_ = found[-1]
    return lanes, Lane(priority, queue, lane)


def new_lanes(
    conn: Connection, queues: Sequence[str] | None
) -> list[tuple[Lane, float]]:
    """Return the lanes of the newest jobs that are due within SOON_SECONDS.

    Each has the seconds until the first of these jobs is due; not above 0: it is due.
    """
    found = conn.execute(
        _NEW_LANES, (queues and list(queues),), prepare=True
    ).fetchall()
    return [
        (Lane(priority, queue, lane), due_in) for queue, priority, lane, due_in in found
    ]


def breakers(
    conn: Connection,
    settings: Sequence[Dependency],
    failures: Mapping[str, int],
    successes: Mapping[str, int],
) -> list[BreakerRow]:
    """Report what was seen of dependencies. Returns their states."""
    return records(
        conn,
        BreakerRow,
        _BREAKERS,
        [d.name for d in settings],
        [failures.get(d.name, 0) for d in settings],
        [successes.get(d.name, 0) for d in settings],
        [d.threshold for d in settings],
        [d.window for d in settings],
        [d.cooldown for d in settings],
    )


def take_probe(conn: Connection, name: str, worker: int, lease: float) -> bool:
    """Try to get the probe of a half-open dependency for `lease` seconds."""
    return bool(
        value(
            conn,
            "select redrive.take_probe_v1(%s, %s, %s * interval '1 second')",
            name,
            worker,
            lease,
        )
    )


def register(conn: Connection, worker: Registration) -> int:
    """Declare what this worker's handlers say, and return a new identity for it."""
    kinds = list(worker.kinds)
    _declare(conn, worker, kinds)
    # Heals wait for a new version, so a worker without a version has none.
    if worker.heals and worker.version:
        declared = {kind: asdict(heal) for kind, heal in worker.heals.items()}
        conn.execute(
            "select redrive.say_heals_v1(%s, %s)", (worker.version, Jsonb(declared))
        )

    queues = None if worker.queues is None else list(worker.queues)
    depends_on = Jsonb(dict(worker.depends_on)) if worker.depends_on else None
    holds = list(worker.holds) or None
    about = worker.name, worker.version, worker.ttl

    return value(conn, _REGISTER, *about, kinds, queues, depends_on, holds) or 0


def _declare(conn: Connection, worker: Registration, kinds: list[str]) -> None:
    """Declare limits, approvals and redrives of these kinds."""
    conn.execute(_DECLARE_LIMITS, (kinds, Jsonb(dict(worker.limits))))
    conn.execute(
        "select redrive.say_approvals_v1(%s::text[], %s::text[])",
        (kinds, list(worker.approvals)),
    )
    redrives = {kind: terms._asdict() for kind, terms in worker.redrives.items()}
    conn.execute(
        "select redrive.declare_redrives_v1(%s::text[], %s)", (kinds, Jsonb(redrives))
    )


class Beaten(NamedTuple):
    """Findings of a heartbeat.

    Attributes:
        alive: the identities that are still alive.
        others: how many other workers look for the same jobs.
        place: how many workers of the same version, kinds and queues come before this one.
        late: seconds since a worker last did the chore `rescue`.
    """

    alive: set[int]
    others: int
    place: int
    late: float


def beat(
    conn: Connection,
    inflight: Mapping[int, int],
    progress: Mapping[int, str] | None = None,
) -> Beaten:
    """Send a heartbeat for each identity, and look at the other workers.

    The look reads the rows of all workers. `beat_only` does not.
    """
    sent = _heartbeats(inflight, progress or {})
    found = conn.execute(_BEAT, sent, prepare=True).fetchone()
    alive, others, place, late = found or ((), 0, 0, 0.0)

    return Beaten(alive=set(alive), others=others, place=place, late=late)


def beat_only(
    conn: Connection,
    inflight: Mapping[int, int],
    progress: Mapping[int, str] | None = None,
) -> set[int]:
    """Send a heartbeat for each identity. Return the identities that are still alive."""
    sent = _heartbeats(inflight, progress or {})
    return {worker for (worker,) in conn.execute(_BEAT_ONLY, sent, prepare=True)}


def _heartbeats(
    inflight: Mapping[int, int], progress: Mapping[int, str]
) -> tuple[list[int], list[int], list[str | None]]:
    return (
        list(inflight),
        list(inflight.values()),
        [progress.get(worker) for worker in inflight],
    )


def busy(conn: Connection, jobs: Sequence[int]) -> set[int]:
    """Return the jobs that another session has locked.

    The others are locked until the end of the transaction.
    """
    return set(value(conn, "select redrive.busy_v1(%s::bigint[])", list(jobs)))


def end_left_open(conn: Connection, deliveries: Iterable[tuple[int, int]]) -> list[int]:
    """End the transactions of dead handlers that hold these jobs (id, deliveries).

    Returns the jobs that are free now. A transaction of another role cannot be ended.
    """
    ids, numbers = zip(*deliveries, strict=True)
    return column(
        conn,
        "select redrive.end_left_open_v1(%s::bigint[], %s::int[])",
        list(ids),
        list(numbers),
    )


def cancelled(conn: Connection, workers: Sequence[int]) -> list[int]:
    """Return the jobs of these identities that are no longer wanted."""
    return column(conn, "select redrive.cancelled_v1(%s::int[])", list(workers))


def run_alone(conn: Connection, worker: int, job: int | None) -> float | None:
    """Note that a job has its worker to itself; None = no longer.

    Returns after how many seconds it has outlasted its crashes; None if the worker was
    declared lost.
    """
    return value(conn, "select redrive.run_alone_v1(%s, %s)", worker, job)


class Retired(NamedTuple):
    """Result of retiring an identity. `is_over`: it need not be retired again."""

    released: int
    is_over: bool


def retire(conn: Connection, worker: int, known: Iterable[int] = ()) -> Retired:
    """Release the jobs of an identity, except `known` and locked ones.

    An identity that holds no more jobs is forgotten.
    """
    statement = "select released, is_over from redrive.retire_v1(%s, %s::bigint[])"
    (retired,) = records(conn, Retired, statement, worker, list(known))
    return retired


def forgive(conn: Connection, held: Sequence[tuple[int, int]]) -> list[int]:
    """Refund the crashes that jobs (id, deliveries) were charged with.

    Returns the jobs that had been charged.
    """
    ids = [job for job, _ in held]
    deliveries = [n for _, n in held]
    return column(
        conn, "select redrive.forgive_v1(%s::bigint[], %s::int[])", ids, deliveries
    )


def take_chore(conn: Connection, name: str, every: float) -> bool:
    """Try to take a chore. One of all workers gets it, once in `every` seconds."""
    return bool(
        value(
            conn,
            "select redrive.take_chore_v1(%s, %s * interval '1 second')",
            name,
            every,
        )
    )


def take_chores(conn: Connection, everys: Mapping[str, float]) -> set[str]:
    """Try to take chores (name -> seconds between two runs).

    Returns the names of the chores that this worker should do now.
    """
    taken = column(
        conn,
        "select redrive.take_chores_v1(%s::text[], array("
        " select e * interval '1 second' from unnest(%s::float8[]) with ordinality as a(e, n)"
        " order by n))",
        list(everys),
        list(everys.values()),
    )
    return set(taken)


def mark_lost(conn: Connection, ttl: float) -> int:
    """Mark workers lost that were silent for their own ttl, else for `ttl` seconds.

    Returns their number.
    """
    return (
        value(conn, "select redrive.mark_lost_v1(%s * interval '1 second')", ttl) or 0
    )


def advance_floors(conn: Connection) -> None:
    """Note where the live claims begin, so that scans skip dead rows."""
    conn.execute("select redrive.advance_floors_v1()")


def rescue(conn: Connection, ttl: float) -> Rescued:
    """Take jobs back from workers silent for their own ttl, else for `ttl` seconds."""
    row = conn.execute(
        "select * from redrive.rescue_v1(%s * interval '1 second')", (ttl,)
    ).fetchone()
    if row is None:
        return Rescued(workers=0, jobs=0, dead=0)

    return Rescued(*row)


def fold(conn: Connection) -> int:
    """Add up the deltas of counters and groups, in short steps.

    Returns their number. After a second it leaves the rest to the next call.
    """
    end = time.monotonic() + STEPS_SECONDS
    return sum(_fold(conn, step, end) for step in _FOLD_STEPS)


def _fold(conn: Connection, step: LiteralString, end: float) -> int:
    folded = 0
    more = True

    while more:
        moved, more = conn.execute(step).fetchone() or (0, False)
        folded += moved
        more = more and time.monotonic() < end

    return folded


def forget(conn: Connection) -> int:
    """Delete what is past its retention, in short steps.

    Returns the number of rows. One step of each call walks over rows without an order
    of time. Full steps mean that there is more.
    """
    step = "select gone from redrive.forget_v1(%s)"
    return _in_steps(lambda: value(conn, step, FORGET_BATCH), full=FORGET_BATCH)


def _in_steps(take: Callable[[], int | None], full: int) -> int:
    """Take steps until one is not full, or the time of a chore is over.

    Returns the sum of what they did.
    """
    end = time.monotonic() + STEPS_SECONDS
    total = 0
    last = full

    while last >= full and time.monotonic() < end:
        last = take() or 0
        total += last

    return total


def tend_history(conn: Connection) -> int:
    """Make the next partitions of the history, and drop the old ones.

    Returns their number.
    """
    return value(conn, "select redrive.tend_history_v1()") or 0


def sample(conn: Connection) -> None:
    """Remember the counters at the start of this minute."""
    conn.execute("select redrive.sample_v1()")


def fold_series(conn: Connection) -> bool:
    """Record the minute that has just ended. Returns False if there is nothing to do."""
    return bool(value(conn, "select redrive.fold_series_v1()"))


def count_times(conn: Connection, measured: Sequence[Measured]) -> None:
    """Add durations and waits to the next minute that is recorded."""
    queues = [one.queue for one in measured]
    kinds = [one.kind for one in measured]
    durations = [_int_array(one.durations) for one in measured]
    waits = [_int_array(one.waits) for one in measured]

    conn.execute(
        _COUNT_TIMES, (Texts(queues), Texts(kinds), Texts(durations), Texts(waits))
    )


def _int_array(numbers: Sequence[int]) -> str:
    """Write numbers as the text of an int[], because an array has no arrays."""
    joined = ",".join(map(str, numbers))
    return f"{{{joined}}}"


def keep_samples(conn: Connection, samples: Sequence[Sampled]) -> int:
    """Offer jobs that succeeded to the reservoirs of their kinds.

    Returns how many were kept.
    """
    kinds = Texts([s.kind for s in samples])
    facts = Texts([s.facts for s in samples])
    return value(
        conn, "select redrive.keep_samples_v1(%s::text[], %s::jsonb[])", kinds, facts
    )


def unpark(conn: Connection) -> int:
    """Wake ordering keys whose first job is free to run, some at a time.

    Returns their number.
    """
    return value(conn, "select redrive.unpark_v1(%s)", KEYS_AT_A_TIME) or 0


def tend_limits(conn: Connection) -> int:
    """Wake jobs that wait behind a limit with free slots, in short steps.

    Returns their number. Full steps mean that there are more.
    """
    return _in_steps(
        lambda: value(conn, _TEND_LIMITS, KEYS_AT_A_TIME), full=WOKEN_AT_A_TIME
    )


def hold_failing(conn: Connection) -> int:
    """Hold the failing jobs of held groups, and release the others, in short steps.

    Returns their number.
    """
    step = "select redrive.hold_failing_v1(%s)"
    return _in_steps(lambda: value(conn, step, HELD_AT_A_TIME), full=HELD_AT_A_TIME)


def end_cancellations(conn: Connection) -> int:
    """End the waiting jobs that are to be cancelled. Returns how many it looked at."""
    return (
        value(conn, "select redrive.end_cancellations_v1(%s)", CANCELLATIONS_AT_A_TIME)
        or 0
    )


def fold_batches(conn: Connection) -> int:
    """Find batches that have ended, in short steps. Returns how many it looked at."""
    step = "select redrive.fold_batches_v1(%s)"
    return _in_steps(
        lambda: value(conn, step, BATCHES_AT_A_TIME), full=BATCHES_AT_A_TIME
    )


def declare_schedules(
    conn: Connection, worker: int, version: str, declared: Sequence[Declaration]
) -> bool:
    """Declare the schedules of a worker. Returns True if it is still alive."""
    rows: list[dict[str, object]] = []
    for schedule in declared:
        # It is a text here, and an object in the database.
        payload = msgspec.json.decode(schedule.payload)
        rows.append(asdict(schedule) | {"payload": payload})

    query: LiteralString = "select redrive.declare_schedules_v1(%s, %s, %s::jsonb)"
    return bool(value(conn, query, worker, version, Jsonb(rows)))


def due_schedules(conn: Connection) -> list[DueSchedule]:
    """Return the schedules that are due."""
    return records(
        conn,
        DueSchedule,
        "select name, declaration, cron, tz, catch_up, expected, next_at, after, as_of"
        " from redrive.due_schedules_v1()",
    )


def fire_schedule(
    conn: Connection, due: DueSchedule, slots: Sequence[datetime], next_at: datetime
) -> list[int] | None:
    """Enqueue the jobs of slots, and move the schedule on.

    Returns the jobs; None if another worker has done it.
    """
    return value(
        conn,
        "select redrive.fire_schedule_v1(%s, %s, %s, %s::timestamptz[], %s)",
        due.name,
        due.declaration,
        due.expected,
        list(slots),
        next_at,
    )


def is_pending(
    conn: Connection, queues: Sequence[str] | None, kinds: Sequence[str], horizon: float
) -> bool:
    """Return True if a job of these kinds runs or is due within `horizon` seconds.

    `queues`: None = all.
    """
    return bool(
        value(
            conn,
            "select redrive.pending_v1(%s::text[], %s::text[], %s * interval '1 second')",
            None if queues is None else list(queues),
            list(kinds),
            horizon,
        )
    )
