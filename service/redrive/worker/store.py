"""The statements of the worker, one function each, on a connection of its own. Rows in, rows out;
no decisions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg

from redrive.database.arrays import Bigints, Booleans, Floats, Ints, Texts
from redrive.worker.protocol import Dependency, Report, SideEffect

Connection = psycopg.Connection[tuple[Any, ...]]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""A floor below every run_at: the scan starts at the beginning of the lane."""

_CLAIM = (
    "select id, deliveries, attempt, kind, payload, rest, lane_no, run_at"
    " from redrive.claim_v1(%s, %s::text[], %s::smallint[], %s::smallint[], %s::timestamptz[], %s, %s)"
)
_COMPLETE = "select redrive.complete_v1(%s::int[], %s::bigint[], %s::int[])"
_SETTLE = (
    "select redrive.settle_v1(%s::int[], %s::bigint[], %s::int[], %s::text[], %s::timestamptz[], %s::float8[],"
    " %s::boolean[], %s::int[], %s::jsonb[], %s::text[])"
)
_LANES = "select queue, priority, lane, due_in from redrive.lanes_v1(%s::text[])"

Row = tuple[Any, ...]
Completion = tuple[int, int, int]
"""id, deliveries, worker"""


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    """One range of the ready index."""

    priority: int
    queue: str
    lane: int


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What to claim: lanes in the order to look, and from which run_at in each."""

    worker: int
    lanes: Sequence[Lane]
    floors: Sequence[datetime]
    want: int


def exchange(
    conn: Connection,
    completions: Sequence[Completion],
    reports: Sequence[tuple[Report, int]],
    claim: ClaimRequest | None,
) -> tuple[set[int] | None, set[int], list[Row]]:
    """Settle and claim in one round trip, one transaction, one commit.

    Settlements come first and by ascending id, and the claim never waits, so nobody waits while
    holding.

    Returns:
        the completed ids (None: all of them), the ids settled by reports, the claimed rows.
    """
    completed: set[int] | None = None
    settled: set[int] = set()
    rows: list[Row] = []
    with (
        conn.cursor(binary=True) as complete,
        conn.cursor(binary=True) as settle,
        conn.cursor(binary=True) as take,
    ):
        with conn.pipeline():
            if completions:
                ids, deliveries, workers = zip(*sorted(completions), strict=True)
                complete.execute(_COMPLETE, (Ints(workers), Bigints(ids), Ints(deliveries)))
            if reports:
                settle.execute(_SETTLE, _columns(reports))
            if claim is not None:
                take.execute(
                    _CLAIM,
                    (
                        claim.worker,
                        [lane.queue for lane in claim.lanes],
                        [lane.priority for lane in claim.lanes],
                        [lane.lane for lane in claim.lanes],
                        list(claim.floors),
                        claim.want,
                        not completions and not reports,
                    ),
                )
        if completions:
            found = complete.fetchone()
            completed = None if found is None or found[0] is None else set(found[0])
        if reports:
            settled = {row[0] for row in settle.fetchall()}
        if claim is not None:
            rows = take.fetchall()
    return completed, settled, rows


def _columns(reports: Sequence[tuple[Report, int]]) -> tuple[Any, ...]:
    ordered = sorted(reports, key=lambda item: item[0].id)
    return (
        Ints([worker for _, worker in ordered]),
        Bigints([v.id for v, _ in ordered]),
        Ints([v.deliveries for v, _ in ordered]),
        Texts([v.outcome for v, _ in ordered]),
        [v.run_at for v, _ in ordered],
        Floats([v.delay for v, _ in ordered]),
        Booleans([v.refund for v, _ in ordered]),
        Ints([v.losses for v, _ in ordered]),
        Texts([v.failure for v, _ in ordered]),
        Texts([v.reason for v, _ in ordered]),
    )


def side_effects(conn: Connection, told: Sequence[tuple[int, SideEffect]]) -> set[int]:
    """Keep what handlers reported, each with the identity that holds the job. Returns the jobs to
    come with again.
    """
    found = conn.execute(
        "select redrive.side_effects_v2(%s::int[], %s::bigint[], %s::int[], %s::text[], %s::jsonb[])",
        (
            [worker for worker, _ in told],
            [t.id for _, t in told],
            [t.deliveries for _, t in told],
            [t.what for _, t in told],
            [t.detail for _, t in told],
        ),
    )
    return {job for (job,) in found}


def lanes(conn: Connection, queues: Sequence[str] | None) -> list[tuple[Lane, float | None]]:
    """The lanes that hold jobs, most urgent first, each with the seconds until its next job is due."""
    found = conn.execute(_LANES, (None if queues is None else list(queues),)).fetchall()
    return [(Lane(priority, queue, lane), due_in) for queue, priority, lane, due_in in found]


def breakers(
    conn: Connection,
    settings: Sequence[Dependency],
    failures: Mapping[str, int],
    successes: Mapping[str, int],
) -> list[tuple[str, str, float, bool]]:
    """Report what was seen. Returns name, state, seconds until a probe, and whether the dependency
    is failing.
    """
    return conn.execute(
        "select name, state, open_for, failing from redrive.breakers_v1("
        "%s::text[], %s::int[], %s::int[], %s::int[], %s::float8[], %s::float8[])",
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
    """Whether this worker may let one job try a half-open dependency."""
    row = conn.execute(
        "select redrive.take_probe_v1(%s, %s, %s * interval '1 second')", (name, worker, lease)
    ).fetchone()
    return bool(row and row[0])


def register(conn: Connection, name: str, version: str) -> int:
    """A new identity for this worker."""
    row = conn.execute("select redrive.register_v1(%s, %s)", (name, version)).fetchone()
    return int(row[0]) if row else 0


def beat(conn: Connection, inflight: dict[int, int]) -> set[int]:
    """Beat for each identity (-> jobs in flight). Returns those that are still alive."""
    rows = conn.execute(
        "select redrive.beat_v1(%s::int[], %s::int[])", (list(inflight), list(inflight.values()))
    )
    return {row[0] for row in rows}


def retire(conn: Connection, worker: int) -> int:
    """Release what an identity still holds and forget it. Returns how many jobs that were."""
    row = conn.execute("select redrive.retire_v1(%s)", (worker,)).fetchone()
    return int(row[0]) if row else 0


def take_chore(conn: Connection, name: str, every: float) -> bool:
    """Whether this worker is the one to do the chore now; `every` seconds at most once in the
    fleet.
    """
    row = conn.execute(
        "select redrive.take_chore_v1(%s, %s * interval '1 second')", (name, every)
    ).fetchone()
    return bool(row and row[0])


def rescue(conn: Connection, ttl: float, max_losses: int) -> tuple[int, int, int]:
    """Take jobs back from workers silent for `ttl` seconds. Returns workers lost, jobs rescued,
    jobs buried.
    """
    row = conn.execute(
        "select * from redrive.rescue_v1(%s * interval '1 second', %s)", (ttl, max_losses)
    ).fetchone()
    return row or (0, 0, 0)


def fold(conn: Connection) -> int:
    """Add the deltas of counters and groups up. Returns how many there were."""
    row = conn.execute("select redrive.fold_v1() + redrive.fold_groups_v1()").fetchone()
    return int(row[0]) if row else 0


def sample(conn: Connection) -> None:
    """Remember the counters at the start of this minute."""
    conn.execute("select redrive.sample_v1()")


def unpark(conn: Connection) -> int:
    """Wake ordering keys whose first job waits for nobody. Returns how many."""
    row = conn.execute("select redrive.unpark_v1()").fetchone()
    return int(row[0]) if row else 0


def is_pending(
    conn: Connection, queues: Sequence[str] | None, kinds: Sequence[str], horizon: float
) -> bool:
    """Whether a job of these kinds runs or is due within `horizon` seconds."""
    row = conn.execute(
        "select redrive.pending_v1(%s::text[], %s::text[], %s * interval '1 second')",
        (None if queues is None else list(queues), list(kinds), horizon),
    ).fetchone()
    return bool(row and row[0])
