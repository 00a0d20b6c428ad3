"""Number of jobs to hold: no slot waits for the database, no job behind many others.

Each runner gets a job for each slot, and the jobs that it ends within AHEAD_SECONDS.
Its speed is measured only while it has jobs: time without jobs does not count. If
handlers take a second, no job is fetched ahead. If they take a microsecond, jobs are
fetched ahead by the thousand. Half of them come at a time: one half runs while the
database works on the other. A worker that waits longer for its turn in a backlog, among
many workers, fetches more ahead. So each claim is larger, and all workers share fewer.
"""

from collections.abc import Iterator, Sequence

from redrive.worker.held import ClaimedJob
from redrive.worker.processes.runner_process import RunnerProcess

AHEAD_SECONDS, MAX_AHEAD_SECONDS = 0.03, 0.5
MOST_AHEAD = 4_000
MEASURED_ROUNDS = 4
"""Jobs per slot to measure a speed: jobs that start together also end together."""


class Capacity:
    """Number of jobs that runners can take. `slots`: of each runner.

    `turn_seconds`: how long the last claim had to wait for other workers.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.turn_seconds = 0.0

    def measure(self, runner: RunnerProcess, now: float) -> None:
        """Measure a runner that has ended enough jobs for that."""
        if runner.held.speed.ended >= MEASURED_ROUNDS * self._slots:
            runner.held.measure(now)

    def of(self, runner: RunnerProcess) -> int:
        """Return how many jobs this runner should hold."""
        seconds = max(AHEAD_SECONDS, self.turn_seconds)
        seconds = min(MAX_AHEAD_SECONDS, seconds)
        ahead = int(runner.held.speed.per_second * seconds)
        ahead = min(MOST_AHEAD, ahead)

        return self._slots + ahead

    def _free_in(self, runner: RunnerProcess) -> int:
        return max(0, self.of(runner) - len(runner.held))

    def free(self, runners: Sequence[RunnerProcess]) -> int:
        """Return how many jobs can be claimed now."""
        return sum(self._free_in(r) for r in runners if r.takes_any)

    def to_claim(
        self, runners: Sequence[RunnerProcess], coming: int = 0, *, backlog: bool
    ) -> int:
        """Return how many jobs to ask for now.

        A job for an idle slot is asked for at once. Jobs to fetch ahead are asked for
        by the half.

        Args:
            coming: jobs that are about to be handed out.
            backlog: True if the last claim probably left jobs behind.
        """
        takers = [runner for runner in runners if runner.takes_any]
        free = self.free(takers) - coming
        free = max(0, free)

        has_idle_slot = any(len(runner.held) < self._slots for runner in takers)
        if has_idle_slot and not coming:
            return free

        if not backlog:
            return 0

        return self._to_fetch_ahead(takers, free)

    def _to_fetch_ahead(self, takers: Sequence[RunnerProcess], free: int) -> int:
        """Return how many jobs to fetch ahead; none while more than half are there."""
        ahead = sum(self.of(runner) - self._slots for runner in takers)
        if free * 2 < ahead:
            return 0

        return min(free, self._slots * len(takers) + ahead // 2)

    def shares(
        self, runners: Sequence[RunnerProcess], jobs: Sequence[ClaimedJob]
    ) -> Iterator[tuple[RunnerProcess | None, Sequence[ClaimedJob]]]:
        """Deal jobs out by what is free; the last taker gets the rest.

        The taker is None if no runner can take them.
        """
        takers = sorted((r for r in runners if r.takes_any), key=self._free_in)
        if not takers:
            yield None, jobs

        for others, runner in zip(reversed(range(len(takers))), takers, strict=True):
            # Shares are even, and the fullest runner comes first: the others get what
            # it cannot take. So no slow job waits in one runner while another is idle.
            even = len(jobs) // (others + 1)
            size = min(even, self._free_in(runner)) if others else even

            if size:
                yield runner, jobs[:size]
                jobs = jobs[size:]
