"""Dispatch: which runner gets a claimed job, and what becomes of one that no runner can take.

A job that may be what kills its processes runs by itself: if one more dies, there is no doubt whose
doing it was, and its neighbours are spared.
"""

from collections import deque
from collections.abc import Callable, Iterator

from redrive.worker.protocol import read_extras
from redrive.worker.store import Row
from redrive.worker.supervisor.capacity import Capacity
from redrive.worker.supervisor.crash import policy_of
from redrive.worker.supervisor.pool import Batch, Held, RunnerPool, RunnerProcess

SUSPECTS_WAITING = 20
ALONE_IDLE_SECONDS = 20.0


class Dispatch:
    """The jobs of one worker that are in no runner's hands, and the way there. Iterates over them."""

    def __init__(
        self, pool: RunnerPool, capacity: Capacity, observe: Callable[[RunnerProcess], None]
    ) -> None:
        self._pool = pool
        self._capacity = capacity
        self._observe = observe
        self._waiting: deque[Held] = deque()  # for any runner
        self._suspects: deque[Held] = deque()  # to be run alone

    def __len__(self) -> int:
        return len(self._waiting) + len(self._suspects)

    def __iter__(self) -> Iterator[Held]:
        yield from self._waiting
        yield from self._suspects

    @property
    def is_full(self) -> bool:
        """Whether no more should be claimed."""
        return bool(self._waiting) or len(self._suspects) > SUSPECTS_WAITING

    def claimed(self, batch: Batch, rows: list[Row]) -> None:
        """Hand out the jobs of one claim."""
        suspects = {
            row[0] for row in rows if row[5] is not None and self._is_on_its_last_chance(row)
        }
        if suspects:
            self._suspects.extend(Held(row, batch) for row in rows if row[0] in suspects)
            rows = [row for row in rows if row[0] not in suspects]
            self._hand_to_alone()
        self._hand_out(batch, rows)

    def take_back(self, held: Held) -> None:
        """Keep a job whose runner ended before it began: another one gets it."""
        self._waiting.append(held)

    def tend(self, now: float) -> None:
        """Hand out what waits to the runners there are by now; let go of one kept for suspects when
        there are none.
        """
        waiting, self._waiting = self._waiting, deque()
        for held in waiting:
            self._hand_out(held.batch, [held.row])
        for runner in self._pool.runners:
            is_idle = runner.alone and not runner.held and not self._suspects
            if is_idle and now - runner.started_at > ALONE_IDLE_SECONDS:
                runner.stop()
        self._hand_to_alone()

    def forget(self, workers: set[int]) -> None:
        """Drop the jobs of identities that were declared lost: others may have them."""
        self._waiting = deque(held for held in self._waiting if held.worker not in workers)
        self._suspects = deque(held for held in self._suspects if held.worker not in workers)

    def give_up(self) -> list[Held]:
        """Take out all there is, to be given back."""
        given_up = list(self)
        self._waiting.clear()
        self._suspects.clear()
        return given_up

    def _hand_out(self, batch: Batch, rows: list[Row]) -> None:
        for runner, share in self._capacity.shares(self._pool.runners, rows):
            if runner is None:
                self._waiting.extend(Held(row, batch) for row in share)
            else:
                runner.hand(batch, share)

    def _is_on_its_last_chance(self, row: Row) -> bool:
        losses = read_extras(row[5]).losses
        return losses > 0 and losses >= policy_of(self._pool.kind(row[3])).max_losses - 1

    def _hand_to_alone(self) -> None:
        if not self._suspects:
            return
        alone = next((r for r in self._pool.runners if r.alone and not r.retiring), None)
        if alone is None:
            self._observe(self._pool.spawn(alone=True))
        elif alone.ready and not alone.held:
            held = self._suspects.popleft()
            alone.hand(held.batch, [held.row])
