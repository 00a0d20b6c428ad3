"""The statements of an exchange: what has ended is settled, then jobs are claimed and
read.

Every job passes through here twice; the other statements of a worker are in `store`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from redrive.database.arrays import (
    Bigints,
    Booleans,
    Floats,
    Instants,
    Ints,
    Smallints,
    Texts,
)
from redrive.database.connect import OwnConnection
from redrive.worker.protocol import Report, Returned

Cursor = psycopg.Cursor[tuple[Any, ...]]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""A floor below every run_at: the scan starts at the beginning of the lane."""

_CLAIM = (
    "select lane_no, jobs, upto, upto_id, as_of, claim,"
    " id, deliveries, attempt, kind, payload, rest, run_at, created from redrive.claim_v1("
    "%s, %s::text[], %s::smallint[], %s::smallint[], %s::timestamptz[], %s::bigint[],"
    " %s::bigint[], %s, %s, %s)"
)
_CLAIMED = (
    "select claim, id, deliveries, attempt, kind, payload::text, rest, run_at, created"
    " from redrive.claimed_v1(%s, %s)"
)
_COMPLETE = "select redrive.complete_v1(%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[])"
_COMPLETE_WITH_RESULTS = (
    "select redrive.complete_with_results_v1(%s::int[], %s::bigint[], %s::bigint[], %s::int[],"
    " %s::bigint[], %s::bigint[], %s::jsonb[], %s::float8[])"
)
_SETTLE = (
    "select redrive.settle_v1("
    "%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::text[], %s::timestamptz[], %s::float8[],"
    " %s::boolean[], %s::int[], %s::jsonb[], %s::text[], %s::bigint[])"
)

Row = tuple[int, int, int, int, str, str, str | None, datetime, float]
"""claim, id, deliveries, attempt, kind, payload, JSON of `Extras`, run_at, created.

A plain tuple, because thousands come at once; supervisor/held.py gives the columns
their names.
"""

Completion = tuple[int, int, int, int]
"""id, deliveries, claim, worker"""

ClaimReport = tuple[Report, int, int]
"""A report, and the claim and the identity that hold the job."""


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    """One range of the ready index."""

    priority: int
    queue: str
    lane: int


class Place(NamedTuple):
    """Place in a lane: scans continue after the job `id` that is due at `run_at`.

    All before it had been claimed when the claim `as_of` was made.
    """

    run_at: datetime
    id: int
    as_of: int


START = Place(EPOCH, 0, 0)
"""The beginning of a lane."""


class LaneArrays(NamedTuple):
    """Lanes, and where each one's scan starts, as claim_v1 takes them."""

    queues: Texts
    priorities: Smallints
    lanes: Smallints
    floors: Instants
    floor_ids: Bigints
    seen: Bigints


