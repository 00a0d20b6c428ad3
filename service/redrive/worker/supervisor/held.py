"""A claimed job, from its claim until its settlement is known."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from redrive.worker.protocol import Work
from redrive.worker.store import Row


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What the jobs of one claim share: the identity that claimed, and the queue of each lane."""

    worker: int
    queues: list[str]


class Held(msgspec.Struct, gc=False, eq=False):
    """A job that this worker has claimed and not settled.

    `lane_no` counts `batch.queues` from 1. `position` counts the jobs sent to the runner that has
    it; compare with SharedState.taken.
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
    position: int = 0

    @property
    def worker(self) -> int:
        """The identity that claimed it."""
        return self.batch.worker

    def work(self) -> Work:
        """What a runner needs of it."""
        return Work(
            self.id,
            self.deliveries,
            self.attempt,
            self.kind,
            self.payload,
            self.extras,
            self.lane_no,
        )


def held_from(batch: Batch, rows: Iterable[Row]) -> list[Held]:
    """Give the columns of claimed rows their names."""
    queues = batch.queues
    return [
        Held(id_, deliveries, attempt, kind, payload, extras, no, run_at, queues[no - 1], batch)
        for id_, deliveries, attempt, kind, payload, extras, no, run_at in rows
    ]
