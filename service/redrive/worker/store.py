"""The statements of the worker, one function each: rows in, rows out, no decisions."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, LiteralString, NamedTuple

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row, scalar_row
from psycopg.types.json import Jsonb

from redrive.database.arrays import Bigints, Booleans, Floats, Ints, Smallints, Texts
from redrive.database.connect import OwnConnection
from redrive.rules.heal import Heal
from redrive.rules.slots import Declaration
from redrive.worker.protocol import Dependency, Report, Returned, Sampled, SideEffect

Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]
STEPS_SECONDS = 1.0
"""How long a chore goes on by short steps: others share its connection."""
FORGET_BATCH = 1000
"""Rows of each table that one step of forgetting looks at or deletes."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""A floor below every run_at: the scan starts at the beginning of the lane."""

_CLAIM = (
    "select lane_no, jobs, upto, upto_id, as_of, claim,"
    " id, deliveries, attempt, kind, payload, rest, run_at, created from redrive.claim_v2("
    "%s, %s::text[], %s::smallint[], %s::smallint[], %s::timestamptz[], %s::bigint[],"
    " %s::bigint[], %s, %s, %s)"
)
_CLAIMED = (
    "select claim, id, deliveries, attempt, kind, payload::text, rest, run_at, created"
    " from redrive.claimed_v1(%s, %s)"
)
_COMPLETE = (
    "select redrive.complete_v2(%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[])"
)
_COMPLETE_WITH_RESULTS = (
    "select redrive.complete_with_results_v1(%s::int[], %s::bigint[], %s::bigint[], %s::int[],"
    " %s::bigint[], %s::bigint[], %s::jsonb[], %s::float8[])"
)
_KEEP_CHECKPOINTS = (
    "select id, delivery, is_kept from redrive.keep_checkpoints_v1("
    "%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::jsonb[])"
)
_KEEP_PROGRESS = (
    "select redrive.keep_progress_v1("
    "%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::float8[], %s::jsonb[])"
)
_SETTLE = (
    "select redrive.settle_v2("
    "%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::text[], %s::timestamptz[], %s::float8[],"
    " %s::boolean[], %s::int[], %s::jsonb[], %s::text[], %s::bigint[])"
)
_SIDE_EFFECTS = (
    "select redrive.side_effects_v2(%s::int[], %s::bigint[], %s::int[], %s::text[], %s::jsonb[])"
)
_LANES = "select queue, priority, lane, due_in from redrive.lanes_v1(%s::text[])"
_FOLD_STEPS: tuple[LiteralString, ...] = (
    "select moved, more from redrive.fold_v2()",
    "select moved, more from redrive.fold_groups_v2()",
)
_BREAKERS = (
    "select name, state, open_for, failing from redrive.breakers_v1("
    "%s::text[], %s::int[], %s::int[], %s::int[], %s::float8[], %s::float8[])"
)

_TEND_LIMITS: LiteralString = "select redrive.tend_limits_v1(%s)"
_DECLARE_LIMITS: LiteralString = "select redrive.declare_limits_v1(%s::text[], %s::jsonb)"

KEYS_AT_A_TIME = 1000
"""Ordering keys that one step of `unpark` looks at, and names one of `tend_limits`."""

BATCHES_AT_A_TIME = 20
CANCELLATIONS_AT_A_TIME = 1000

Row = tuple[int, int, int, int, str, str, str | None, datetime, float]
"""claim, id, deliveries, attempt, kind, payload, JSON of `Extras`, run_at, created.

A plain tuple, because thousands come at once; supervisor/held.py gives the columns their names.
"""

Completion = tuple[int, int, int, int]
"""id, deliveries, claim, worker"""

ClaimReport = tuple[Report, int, int]
"""A report, and the claim and the identity that hold the job."""

WorkerSideEffect = tuple[int, SideEffect]
"""The identity that holds a job, and what its handler reported."""


class Noted(NamedTuple):
    """What the handler of a job that is held says of it; `data` is JSON."""

    worker: int
    claim: int
    id: int
    deliveries: int
    data: str
    share: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    """One range of the ready index."""

    priority: int
    queue: str
    lane: int


