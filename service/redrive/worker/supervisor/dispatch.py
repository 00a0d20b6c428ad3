"""Dispatch: which runner gets a claimed job, and what becomes of one that no runner can take.

A job that may be what kills its processes runs by itself: if one more dies, there is no doubt whose
doing it was, and its neighbours are spared.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from redrive.worker.protocol import read_extras
from redrive.worker.supervisor.capacity import Capacity
from redrive.worker.supervisor.held import Held
from redrive.worker.supervisor.kinds import KnownKinds
from redrive.worker.supervisor.pool import RunnerPool

SUSPECTS_WAITING = 20
ALONE_IDLE_SECONDS = 20.0


class Dispatch:
    """The jobs of one worker that are in no runner's hands, and the way there."""

    def __init__(self, pool: RunnerPool, capacity: Capacity, kinds: KnownKinds) -> None:
        self._pool = pool
        self._capacity = capacity
        self._kinds = kinds
        self._waiting: deque[Held] = deque()  # for any runner
        self._suspects: deque[Held] = deque()  # to be run alone

    def __len__(self) -> int:
        return len(self._waiting) + len(self._suspects)

    def __iter__(self) -> Iterator[Held]:
        yield from self._waiting
        yield from self._suspects

    def room(self, *, backlog: bool) -> int:
        """Jobs to claim now; `backlog`: whether more are likely to wait than were claimed."""
        if self._waiting or len(self._suspects) > SUSPECTS_WAITING or not self._kinds:
            return 0
        return self._capacity.to_claim(self._pool.runners, backlog=backlog)

    def claimed(self, jobs: Sequence[Held]) -> None:
        """Hand out the jobs of one claim."""
        suspects = {
            held for held in jobs if held.extras is not None and self._is_on_its_last_chance(held)
        }
        if suspects:
            self._suspects.extend(held for held in jobs if held in suspects)
            jobs = [held for held in jobs if held not in suspects]
            self._hand_to_alone()
        self._hand_out(jobs)

    def take_back(self, held: Held) -> None:
        """Keep a job whose runner ended before it began: another one gets it."""
        self._waiting.append(held)

    def hand_out_waiting(self, now: float) -> None:
        """Hand out what waits to the runners there are by now.

        Lets go of the runner kept for suspects when there are none.
        """
        waiting, self._waiting = self._waiting, deque()
        for held in waiting:
            self._hand_out([held])
        for runner in self._pool.runners:
            is_idle = runner.alone and not runner.load and not self._suspects
            if is_idle and now - runner.started_at > ALONE_IDLE_SECONDS:
                runner.stop()
        self._hand_to_alone()

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the jobs of identities that were declared lost: others may have them."""
        self._waiting = deque(held for held in self._waiting if held.worker not in workers)
        self._suspects = deque(held for held in self._suspects if held.worker not in workers)

    def give_up(self) -> list[Held]:
        """Take out all there is, to be given back."""
        given_up = list(self)
        self._waiting.clear()
        self._suspects.clear()
        return given_up

    def _hand_out(self, jobs: Sequence[Held]) -> None:
        for runner, share in self._capacity.shares(self._pool.runners, jobs):
            if runner is None:
                self._waiting.extend(share)
            else:
                runner.hand(share)

    def _is_on_its_last_chance(self, held: Held) -> bool:
        losses = read_extras(held.extras).losses
        return losses > 0 and losses >= self._kinds.policy(held.kind).max_losses - 1

    def _hand_to_alone(self) -> None:
        if not self._suspects:
            return
        alone = next((r for r in self._pool.runners if r.alone and not r.retiring), None)
        if alone is None:
            self._pool.spawn(alone=True)
        elif alone.takes_suspects:
            alone.hand([self._suspects.popleft()])
