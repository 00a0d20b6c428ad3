"""Claimed job, from its claim until its settlement is known."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import overload

import msgspec

from redrive.worker.protocol import Returned, Work
from redrive.worker.round_trip import LaneClaim, Row


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Facts of jobs claimed together: the identity, and the queue of each lane."""

    worker: int
    queues: list[str]


@dataclass(slots=True, eq=False)
class Claim:
    """Claim of some jobs of one lane by an identity, `worker`.

    `left` counts its jobs not settled yet.
    """

    id: int
    worker: int
    lane_no: int
    left: int


class ClaimedJob(msgspec.Struct, gc=False, eq=False):
    """Job that this worker has claimed and not settled.

    `lane_no` counts `batch.queues` from 1. `position` counts the jobs sent to the
    runner that holds it; compare it with SharedState.taken. `returned`: the result of
    its handler, to be kept.
    """

    id: int
    deliveries: int
    attempt: int
    kind: str
    payload: str
    extras: str | None
    lane_no: int
    run_at: datetime
    queue: str
    batch: Batch
    claim: Claim
    created: float
    position: int = 0
    returned: Returned | None = None

    @property
    def key(self) -> tuple[int, int]:
        """Return the job and its delivery."""
        return self.id, self.deliveries

    @property
    def worker(self) -> int:
        """Return the identity that claimed it."""
        return self.batch.worker

    def work(self) -> Work:
        """Return the part of the job that a runner needs."""
        return Work(
            self.id,
            self.deliveries,
            self.attempt,
            self.kind,
            self.payload,
            self.extras,
            self.lane_no,
            self.created,
        )


class LazyJobs(Sequence[ClaimedJob]):
    """Jobs of a claim that are made when they are first used.

    By then the database may work on the next claim. Their number is known before.
    """

    def __init__(self, count: int, make: Callable[[], list[ClaimedJob]]) -> None:
        self._count = count
        self._make = make
        self._jobs: list[ClaimedJob] | None = None

    def _made(self) -> list[ClaimedJob]:
        if self._jobs is None:
            self._jobs = self._make()
            # free what they were made of, which is as large as they are
            self._make = list

        return self._jobs

    def __len__(self) -> int:
        if self._jobs is None:
            return self._count
        return len(self._jobs)

    def __iter__(self) -> Iterator[ClaimedJob]:
        return iter(self._made())

    @overload
    def __getitem__(self, index: int) -> ClaimedJob: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ClaimedJob]: ...
    def __getitem__(self, index: int | slice) -> ClaimedJob | Sequence[ClaimedJob]:
        return self._made()[index]


def held_from(
    batch: Batch, lanes: Iterable[LaneClaim], rows: Iterable[Row]
) -> list[ClaimedJob]:
    """Return the jobs of claimed rows."""
    queues = batch.queues
    claims = {
        lane.claim: Claim(lane.claim, batch.worker, lane.lane_no, lane.jobs)
        for lane in lanes
        if lane.claim is not None and lane.lane_no is not None
    }
    jobs: list[ClaimedJob] = []

    for row in rows:
        claim_id, id_, deliveries, attempt, kind, payload, extras, run_at, created = row
        claim = claims[claim_id]
        job = ClaimedJob(
            id_,
            deliveries,
            attempt,
            kind,
            payload,
            extras,
            claim.lane_no,
            run_at,
            queues[claim.lane_no - 1],
            batch,
            claim,
            created,
        )
        jobs.append(job)

    return jobs