class Place(NamedTuple):
    """Where to go on in a lane: after the job `id` that is due at `run_at`.

    All before it had been claimed when the claim `as_of` was made.
    """

    run_at: datetime
    id: int
    as_of: int


START = Place(EPOCH, 0, 0)
"""The beginning of a lane."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What to claim: lanes in the order to look, and where each one's scan starts.

    `from_start`: from the beginning instead, for what has become visible there. `after`: the last
    claim that is known of this worker. `is_large`: likely to be, so that its jobs are read at once.
    `patience`: milliseconds to wait for a lane, where others claim from all that hold something.
    """

    worker: int
    lanes: Sequence[Lane]
    places: Sequence[Place]
    want: int
    from_start: bool = True
    after: int = 0
    is_large: bool = True
    patience: int = 0


class LaneClaim(NamedTuple):
    """What came of a claim in one lane: claim_v2 says more."""

    lane_no: int | None
    jobs: int
    upto: datetime | None
    upto_id: int | None
    as_of: int | None
    claim: int | None


_OF_A_LANE = len(LaneClaim._fields)
"""Columns of a claim's row that are of a lane; the last of them, and the rest, of a job."""


class Settlements(NamedTuple):
    """What to settle. `ended`: the claims of which nothing is left with it.

    `results`: of some of the completions.
    """

    completions: Sequence[Completion] = ()
    reports: Sequence[ClaimReport] = ()
    ended: Sequence[int] = ()
    results: Sequence[Returned] = ()


class Answer(NamedTuple):
    """What an exchange came to.

    The ids that were completed (None: all of them), those settled by reports, the claims and what
    makes the rows of their jobs, to be called once; or why nothing was claimed.
    """

    completed: set[int] | None
    settled: set[int]
    lanes: list[LaneClaim]
    rows: Callable[[], list[Row]]
    claim_error: psycopg.Error | None = None


class BreakerRow(NamedTuple):
    """How a dependency stands; `open_for`: seconds until a probe may be sent."""

    name: str
    state: str
    open_for: float
    failing: bool


class Registration(NamedTuple):
    """What a worker says of itself.

    It may be silent for `ttl` seconds; a kind may be a prefix (`mail.*`); `queues` None = all;
    `depends_on`: kind -> breakers, for those that have any; `holds`: the kinds whose deaths hold
    their ordering key; `limits`: kind -> templates, for those that have any; `approvals`: kinds
    whose redrive needs two people; `heals`: kind -> how its dead letters are tried after a deploy.
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


class DueSchedule(NamedTuple):
    """A schedule for which something is to be done, by the database's clock: `as_of`.

    `expected`: its `next_at` there; `next_at` None = to be worked out, after `after`.
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
    """What a rescue came to: workers lost, jobs rescued, jobs dead-lettered."""

    workers: int
    jobs: int
    dead: int


def exchange(conn: Connection, settlements: Settlements, claim: ClaimRequest | None) -> Answer:
    """Settle, then claim, then read what was claimed: up to three transactions in one round trip.

    The claim holds a lane for as long as it lasts and waits for no disk; what was settled is
    settled, whatever becomes of it, and nothing is claimed after settlements that failed. A few
    small jobs come with their claim, and nothing is to be read. Raises psycopg.Error when nothing
    is known to be settled.
    """
    completing, settling, claiming, reading = (conn.cursor(binary=True) for _ in range(4))
    asked = bool(settlements.completions or settlements.reports)
    # in a caller's transaction all is one
    commits = conn.info.transaction_status == TransactionStatus.IDLE and claim is not None
    settled: Cursor | None = None
    try:
        with (
            conn.pipeline()
            if claim is None or asked or claim.is_large
            else contextlib.nullcontext()
        ):
            if asked:
                with _transaction(conn, commits) as settled:
                    _send_settlements(completing, settling, settlements)
            if claim is not None:
                with _transaction(conn, commits and claim.is_large):
                    _send_claim(claiming, claim)
                if claim.is_large:
                    _read(reading, claim)
        lanes, rows = _claimed(claiming, reading, claim)
    except psycopg.Error as error:
        # of a lost connection nobody knows whether what it had answered was committed
        if conn.closed:
            raise
        if commits:
            conn.rollback()
        if settled is None or settled.statusmessage != "COMMIT":
            raise
        return Answer(*_settled(completing, settling, settlements), [], list, error)
    return Answer(*_settled(completing, settling, settlements), lanes, rows)


