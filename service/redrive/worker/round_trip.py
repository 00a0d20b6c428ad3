"""Statements of an exchange: settle what has ended, then claim and read jobs.

Every job passes through here twice. The other statements of a worker are in `store`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
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
from redrive.database.connections.connect import OwnConnection
from redrive.worker.protocol import Report, Returned

Cursor = psycopg.Cursor[tuple[Any, ...]]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Instant before every run_at: a scan from here starts at the beginning of a lane."""

_CLAIM = (
    "select lane_no, jobs, upto, upto_id, as_of, claim,"
    " id, deliveries, attempt, kind, payload, rest, run_at, created"
    " from redrive.claim_v1("
    "%s, %s::text[], %s::smallint[], %s::smallint[], %s::timestamptz[], %s::bigint[],"
    " %s::bigint[], %s, %s, %s)"
)
_CLAIMED = (
    "select claim, id, deliveries, attempt, kind, payload::text, rest, run_at, created"
    " from redrive.claimed_v1(%s, %s)"
)
_COMPLETE = (
    "select redrive.complete_v1("
    "%s::int[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[])"
)
_COMPLETE_WITH_RESULTS = (
    "select redrive.complete_with_results_v1("
    "%s::int[], %s::bigint[], %s::bigint[], %s::int[],"
    " %s::bigint[], %s::bigint[], %s::jsonb[], %s::float8[])"
)
_SETTLE = (
    "select redrive.settle_v1("
    "%s::int[], %s::bigint[], %s::bigint[], %s::int[],"
    " %s::text[], %s::timestamptz[], %s::float8[],"
    " %s::boolean[], %s::int[], %s::jsonb[], %s::text[], %s::bigint[])"
)

Row = tuple[int, int, int, int, str, str, str | None, datetime, float]
"""claim, id, deliveries, attempt, kind, payload, JSON of `Extras`, run_at, created.

It is a plain tuple, because thousands come at once. supervisor/held.py names the
columns.
"""

Completion = tuple[int, int, int, int]
"""id, deliveries, claim, worker"""

ClaimReport = tuple[Report, int, int]
"""Report, with the claim and the identity that hold the job."""


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    """One range of the ready index.

    A negative number is the front lane of lane `~lane`: it holds the jobs that come
    back to that lane. sql/README.md explains it.
    """

    priority: int
    queue: str
    lane: int

    @property
    def is_front(self) -> bool:
        """True if it holds jobs that come back."""
        return self.lane < 0

    @property
    def front(self) -> "Lane":
        """Return its front lane; a front lane is its own."""
        return Lane(self.priority, self.queue, min(self.lane, ~self.lane))


class Place(NamedTuple):
    """Place in a lane: scans continue after the job `id` that is due at `run_at`.

    All jobs before it had been claimed when the claim `as_of` was made.
    """

    run_at: datetime
    id: int
    as_of: int


START = Place(EPOCH, 0, 0)
"""Beginning of a lane."""


class LaneArrays(NamedTuple):
    """Lanes and the places where their scans start, as claim_v1 takes them."""

    queues: Texts
    priorities: Smallints
    lanes: Smallints
    floors: Instants
    floor_ids: Bigints
    seen: Bigints


def lane_arrays(lanes: Sequence[Lane], places: Sequence[Place]) -> LaneArrays:
    """Convert lanes and places to the arrays of a claim."""
    return LaneArrays(
        queues=Texts([lane.queue for lane in lanes]),
        priorities=Smallints([lane.priority for lane in lanes]),
        lanes=Smallints([lane.lane for lane in lanes]),
        floors=Instants([place.run_at for place in places]),
        floor_ids=Bigints([place.id for place in places]),
        seen=Bigints([place.as_of for place in places]),
    )


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Request of a claim: the lanes in order, and the place where each scan starts.

    Attributes:
        from_start: scan from the beginning, for jobs that became visible there. None:
            only lanes that no worker with the same kinds has scanned so for a while.
        after: the last known claim of this worker.
        is_large: it will probably claim many jobs, so they are read at once.
        lane_wait_ms: milliseconds to wait for a lane, if others claim from all of them.
        arrays: the lanes and places as they are sent, if they are packed already.
    """

    worker: int
    lanes: Sequence[Lane]
    places: Sequence[Place]
    want: int
    from_start: bool | None = True
    after: int = 0
    is_large: bool = True
    lane_wait_ms: int = 0
    arrays: LaneArrays | None = field(default=None, compare=False, repr=False)


class LaneClaim(NamedTuple):
    """Result of a claim in one lane, as claim.sql says it."""

    lane_no: int | None
    jobs: int
    upto: datetime | None
    upto_id: int | None
    as_of: int | None
    claim: int | None


_OF_A_LANE = len(LaneClaim._fields)
"""Columns about a lane in a claim's row. The last of them also belongs to a job."""


