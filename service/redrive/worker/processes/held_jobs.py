"""Jobs in the hands of one runner, and how fast it works through them.

Every job that was handed out is here until its settlement is known.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from redrive.worker.held import ClaimedJob
from redrive.worker.processes.speed import Speed


@dataclass(slots=True, eq=False)
class HeldJobs:
    """Jobs of one runner, by id. `sent`: how many it has got in its life."""

    by_id: dict[int, ClaimedJob] = field(default_factory=dict[int, ClaimedJob])
    speed: Speed = field(default_factory=Speed)
    sent: int = 0

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[ClaimedJob]:
        return iter(self.by_id.values())

    def __contains__(self, job: int) -> bool:
        return job in self.by_id

    def add(self, jobs: Sequence[ClaimedJob]) -> None:
        """Add jobs, and number them in the order in which the runner takes them."""
        if not self.by_id:
            self.speed.begin(time.monotonic())

        for position, held in enumerate(jobs, self.sent + 1):
            held.position = position
            self.by_id[held.id] = held

        self.sent += len(jobs)

    def find(self, job: int, deliveries: int | None = None) -> ClaimedJob | None:
        """Return a job in hand, if it is this delivery. None = any delivery."""
        held = self.by_id.get(job)
        if held is None or deliveries in {None, held.deliveries}:
            return held
        return None

    def take_completed(
        self, rows: Iterable[tuple[int, int, float]]
    ) -> list[tuple[ClaimedJob, float]]:
        """Take out completed jobs: (id, deliveries, seconds), as in `Done`.

        Returns the jobs that were in hand under this delivery, with their seconds.
        """
        found: list[tuple[ClaimedJob, float]] = []
        for job, deliveries, seconds in rows:
            held = self.by_id.get(job)
            if held is not None and held.deliveries == deliveries:
                del self.by_id[job]
                found.append((held, seconds))

        self._ended(len(found))
        return found

    def take_ended(self, job: int, deliveries: int) -> ClaimedJob | None:
        """Take out a job whose attempt ended; None if another claim's is in hand."""
        held = self.by_id.get(job)
        if held is None or held.deliveries != deliveries:
            return None

        del self.by_id[job]
        self._ended(1)

        return held

    def take_unstarted(self, jobs: Iterable[int]) -> list[ClaimedJob]:
        """Take out jobs that the runner never started."""
        taken = (self.by_id.pop(job, None) for job in jobs)
        return [held for held in taken if held is not None]

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the jobs of these identities."""
        for job in [held.id for held in self if held.worker in workers]:
            del self.by_id[job]

    def _ended(self, count: int) -> None:
        self.speed.ended += count
        if not self.by_id:
            self.speed.pause(time.monotonic())

    def measure(self, now: float, least: float = 0.0) -> None:
        """Measure the speed since the last measurement, as `Speed.measure`."""
        self.speed.measure(now, is_busy=bool(self.by_id), least=least)
