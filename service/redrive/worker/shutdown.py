"""Shutdown of a worker, from the start of the drain to its exit status."""

import logging
from dataclasses import dataclass

from redrive.rules.attempts.settlement import Release
from redrive.worker.claim.identity import Identity
from redrive.worker.drain import Drain
from redrive.worker.ownership import Ownership
from redrive.worker.processes.breakers import Breakers
from redrive.worker.processes.dispatch import Dispatch
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.runner_care import RunnerCare
from redrive.worker.settle.exchange import Exchange

logger = logging.getLogger("redrive.worker")


@dataclass(slots=True, eq=False)
class Shutdown:
    """Ends a worker once all its jobs are settled or given back."""

    drain: Drain
    pool: RunnerPool
    dispatch: Dispatch
    breakers: Breakers
    exchange: Exchange
    identity: Identity
    ownership: Ownership
    runner_care: RunnerCare

    def begin(self) -> None:
        """Give back the jobs that have not started, and let the others finish."""
        held = self.pool.held()
        logger.info("draining", extra={"jobs": held, "seconds": self.drain.seconds})

        for job in self.dispatch.give_up():
            self.exchange.settle(job, Release("shutdown"))

        for job, report in self.breakers.give_up():
            self.exchange.ended(job, report)

        self.pool.stop()

    def proceed(self, now: float) -> None:
        """End once everything is settled. When time is up, give the rest back."""
        is_over = self.drain.is_over(now)
        if self.pool.held():
            if is_over:
                self.runner_care.kill()

            return

        # Jobs that somebody has locked delay the end only until time is up.
        is_held_up = self.exchange.is_held_up and is_over
        if self.exchange.is_settling and not is_held_up:
            return

        self.identity.leave()
        self.ownership.retire_left(now)

        # If an identity could not be retired, the next turn tries again.
        if is_held_up:
            self._end_before_locked()
        elif not self.identity.left:
            self.drain.end(0)
            logger.info("stopped")

    def _end_before_locked(self) -> None:
        left = len(list(self.exchange.jobs()))
        logger.warning(
            "stopped before jobs that somebody has locked", extra={"jobs": left}
        )
        self.drain.end(1)