class Settlements(NamedTuple):
    """Settlements to send.

    If two completions, or two reports, have the same id and deliveries, the last one
    counts.

    Attributes:
        ended: the claims that become empty with this batch.
        results: results of some of the completions, to be kept.
    """

    completions: Sequence[Completion] = ()
    reports: Sequence[ClaimReport] = ()
    ended: Sequence[int] = ()
    results: Sequence[Returned] = ()


class Answer(NamedTuple):
    """Result of an exchange.

    Attributes:
        completed: the ids that were completed; None = all of them.
        settled: the ids that were settled by reports.
        lanes: the claims.
        rows: makes the rows of the claimed jobs; to be called once.
        claim_error: why nothing was claimed, if the claim failed.
    """

    completed: set[int] | None
    settled: set[int]
    lanes: list[LaneClaim]
    rows: Callable[[], list[Row]]
    claim_error: psycopg.Error | None = None


def exchange(
    conn: OwnConnection, settlements: Settlements, claim: ClaimRequest | None
) -> Answer:
    """Settle, claim, and read what was claimed, in one round trip.

    These are up to three transactions. The claim holds its lanes only while it lasts,
    and waits for no disk. Settlements are kept even if the claim fails. If settlements
    fail, nothing is claimed. A few small jobs come with their claim, and need no read.

    Raises:
        psycopg.Error: no settlement is known to be kept.
    """
    asked = bool(settlements.completions or settlements.reports)
    # in a caller's transaction, all of it is one transaction
    is_idle = conn.info.transaction_status == TransactionStatus.IDLE
    commits = is_idle and claim is not None
    settled: Cursor | None = None
    reading: Cursor | None = None
    # A claim that is small and comes alone is one statement: it needs no pipeline.
    is_pipelined = claim is None or asked or claim.is_large

    try:
        with conn.pipeline() if is_pipelined else contextlib.nullcontext():
            if asked:
                with _transaction(conn, commits) as settled:
                    _send_settlements(conn, settlements)
            if claim is not None:
                reading = _send_claim(conn, claim, commits=commits)

        lanes, rows = _claimed(conn, reading, claim)
    except psycopg.Error as error:
        if not _are_kept(conn, settled, commits=commits):
            raise

        return Answer(*_settled(conn, settlements), [], list, error)

    return Answer(*_settled(conn, settlements), lanes, rows)


def _are_kept(conn: OwnConnection, settled: Cursor | None, *, commits: bool) -> bool:
    """End a failed exchange; return True if its settlements are committed for sure."""
    if conn.closed:
        return False
    # A transaction that failed in the middle is still open.
    if commits:
        conn.rollback()
    # The server skips the commit after a failure. Then it has no status.
    return settled is not None and settled.statusmessage == "COMMIT"


def may_have_claimed(conn: OwnConnection) -> bool:
    """Return True if the last exchange may have claimed jobs that were not read.

    If the server refused the claim itself, its cursor has no result.
    """
    return conn.closed or _claiming(conn).statusmessage is not None


@contextlib.contextmanager
def _transaction(conn: OwnConnection, commits: bool) -> Iterator[Cursor | None]:  # noqa: FBT001 # mine
    """Open a transaction of its own in a pipeline.

    Yields the cursor whose status says if it was committed. This is not a `sync`, which
    would wait for the answers. After a failure, the server skips the rest.
    """
    if not commits:
        yield None
        return

    committing = conn.cursor()
    conn.execute("begin")
    yield committing
    committing.execute("commit")
    # Behind a pooler, the transaction that follows needs our settings, too.
    conn.begin()


