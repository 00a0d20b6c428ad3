"""The runner side of a worker: its runners, and the jobs on their way to them.

It knows no database. What jobs need from it comes as answers: which of them wait for a
dependency, which cannot start now, which have ended.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain

from redrive.rules.attempts.settlement import Release
from redrive.worker.held import ClaimedJob
from redrive.worker.kinds import KnownKinds
from redrive.worker.options import WorkerOptions
from redrive.worker.processes.breakers import Breakers
from redrive.worker.processes.capacity import Capacity
from redrive.worker.processes.crash_limits import RunnerLimits
from redrive.worker.processes.dispatch import Dispatch
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.selector import RunnerSelector
from redrive.worker.processes.suspension import Suspension
from redrive.worker.protocol import Report

logger = logging.getLogger("redrive.worker")

SUSPENDED_TTLS = 5.0
"""How many heartbeat TTLs a job may be suspended for before its process is killed."""


class RunnerSide:
    """Runners of one worker, and all jobs whose ends the database side has not taken."""

    def __init__(self, options: WorkerOptions) -> None:
        self._ttl = options.ttl
        self.selector = RunnerSelector()
        self.kinds = KnownKinds()
        self.pool = RunnerPool(options, self.selector.watch)
        self.suspension = Suspension(self.pool)
        self.limits = RunnerLimits(
            self.pool, self.kinds, self.suspension, options.memory_limit
        )
        self.capacity = Capacity(options.slots)
        self.dispatch = Dispatch(self.pool, self.capacity, self.kinds)
        self.breakers = Breakers(self.kinds)

    @property
    def is_busy(self) -> bool:
        """True if runners hold jobs, or jobs wait for a runner."""
        return bool(self.pool.held() or self.dispatch)

    def jobs(self) -> Iterator[ClaimedJob]:
        """Return all jobs whose ends the database side has not taken."""
        return chain(self.pool.jobs(), self.dispatch, self.breakers.jobs())

    def hand_out(self, jobs: Sequence[ClaimedJob]) -> list[tuple[ClaimedJob, Release]]:
        """Give claimed jobs to runners. Returns the jobs to give back.

        These wait for a dependency, or for the end of a trial.
        """
        releases: list[tuple[ClaimedJob, Release]] = []
        if self.breakers.is_any_open:
            jobs, releases = self.breakers.put_off(jobs)

        return releases + self.dispatch.claimed(jobs)

    def tell_open_breakers(self) -> None:
        """Tell the runners which breakers are open, if that has changed."""
        news = self.breakers.news(time.monotonic())
        if news is not None:
            self.pool.tell_open_breakers(news)

    def give_up(self) -> tuple[list[ClaimedJob], list[tuple[ClaimedJob, Report]]]:
        """Stop the runners. Returns the jobs that have not started, and ends held back."""
        unstarted, held_back = self.dispatch.give_up(), self.breakers.give_up()
        self.pool.stop()
        return unstarted, held_back

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the jobs of lost identities: other workers may have them."""
        self.pool.forget(workers)
        self.dispatch.forget(workers)

    def memory(self) -> int:
        """Return the resident memory of all runners, in bytes. Any thread may call it."""
        return sum(runner.process.memory() for runner in list(self.pool.runners))

    # ------------------------------------------------------ for threads besides the loop

    def suspend(self) -> None:
        """Suspend the handlers: no heartbeat arrives, so others may take our jobs."""
        logger.warning("suspended: the database does not answer")
        self.suspension.begin()

    def keep_suspended(self, now: float) -> None:
        """Suspend new runners too, and kill runners suspended for too long."""
        self.suspension.keep_up(now, SUSPENDED_TTLS * self._ttl)

    def enforce_deadlines(self, now: float) -> None:
        """Kill runners whose attempts have outlived their timeouts.

        It does not wait for the loop, which a database call may hold for longer.
        """
        if self.limits.enforce_deadlines(now):
            self.selector.wake()
