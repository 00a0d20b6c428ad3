"""Dispatch: which runner gets a claimed job, and what becomes of one that no runner can
take.

A job that may be what kills its processes runs by itself: if one more dies, there is no
    doubt whose
doing it was, and its neighbours are spared.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from redrive.database.link import Link
from redrive.rules.attempts.settlement import Release
from redrive.worker.protocol import read_extras
from redrive.worker.supervisor.held import Held
from redrive.worker.supervisor.kinds import KnownKinds
from redrive.worker.supervisor.runners.capacity import Capacity
from redrive.worker.supervisor.runners.pool import RunnerPool
from redrive.worker.supervisor.runners.suspects import Suspects
from redrive.worker.supervisor.runners.trial import Trial


class Dispatch:
    """The jobs of one worker that are in no runner's hands, and the way there."""

    def __init__(self, pool: RunnerPool, capacity: Capacity, kinds: KnownKinds) -> None:
        self._pool = pool
        self._capacity = capacity
        self._kinds = kinds
        self._claimed: Sequence[Held] = ()  # handed out while the database works
        self._waiting: deque[Held] = deque()  # for any runner
        self._suspects = Suspects(pool)
        self._trial = Trial(pool, self._suspects)

    def __bool__(self) -> bool:
        waiting = self._suspects.waiting() or self._trial.waiting()
        return bool(self._claimed or self._waiting or waiting)

    def __iter__(self) -> Iterator[Held]:
        yield from self._claimed
        yield from self._waiting
        yield from self._suspects.waiting()
        yield from self._trial.waiting()

    def room(self, *, backlog: bool) -> int:
        """Jobs to claim now; `backlog`: whether more are likely to wait than were
        claimed.
        """
        if self._waiting or self._trial.is_on or not self._kinds:
            return 0
        return self._capacity.to_claim(
            self._pool.runners, len(self._claimed), backlog=backlog
        )

    def load(self, jobs: Sequence[Held]) -> None:
        """Keep the jobs of a claim until `unload`."""
        self._claimed = jobs

    @property
    def is_loaded(self) -> bool:
        """True if jobs of a claim have not been looked at."""
        return bool(self._claimed)

    def unload(self) -> Sequence[Held]:
        """The jobs of the last claim, to be handed out."""
        jobs, self._claimed = self._claimed, ()
        return jobs

    def claimed(self, jobs: Sequence[Held]) -> list[tuple[Held, Release]]:
        """Hand out the jobs of one claim. Returns those that there is no room for."""
        releases: list[tuple[Held, Release]] = []
        others = [
            held for held in jobs if held.extras is None or self._is_any(held, releases)
        ]
        if len(others) < len(jobs):
            self._hand_to_suspects(0.0)
        if self._trial.is_on and not self._pool.held():
            # nothing is in its way: it need not wait for what has not started
            releases += [(held, Release("trial")) for held in others]
            others = []
        self._hand_out(others)
        return releases

    def _is_any(self, held: Held, releases: list[tuple[Held, Release]]) -> bool:
        """Return True if any runner may have the job; keep a suspect, or add its
        release.
        """
        losses = read_extras(held.extras).losses
        most = self._kinds.policy(held.kind).max_losses
        if losses == 0 or losses < most - 1:
            return True
        release = (self._suspects if losses < most else self._trial).take(held)
        if release is not None:
            releases.append((held, release))
        return False

    def take_back(self, held: Held) -> None:
        """Keep a job whose runner ended before it began: another one gets it."""
        self._waiting.append(held)

    def hand_out_waiting(self, now: float) -> None:
        """Hand out what waits to the runners there are by now."""
        if not self._trial.is_on:
            waiting, self._waiting = self._waiting, deque()
            for held in waiting:
                self._hand_out([held])
        self._hand_to_suspects(now)

    def try_alone(self, link: Link, now: float) -> tuple[Held, Release] | None:
        """See to the job that is to have the worker to itself; returns it to be given
        back.

        Raises psycopg.Error.
        """
        return self._trial.proceed(link, now)

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the jobs of identities that were declared lost: others may have them."""
        self._claimed = [held for held in self._claimed if held.worker not in workers]
        self._waiting = deque(
            held for held in self._waiting if held.worker not in workers
        )
        self._suspects.keep(lambda held: held.worker not in workers)
        self._trial.forget(workers)

    def give_up(self) -> list[Held]:
        """Take out all there is, to be given back."""
        given_up = list(self)
        self._claimed = ()
        self._waiting.clear()
        self._suspects.keep(lambda _: False)
        self._trial.drop()
        return given_up

    def _hand_to_suspects(self, now: float) -> None:
        if not self._trial.is_on:
            self._suspects.hand_out(now)

    def _hand_out(self, jobs: Sequence[Held]) -> None:
        for runner, share in self._capacity.shares(self._pool.runners, jobs):
            if runner is None:
                self._waiting.extend(share)
            else:
                runner.hand(share)