def _send_settlements(conn: OwnConnection, settlements: Settlements) -> None:
    completions, reports, ended, results = settlements
    if completions:
        # the last statement of a batch says which claims are empty
        ended_by_them = () if reports else ended
        _send_completions(_completing(conn), completions, ended_by_them, results)

    if reports:
        _send_reports(_settling(conn), reports, ended)


def _claimed(
    conn: OwnConnection, reading: Cursor | None, claim: ClaimRequest | None
) -> tuple[list[LaneClaim], Callable[[], list[Row]]]:
    """Return the claims and their jobs, which are read now if they did not come yet."""
    if claim is None:
        return [], list

    found = _claiming(conn).fetchall()
    lanes = [LaneClaim(*row[:_OF_A_LANE]) for row in found if row[_OF_A_LANE] is None]
    rows = [row[_OF_A_LANE - 1 :] for row in found if row[_OF_A_LANE] is not None]

    # claim_v1 returns all jobs of a claim, or none of them.
    has_all = bool(rows) or not any(lane.jobs for lane in lanes)
    if has_all:
        return lanes, lambda: rows

    # No read was sent with the claim if it was expected to be small.
    reading = reading or _read(conn, claim)
    return lanes, reading.fetchall


def _settled(
    conn: OwnConnection, settlements: Settlements
) -> tuple[set[int] | None, set[int]]:
    """Return the completed ids (None = all), and the ids settled by reports."""
    completed: set[int] | None = None
    settled = set[int]()
    if settlements.completions:
        completed = _completed(_completing(conn))
    if settlements.reports:
        settled = {job for (job,) in _settling(conn).fetchall()}

    return completed, settled


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
    # by id and deliveries alone, so that equal ones keep their order
    ordered = sorted(completions, key=itemgetter(0, 1))
    ids, deliveries, claims, workers = zip(*ordered, strict=True)
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
        Floats([one.keep for one in results]),
    )
    cursor.execute(_COMPLETE_WITH_RESULTS, (*batch, *returned), prepare=True)


def _completed(cursor: Cursor) -> set[int] | None:
    """Return the ids that were ours to complete; None = all of them."""
    (ids,) = cursor.fetchone() or (None,)
    if ids is None:
        return None

    return set(ids)


def _send_reports(
    cursor: Cursor, reports: Sequence[ClaimReport], ended: Sequence[int]
) -> None:
    # jobs are locked in this order
    ordered = sorted(reports, key=lambda held: (held[0].id, held[0].deliveries))
    sent = [report for report, _, _ in ordered]
    parameters = (
        Ints([worker for _, _, worker in ordered]),
        Bigints([claim for _, claim, _ in ordered]),
        Bigints([report.id for report in sent]),
        Ints([report.deliveries for report in sent]),
        Texts([report.outcome for report in sent]),
        # Most of them are null, which `Instants` cannot hold.
        [report.run_at for report in sent],
        Floats([report.delay for report in sent]),
        Booleans([report.refund for report in sent]),
        Ints([report.losses for report in sent]),
        Texts([report.failure for report in sent]),
        Texts([report.reason for report in sent]),
        Bigints(ended),
    )
    cursor.execute(_SETTLE, parameters, prepare=True)


def _send_claim(
    conn: OwnConnection, claim: ClaimRequest, *, commits: bool
) -> Cursor | None:
    """Ask for jobs. Returns the cursor that reads them, if the claim may be large."""
    arrays = claim.arrays or lane_arrays(claim.lanes, claim.places)
    scalars = claim.from_start, claim.want, claim.lane_wait_ms
    parameters = claim.worker, *arrays, *scalars

    with _transaction(conn, commits and claim.is_large):
        _claiming(conn).execute(_CLAIM, parameters, prepare=True)

    if claim.is_large:
        return _read(conn, claim)

    return None


def _read(conn: OwnConnection, claim: ClaimRequest) -> Cursor:
    """Ask for the rows of the claimed jobs.

    They may be large, so they have a cursor of their own, and are freed with it.
    """
    cursor = conn.cursor(binary=True)
    return cursor.execute(_CLAIMED, (claim.worker, claim.after), prepare=True)