@contextlib.contextmanager
def _transaction(conn: Connection, commits: bool) -> Iterator[Cursor | None]:  # noqa: FBT001 # mine
    """A transaction of its own in a pipeline that goes on after it; what says that it is committed.

    Not a `sync`, which would wait for the answers. Behind a failure the server skips the rest.
    """
    if not commits:
        yield None
        return
    committing = conn.cursor()
    conn.execute("begin")
    yield committing
    committing.execute("commit")
    if isinstance(conn, OwnConnection):
        conn.begin()


def _send_settlements(completing: Cursor, settling: Cursor, settlements: Settlements) -> None:
    completions, reports, ended, results = settlements
    if completions:
        _send_completions(completing, completions, () if reports else ended, results)
    if reports:
        _send_reports(settling, reports, ended)


def _claimed(
    claiming: Cursor, reading: Cursor, claim: ClaimRequest | None
) -> tuple[list[LaneClaim], Callable[[], list[Row]]]:
    """What came of a claim, and its jobs, asked for now if they did not come with it."""
    if claim is None:
        return [], list
    found = claiming.fetchall()
    lanes = [LaneClaim(*row[:_OF_A_LANE]) for row in found if row[_OF_A_LANE] is None]
    rows = [row[_OF_A_LANE - 1 :] for row in found if row[_OF_A_LANE] is not None]
    if rows or not any(lane.jobs for lane in lanes):
        return lanes, lambda: rows
    if not claim.is_large:
        _read(reading, claim)
    return lanes, reading.fetchall


def _settled(
    completing: Cursor, settling: Cursor, settlements: Settlements
) -> tuple[set[int] | None, set[int]]:
    """The ids that were completed (None: all of them), and those settled by reports."""
    return (
        _completed(completing) if settlements.completions else None,
        {job for (job,) in settling.fetchall()} if settlements.reports else set(),
    )


def _send_completions(
    cursor: Cursor,
    completions: Sequence[Completion],
    ended: Sequence[int],
    results: Sequence[Returned],
) -> None:
    ids, deliveries, claims, workers = zip(*sorted(completions), strict=True)
    batch = Ints(workers), Bigints(claims), Bigints(ids), Ints(deliveries), Bigints(ended)
    if not results:
        cursor.execute(_COMPLETE, batch)
        return
    returned = Bigints([one.id for one in results]), Texts([one.result for one in results])
    keeps = Floats([one.keep for one in results])
    cursor.execute(_COMPLETE_WITH_RESULTS, (*batch, *returned, keeps))


def _completed(cursor: Cursor) -> set[int] | None:
    """The ids that were ours to complete; None: all."""
    (ids,) = cursor.fetchone() or (None,)
    return None if ids is None else set(ids)


def _send_reports(cursor: Cursor, reports: Sequence[ClaimReport], ended: Sequence[int]) -> None:
    ordered = sorted(reports, key=lambda item: (item[0].id, item[0].deliveries))
    said = [report for report, _, _ in ordered]
    cursor.execute(
        _SETTLE,
        (
            Ints([worker for _, _, worker in ordered]),
            Bigints([claim for _, claim, _ in ordered]),
            Bigints([report.id for report in said]),
            Ints([report.deliveries for report in said]),
            Texts([report.outcome for report in said]),
            [report.run_at for report in said],
            Floats([report.delay for report in said]),
            Booleans([report.refund for report in said]),
            Ints([report.losses for report in said]),
            Texts([report.failure for report in said]),
            Texts([report.reason for report in said]),
            Bigints(ended),
        ),
    )


