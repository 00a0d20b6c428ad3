"""How many jobs to have in hand: enough that no slot waits for the database, not so many that jobs
wait behind others.

Each runner gets its slots' worth, and beyond that what it ends within a moment, by its speed while
it has any: waiting for the database does not make it slow. Handlers of a second are not fetched
ahead at all; handlers of a microsecond are fetched by the thousand.
"""

from collections.abc import Iterator, Sequence

from redrive.worker.store import Row
from redrive.worker.supervisor.pool import RunnerProcess

AHEAD_SECONDS = 0.03
MOST_AHEAD = 2_000
MEASURED_ROUNDS = 4
"""Jobs per slot that are enough for a measurement: those that began together also end together."""


class Capacity:
    """How many jobs the runners of one worker can take, of so many slots each."""

    def __init__(self, slots: int) -> None:
        self._slots = slots

    def heed(self, runner: RunnerProcess, now: float) -> None:
        """Measure a runner that has ended enough: a burst is fetched by the thousand at once."""
        if runner.done >= MEASURED_ROUNDS * self._slots:
            self.measure(runner, now)

    def measure(self, runner: RunnerProcess, now: float) -> None:
        """Take its speed; a faster one is believed at once, a slower one by and by."""
        if runner.held:
            runner.busy += now - runner.busy_since
            runner.busy_since = now
        rate = runner.done / runner.busy if runner.busy > 0 else 0.0
        runner.rate = rate if rate > runner.rate else runner.rate * 0.7 + rate * 0.3
        runner.done, runner.busy = 0, 0.0

    def of(self, runner: RunnerProcess) -> int:
        """Jobs this runner should have in hand."""
        return self._slots + min(MOST_AHEAD, int(runner.rate * AHEAD_SECONDS))

    def _free_in(self, runner: RunnerProcess) -> int:
        return max(0, self.of(runner) - len(runner.held))

    def free(self, runners: Sequence[RunnerProcess]) -> int:
        """Jobs that can be claimed now."""
        return sum(self._free_in(r) for r in runners if r.takes_any)

    def is_worth_a_claim(self, runners: Sequence[RunnerProcess], *, backlog: bool) -> bool:
        """Whether to ask now: at once for an idle slot; to fetch ahead, only for half of that at a
        time.
        """
        free = self.free(runners)
        if free == 0:
            return False
        takers = [r for r in runners if r.takes_any]
        if any(len(r.held) < self._slots for r in takers):
            return True
        ahead = sum(self.of(r) - self._slots for r in takers)
        return backlog and free * 2 >= ahead

    def shares(
        self, runners: Sequence[RunnerProcess], rows: list[Row]
    ) -> Iterator[tuple[RunnerProcess | None, list[Row]]]:
        """Deal rows out by what is free; the last taker gets what is left, None when there is nobody to
        take them.
        """
        takers = sorted((r for r in runners if r.takes_any), key=self._free_in)
        if not takers:
            yield None, rows
        start = 0
        for n, runner in enumerate(takers):
            left = len(rows) - start
            if left <= 0:
                return
            # Even shares, the fullest first: what it cannot take goes to those that can, and no
            # slow job queues up in one runner beside an idle slot of another.
            size = (
                left
                if n == len(takers) - 1
                else min(left // (len(takers) - n), self._free_in(runner))
            )
            if size:
                yield runner, rows[start : start + size]
                start += size
