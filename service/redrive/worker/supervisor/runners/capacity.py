"""Number of jobs to hold.

Enough that no slot waits for the database, not so many that jobs wait behind others.

Each runner gets its slots' worth, and beyond that what it ends within a moment, by its
speed while it has any: waiting for the database does not make it slow. Handlers of a
    second are not fetched
ahead at all; handlers of a microsecond are fetched by the thousand, half of that at a
time: one half runs while the database works on the other.
"""

from collections.abc import Iterator, Sequence

from redrive.worker.supervisor.held import Held
from redrive.worker.supervisor.runners.runner_process import RunnerProcess

AHEAD_SECONDS = 0.03
MOST_AHEAD = 4_000
MEASURED_ROUNDS = 4
"""Jobs per slot that are enough for a measurement: those that began together also end
together.
"""


class Capacity:
    """Number of jobs that the runners of one worker can take, with this many slots
    each.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots

    def heed(self, runner: RunnerProcess, now: float) -> None:
        """Measure a runner that has ended enough: a burst is fetched by the thousand at
        once.
        """
        if runner.held.speed.ended >= MEASURED_ROUNDS * self._slots:
            runner.held.measure(now)

    def of(self, runner: RunnerProcess) -> int:
        """Jobs this runner should have in hand."""
        return self._slots + min(
            MOST_AHEAD, int(runner.held.speed.per_second * AHEAD_SECONDS)
        )

    def _free_in(self, runner: RunnerProcess) -> int:
        return max(0, self.of(runner) - len(runner.held))

    def free(self, runners: Sequence[RunnerProcess]) -> int:
        """Jobs that can be claimed now."""
        return sum(self._free_in(r) for r in runners if r.takes_any)

    def to_claim(
        self, runners: Sequence[RunnerProcess], coming: int = 0, *, backlog: bool
    ) -> int:
        """Jobs to ask for now: at once for an idle slot; to fetch ahead, by half of
        that at a time.

        `coming`: jobs that are about to be handed out. `backlog`: whether more are
            likely to wait
        than were claimed.
        """
        takers = [r for r in runners if r.takes_any]
        free = max(0, self.free(takers) - coming)
        ahead = sum(self.of(r) - self._slots for r in takers)
        if not coming and any(len(r.held) < self._slots for r in takers):
            return free
        half = self._slots * len(takers) + ahead // 2
        return min(free, half) if backlog and free * 2 >= ahead else 0

    def shares(
        self, runners: Sequence[RunnerProcess], jobs: Sequence[Held]
    ) -> Iterator[tuple[RunnerProcess | None, Sequence[Held]]]:
        """Deal jobs out by what is free; the last taker gets what is left.

        The taker is None when there is nobody to take them.
        """
        takers = sorted((r for r in runners if r.takes_any), key=self._free_in)
        if not takers:
            yield None, jobs
        for others, runner in zip(reversed(range(len(takers))), takers, strict=True):
            # Even shares, the fullest first: what it cannot take goes to those that
            # can, and no slow job queues up in one runner beside an idle slot of
            # another.
            even = len(jobs) // (others + 1)
            size = min(even, self._free_in(runner)) if others else even
            if size:
                yield runner, jobs[:size]
                jobs = jobs[size:]
