"""Dispatch of claimed jobs to runners.

A job that may kill its processes runs by itself. If one more process dies, the cause is
certain, and no other job is harmed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from redrive.database.connections.link import Link
from redrive.rules.attempts.settlement import Release
from redrive.worker.held import ClaimedJob
from redrive.worker.kinds import KnownKinds
from redrive.worker.processes.capacity import Capacity
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.suspects import Suspects
from redrive.worker.processes.trial import Trial
from redrive.worker.protocol import read_extras


class Dispatch:
    """Jobs of one worker that no runner holds yet."""

    def __init__(self, pool: RunnerPool, capacity: Capacity, kinds: KnownKinds) -> None:
        self._pool = pool
        self._capacity = capacity
        self._kinds = kinds

        self._claimed: Sequence[ClaimedJob] = ()  # handed out while the database works
        self._waiting: deque[ClaimedJob] = deque()  # for any runner
        self._suspects = Suspects(pool)
        self._trial = Trial(pool, self._suspects)

    def __bool__(self) -> bool:
        waiting = self._suspects.waiting() or self._trial.waiting()
        return bool(self._claimed or self._waiting or waiting)

    def __iter__(self) -> Iterator[ClaimedJob]:
        yield from self._claimed
        yield from self._waiting
        yield from self._suspects.waiting()
        yield from self._trial.waiting()

    def free_slots(self, *, backlog: bool) -> int:
        """Return how many jobs to claim now.

        `backlog`: True if the last claim probably left jobs behind.
        """
        if self._waiting or self._trial.is_on or not self._kinds:
            return 0

        return self._capacity.to_claim(
            self._pool.runners, len(self._claimed), backlog=backlog
        )

    def load(self, jobs: Sequence[ClaimedJob]) -> None:
        """Keep the jobs of a claim until `unload`."""
        self._claimed = jobs

    @property
    def is_loaded(self) -> bool:
        """True if jobs of a claim wait for `unload`."""
        return bool(self._claimed)

    def unload(self) -> Sequence[ClaimedJob]:
        """Take out the jobs of the last claim, to hand them out."""
        jobs, self._claimed = self._claimed, ()
        return jobs

    def claimed(self, jobs: Sequence[ClaimedJob]) -> list[tuple[ClaimedJob, Release]]:
        """Hand out the jobs of one claim. Returns the jobs to give back."""
        releases: list[tuple[ClaimedJob, Release]] = []
        # `_is_any` also keeps the suspects, or adds their releases.
        others = [
            held for held in jobs if held.extras is None or self._is_any(held, releases)
        ]
        if len(others) < len(jobs):
            # At instant 0.0 no runner counts as idle, so none is stopped here.
            self._hand_to_suspects(0.0)

        if self._trial.is_on and not self._pool.held():
            # the trial can start at once, so these jobs are not started before it
            releases += [(held, Release("trial")) for held in others]
            others = []

        self._hand_out(others)
        return releases

    def _is_any(
        self, held: ClaimedJob, releases: list[tuple[ClaimedJob, Release]]
    ) -> bool:
        """Return True if any runner may have the job. Keep or release a suspect."""
        losses = read_extras(held.extras).losses
        most = self._kinds.policy(held.kind).max_losses
        if losses == 0 or losses < most - 1:
            return True

        # One loss below the limit, a job runs in a runner of its own. At the limit,
        # it runs in a worker of its own.
        release = (self._suspects if losses < most else self._trial).take(held)
        if release is not None:
            releases.append((held, release))

        return False

    def take_back(self, held: ClaimedJob) -> None:
        """Keep a job for another runner: its own ended before it started the job."""
        self._waiting.append(held)

    def hand_out_waiting(self, now: float) -> None:
        """Hand out the waiting jobs to the runners that are ready by now."""
        if not self._trial.is_on:
            waiting, self._waiting = self._waiting, deque()
            for held in waiting:
                # One by one, because they may be of several claims.
                self._hand_out([held])

        self._hand_to_suspects(now)

    def try_alone(self, link: Link, now: float) -> tuple[ClaimedJob, Release] | None:
        """Proceed with the trial. Returns the job to give back, if it never started.

        Raises psycopg.Error.
        """
        return self._trial.proceed(link, now)

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the jobs of lost identities: other workers may have them."""

        def is_ours(held: ClaimedJob) -> bool:
            return held.worker not in workers

        self._claimed = list(filter(is_ours, self._claimed))
        self._waiting = deque(filter(is_ours, self._waiting))

        self._suspects.keep(is_ours)
        self._trial.forget(workers)

    def give_up(self) -> list[ClaimedJob]:
        """Take out all jobs, to give them back."""
        given_up = list(self)
        self._claimed = ()
        self._waiting.clear()
        self._suspects.keep(lambda _: False)
        self._trial.drop()

        return given_up

    def _hand_to_suspects(self, now: float) -> None:
        if not self._trial.is_on:
            self._suspects.hand_out(now)

    def _hand_out(self, jobs: Sequence[ClaimedJob]) -> None:
        for runner, share in self._capacity.shares(self._pool.runners, jobs):
            if runner is None:
                self._waiting.extend(share)
            else:
                runner.hand(share)