def _send_claim(cursor: Cursor, claim: ClaimRequest) -> None:
    """Ask for jobs."""
    cursor.execute(
        _CLAIM,
        (
            claim.worker,
            Texts([lane.queue for lane in claim.lanes]),
            Smallints([lane.priority for lane in claim.lanes]),
            Smallints([lane.lane for lane in claim.lanes]),
            [place.run_at for place in claim.places],
            Bigints([place.id for place in claim.places]),
            Bigints([place.as_of for place in claim.places]),
            claim.from_start,
            claim.want,
            claim.patience,
        ),
    )


def _read(cursor: Cursor, claim: ClaimRequest) -> None:
    """Ask for the rows of what was claimed."""
    cursor.execute(_CLAIMED, (claim.worker, claim.after))


def side_effects(conn: Connection, reported: Sequence[WorkerSideEffect]) -> set[int]:
    """Keep what handlers reported. Returns the jobs to come with again."""
    found = conn.execute(
        _SIDE_EFFECTS,
        (
            [worker for worker, _ in reported],
            [effect.id for _, effect in reported],
            [effect.deliveries for _, effect in reported],
            [effect.what for _, effect in reported],
            [effect.detail for _, effect in reported],
        ),
    )
    return {job for (job,) in found}


def keep_checkpoints(conn: Connection, noted: Sequence[Noted]) -> dict[tuple[int, int], bool]:
    """Keep checkpoints. Of jobs still held: (id, deliveries) -> False: come with it again."""
    workers, claims, ids, deliveries, data, _ = zip(*noted, strict=True)
    found = conn.execute(
        _KEEP_CHECKPOINTS, (list(workers), list(claims), list(ids), list(deliveries), list(data))
    )
    return {(job, delivery): is_kept for job, delivery, is_kept in found}


def keep_progress(conn: Connection, noted: Sequence[Noted]) -> None:
    """Keep how far jobs are, of those still held."""
    workers, claims, ids, deliveries, data, shares = zip(*noted, strict=True)
    conn.execute(
        _KEEP_PROGRESS,
        (list(workers), list(claims), list(ids), list(deliveries), list(shares), list(data)),
    )


def known_queues(conn: Connection) -> list[str]:
    """The queues that ever had a job, or that somebody has set something for."""
    found = conn.execute("select queue from redrive.totals union select queue from redrive.queues")
    return [queue for (queue,) in found]


def lanes(conn: Connection, queues: Sequence[str] | None) -> list[tuple[Lane, float | None]]:
    """The lanes that hold jobs, most urgent first, with the seconds until the next job is due."""
    found = conn.execute(_LANES, (None if queues is None else list(queues),)).fetchall()
    return [(Lane(priority, queue, lane), due_in) for queue, priority, lane, due_in in found]


def breakers(
    conn: Connection,
    settings: Sequence[Dependency],
    failures: Mapping[str, int],
    successes: Mapping[str, int],
) -> list[BreakerRow]:
    """Report what was seen of dependencies. Returns how they stand."""
    with conn.cursor(row_factory=class_row(BreakerRow)) as cursor:
        return cursor.execute(
            _BREAKERS,
            (
                [d.name for d in settings],
                [failures.get(d.name, 0) for d in settings],
                [successes.get(d.name, 0) for d in settings],
                [d.threshold for d in settings],
                [d.window for d in settings],
                [d.cooldown for d in settings],
            ),
        ).fetchall()


def take_probe(conn: Connection, name: str, worker: int, lease: float) -> bool:
    """Whether this worker may let one job try a half-open dependency, for `lease` seconds."""
    return bool(
        _value(
            conn,
            "select redrive.take_probe_v1(%s, %s, %s * interval '1 second')",
            name,
            worker,
            lease,
        )
    )