def lane_arrays(lanes: Sequence[Lane], places: Sequence[Place]) -> LaneArrays:
    """Convert lanes and places to the arrays of a claim."""
    return LaneArrays(
        Texts([lane.queue for lane in lanes]),
        Smallints([lane.priority for lane in lanes]),
        Smallints([lane.lane for lane in lanes]),
        Instants([place.run_at for place in places]),
        Bigints([place.id for place in places]),
        Bigints([place.as_of for place in places]),
    )


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Request of a claim: the lanes in order, and the place where each scan starts.

    `from_start`: from the beginning instead, for what has become visible there.
        `after`: the last
    claim that is known of this worker. `is_large`: likely to be, so that its jobs are
    read at once. `patience`: milliseconds to wait for a lane, where others claim from
    all that hold something. `arrays`: what is sent of lanes and places, where it was
    made before.
    """

    worker: int
    lanes: Sequence[Lane]
    places: Sequence[Place]
    want: int
    from_start: bool = True
    after: int = 0
    is_large: bool = True
    patience: int = 0
    arrays: LaneArrays | None = field(default=None, compare=False, repr=False)


class LaneClaim(NamedTuple):
    """Result of a claim in one lane; see claim.sql."""

    lane_no: int | None
    jobs: int
    upto: datetime | None
    upto_id: int | None
    as_of: int | None
    claim: int | None


_OF_A_LANE = len(LaneClaim._fields)
"""Columns of a claim's row that are of a lane; the last of them, and the rest, of a
job.
"""


class Settlements(NamedTuple):
    """Settlements to send. `ended`: the claims that become empty with this batch.

    `results`: of some of the completions.
    """

    completions: Sequence[Completion] = ()
    reports: Sequence[ClaimReport] = ()
    ended: Sequence[int] = ()
    results: Sequence[Returned] = ()


class Answer(NamedTuple):
    """Result of an exchange.

    The ids that were completed (None: all of them), those settled by reports, the
    claims and what makes the rows of their jobs, to be called once; or why nothing was
    claimed.
    """

    completed: set[int] | None
    settled: set[int]
    lanes: list[LaneClaim]
    rows: Callable[[], list[Row]]
    claim_error: psycopg.Error | None = None


def exchange(
    conn: OwnConnection, settlements: Settlements, claim: ClaimRequest | None
) -> Answer:
    """Settle, then claim, then read what was claimed: up to three transactions in one
    round trip.

    The claim holds a lane for as long as it lasts and waits for no disk; what was
    settled is settled, whatever becomes of it, and nothing is claimed after settlements
    that failed. A few small jobs come with their claim, and nothing is to be read.
    Raises psycopg.Error when nothing is known to be settled.
    """
    asked = bool(settlements.completions or settlements.reports)
    # in a caller's transaction all is one
    commits = (
        conn.info.transaction_status == TransactionStatus.IDLE and claim is not None
    )
    settled: Cursor | None = None
    reading: Cursor | None = None
    try:
        with (
            conn.pipeline()
            if claim is None or asked or claim.is_large
            else contextlib.nullcontext()
        ):
            if asked:
                with _transaction(conn, commits) as settled:
                    _send_settlements(conn, settlements)
            if claim is not None:
                with _transaction(conn, commits and claim.is_large):
                    _send_claim(conn, claim)
                if claim.is_large:
                    reading = _read(conn, claim)
        lanes, rows = _claimed(conn, reading, claim)
    except psycopg.Error as error:
        # of a lost connection nobody knows whether what it had answered was committed
        if conn.closed:
            raise
        if commits:
            conn.rollback()
        if settled is None or settled.statusmessage != "COMMIT":
            raise
        return Answer(*_settled(conn, settlements), [], list, error)
    return Answer(*_settled(conn, settlements), lanes, rows)


@contextlib.contextmanager
def _transaction(conn: OwnConnection, commits: bool) -> Iterator[Cursor | None]:  # noqa: FBT001 # mine
    """A transaction of its own in a pipeline that goes on after it; what says that it
    is committed.

    Not a `sync`, which would wait for the answers. Behind a failure the server skips
    the rest.
    """
    if not commits:
        yield None
        return
    committing = conn.cursor()
    conn.execute("begin")
    yield committing
    committing.execute("commit")
    conn.begin()


def _send_settlements(conn: OwnConnection, settlements: Settlements) -> None:
    completions, reports, ended, results = settlements
    if completions:
        _send_completions(
            _completing(conn), completions, () if reports else ended, results
        )
    if reports:
        _send_reports(_settling(conn), reports, ended)


def _claimed(
    conn: OwnConnection, reading: Cursor | None, claim: ClaimRequest | None
) -> tuple[list[LaneClaim], Callable[[], list[Row]]]:
    """Return the claims and their jobs; read the jobs now if they did not come with the
    claim.
    """
    if claim is None:
        return [], list
    found = _claiming(conn).fetchall()
    lanes = [LaneClaim(*row[:_OF_A_LANE]) for row in found if row[_OF_A_LANE] is None]
    rows = [row[_OF_A_LANE - 1 :] for row in found if row[_OF_A_LANE] is not None]
    if rows or not any(lane.jobs for lane in lanes):
        return lanes, lambda: rows
    return lanes, (reading or _read(conn, claim)).fetchall


def _settled(
    conn: OwnConnection, settlements: Settlements
) -> tuple[set[int] | None, set[int]]:
    """The ids that were completed (None: all of them), and those settled by reports."""
    return (
        _completed(_completing(conn)) if settlements.completions else None,
        {job for (job,) in _settling(conn).fetchall()}
        if settlements.reports
        else set(),
    )


def _completing(conn: OwnConnection) -> Cursor:
    return conn.kept_cursor("completing")


def _settling(conn: OwnConnection) -> Cursor:
    return conn.kept_cursor("settling")


def _claiming(conn: OwnConnection) -> Cursor:
    return conn.kept_cursor("claiming")


def _send_completions(
    cursor: Cursor,
    completions: Sequence[Completion],
    ended: Sequence[int],
    results: Sequence[Returned],
) -> None:
    ids, deliveries, claims, workers = zip(*sorted(completions), strict=True)
    batch = (
        Ints(workers),
        Bigints(claims),
        Bigints(ids),
        Ints(deliveries),
        Bigints(ended),
    )
    if not results:
        cursor.execute(_COMPLETE, batch, prepare=True)
        return
    returned = (
        Bigints([one.id for one in results]),
        Texts([one.result for one in results]),
    )
    keeps = Floats([one.keep for one in results])
    cursor.execute(_COMPLETE_WITH_RESULTS, (*batch, *returned, keeps), prepare=True)


def _completed(cursor: Cursor) -> set[int] | None:
    """The ids that were ours to complete; None: all."""
    (ids,) = cursor.fetchone() or (None,)
    return None if ids is None else set(ids)


def _send_reports(
    cursor: Cursor, reports: Sequence[ClaimReport], ended: Sequence[int]
) -> None:
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
        prepare=True,
    )


def _send_claim(conn: OwnConnection, claim: ClaimRequest) -> None:
    """Ask for jobs."""
    arrays = claim.arrays or lane_arrays(claim.lanes, claim.places)
    scalars = claim.from_start, claim.want, claim.patience
    _claiming(conn).execute(_CLAIM, (claim.worker, *arrays, *scalars), prepare=True)


def _read(conn: OwnConnection, claim: ClaimRequest) -> Cursor:
    """Ask for the rows of what was claimed: they may be large, and go with their
    cursor.
    """
    return conn.cursor(binary=True).execute(
        _CLAIMED, (claim.worker, claim.after), prepare=True
    )