def register(conn: Connection, worker: Registration) -> int:
    """Return a new identity for this worker."""
    sql = (
        "select redrive.register_v4("
        "%s, %s, %s * interval '1 second', %s::text[], %s::text[], %s::jsonb, %s::text[])"
    )
    kinds, queues = list(worker.kinds), None if worker.queues is None else list(worker.queues)
    depends_on = Jsonb(dict(worker.depends_on)) if worker.depends_on else None
    holds = list(worker.holds) or None
    said = worker.name, worker.version, worker.ttl, kinds, queues, depends_on, holds
    conn.execute(_DECLARE_LIMITS, (kinds, Jsonb(dict(worker.limits))))
    conn.execute(
        "select redrive.say_approvals_v1(%s::text[], %s::text[])", (kinds, list(worker.approvals))
    )
    if worker.heals and worker.version:
        heals = {kind: asdict(heal) for kind, heal in worker.heals.items()}
        conn.execute("select redrive.say_heals_v1(%s, %s)", (worker.version, Jsonb(heals)))
    return _value(conn, sql, *said) or 0


def beat(
    conn: Connection, inflight: Mapping[int, int], progress: Mapping[int, str] | None = None
) -> set[int]:
    """Beat for each identity (-> jobs in flight, their progress). Returns those still alive."""
    said = progress or {}
    found = conn.execute(
        "select redrive.beat_v2(%s::int[], %s::int[], %s::jsonb[])",
        (list(inflight), list(inflight.values()), [said.get(worker) for worker in inflight]),
    )
    return {worker for (worker,) in found}


def others(conn: Connection, workers: Sequence[int]) -> int:
    """How many other workers look for the same jobs as these identities of one."""
    return _value(conn, "select redrive.others_v1(%s::int[])", list(workers)) or 0


def cancelled(conn: Connection, workers: Sequence[int]) -> list[int]:
    """The jobs of these identities that are no longer wanted, until they have ended."""
    found = conn.execute("select redrive.cancelled_v1(%s::int[])", (list(workers),))
    return [job for (job,) in found]


def run_alone(conn: Connection, worker: int, job: int | None) -> float | None:
    """Note that a job has its worker to itself; None: no longer.

    Returns after how many seconds it has outlasted its losses; None: the worker was declared lost.
    """
    return _value(conn, "select redrive.run_alone_v1(%s, %s)", worker, job)


def retire(conn: Connection, worker: int, known: Iterable[int] = ()) -> int:
    """Release what an identity holds but the `known` jobs; without any, forget it.

    Returns how many jobs that were.
    """
    return _value(conn, "select redrive.retire_v2(%s, %s::bigint[])", worker, list(known)) or 0


def forgive(conn: Connection, held: Sequence[tuple[int, int]]) -> list[int]:
    """Take back what jobs (id, deliveries) were charged whose worker is there again.

    Returns those that had been.
    """
    ids, deliveries = [job for job, _ in held], [n for _, n in held]
    found = conn.execute("select redrive.forgive_v1(%s::bigint[], %s::int[])", (ids, deliveries))
    return [job for (job,) in found]


def take_chore(conn: Connection, name: str, every: float) -> bool:
    """Whether this worker is to do a chore now: one of all does it, once in `every` seconds."""
    return bool(
        _value(conn, "select redrive.take_chore_v1(%s, %s * interval '1 second')", name, every)
    )


def mark_lost(conn: Connection, ttl: float) -> int:
    """Mark workers lost that were silent for their own ttl, else for `ttl` seconds.

    Returns how many.
    """
    return _value(conn, "select redrive.mark_lost_v1(%s * interval '1 second')", ttl) or 0


def rescue(conn: Connection, ttl: float, max_losses: int) -> Rescued:
    """Take jobs back from workers silent for their own ttl, else for `ttl` seconds."""
    row = conn.execute(
        "select * from redrive.rescue_v1(%s * interval '1 second', %s)", (ttl, max_losses)
    ).fetchone()
    return Rescued(0, 0, 0) if row is None else Rescued(*row)


def fold(conn: Connection) -> int:
    """Add up the deltas of counters and groups, by short steps. Returns how many there were.

    After a second it leaves the rest to the next call, which goes on where this one stopped.
    """
    end = time.monotonic() + STEPS_SECONDS
    return sum(_fold(conn, step, end) for step in _FOLD_STEPS)


def _fold(conn: Connection, step: LiteralString, end: float) -> int:
    folded, more = 0, True
    while more:
        moved, more = conn.execute(step).fetchone() or (0, False)
        folded += moved
        more = more and time.monotonic() < end
    return folded


def forget(conn: Connection) -> int:
    """Delete what is past its retention, by short steps. Returns how many rows that were.

    One step a call is enough to walk over what has no order of time; full ones mean there is more.
    """
    end, forgotten, gone = time.monotonic() + STEPS_SECONDS, 0, FORGET_BATCH
    while gone >= FORGET_BATCH and time.monotonic() < end:
        gone = _value(conn, "select gone from redrive.forget_v1(%s)", FORGET_BATCH)
        forgotten += gone
    return forgotten


def tend_history(conn: Connection) -> int:
    """Make the history's next partitions, drop those whose day has come. Returns how many."""
    return _value(conn, "select redrive.tend_history_v1()") or 0


def sample(conn: Connection) -> None:
    """Remember the counters at the start of this minute."""
    conn.execute("select redrive.sample_v1()")


def keep_samples(conn: Connection, samples: Sequence[Sampled]) -> int:
    """Offer jobs that succeeded to the reservoirs of their kinds. Returns how many were kept."""
    kinds, facts = Texts([s.kind for s in samples]), Texts([s.facts for s in samples])
    return _value(conn, "select redrive.keep_samples_v1(%s::text[], %s::jsonb[])", kinds, facts)


def unpark(conn: Connection) -> int:
    """Wake ordering keys whose first job waits for nobody, of those next in turn.

    Returns how many.
    """
    return _value(conn, "select redrive.unpark_v2(%s)", KEYS_AT_A_TIME) or 0


def tend_limits(conn: Connection) -> int:
    """Wake those that wait behind a limit though there is room. Returns how many."""
    return _value(conn, _TEND_LIMITS, KEYS_AT_A_TIME) or 0


def end_cancellations(conn: Connection) -> int:
    """End the jobs that are to be cancelled and wait by now. Returns how many were looked at."""
    return _value(conn, "select redrive.end_cancellations_v1(%s)", CANCELLATIONS_AT_A_TIME) or 0


def fold_batches(conn: Connection) -> int:
    """See which batches have ended, by short steps. Returns how many were looked at."""
    end, looked, last = time.monotonic() + STEPS_SECONDS, 0, BATCHES_AT_A_TIME
    while last >= BATCHES_AT_A_TIME and time.monotonic() < end:
        last = _value(conn, "select redrive.fold_batches_v1(%s)", BATCHES_AT_A_TIME) or 0
        looked += last
    return looked


def declare_schedules(
    conn: Connection, worker: int, version: str, declared: Sequence[Declaration]
) -> bool:
    """Say which schedules a worker's code has. Returns whether the worker is still alive."""
    said = [asdict(one) | {"payload": msgspec.json.decode(one.payload)} for one in declared]
    return bool(
        _value(
            conn,
            "select redrive.declare_schedules_v1(%s, %s, %s::jsonb)",
            worker,
            version,
            Jsonb(said),
        )
    )


def due_schedules(conn: Connection) -> list[DueSchedule]:
    """The schedules for which something is to be done."""
    with conn.cursor(row_factory=class_row(DueSchedule)) as cursor:
        return cursor.execute(
            "select name, declaration, cron, tz, catch_up, expected, next_at, after, as_of"
            " from redrive.due_schedules_v1()"
        ).fetchall()


def fire_schedule(
    conn: Connection, due: DueSchedule, slots: Sequence[datetime], next_at: datetime
) -> list[int] | None:
    """Enqueue the jobs of slots and move the schedule on. Returns them; None: somebody else did."""
    return _value(
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
    """Whether a job of these kinds runs or is due within `horizon` seconds; `queues` None = all."""
    return bool(
        _value(
            conn,
            "select redrive.pending_v1(%s::text[], %s::text[], %s * interval '1 second')",
            None if queues is None else list(queues),
            list(kinds),
            horizon,
        )
    )


def _value(conn: Connection, statement: LiteralString, *parameters: object) -> Any:
    """The one value that a statement returns."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(statement, parameters).fetchone()
