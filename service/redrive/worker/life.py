"""Life and death of a worker: how its jobs end when it stops or loses an identity.

An identity may be lost after a silence, a lost connection or a lost answer. The worker
ends when all its jobs are settled or given back.
"""

import logging
import os
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from redrive.database.connections.link import Watchdog
from redrive.rules.attempts.settlement import Release
from redrive.worker.database_side import DatabaseSide
from redrive.worker.drain import Drain
from redrive.worker.inbox import Inbox
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.runner_side import RunnerSide
from redrive.worker.telemetry import Telemetry

logger = logging.getLogger("redrive.worker")


@dataclass(slots=True, eq=False)
class Life:
    """Tells jobs that this worker owns from jobs that it may have lost, and ends it."""

    database: DatabaseSide
    runners: RunnerSide
    inbox: Inbox
    drain: Drain
    telemetry: Telemetry

    def watchdog(self) -> Watchdog:
        """Return a watchdog: its checks do not wait for the loop, which may be stuck."""
        checks = (
            self.database.heartbeat.check_silence,
            self.runners.keep_suspended,
            self.runners.enforce_deadlines,
            self._exit_when_overdue,
        )
        return Watchdog(*self.database.links(), checks=checks)

    def _exit_when_overdue(self, now: float) -> None:
        """Exit even if something hangs. Other workers rescue what is not settled."""
        if self.drain.is_overdue(now):
            self.runners.pool.kill()
            os._exit(1)

    # ------------------------------------------------------------------ ownership

    def review(self, now: float) -> None:
        """Act on what the database has said about the identities of this worker."""
        # Read this first. An answer that says "lost" is recorded before the silence
        # ends, so `is_lost` knows of it.
        has_answer = not self.database.heartbeat.is_silent
        self.drop_lost()
        if self.runners.suspension.is_on and has_answer:
            self._resume()

        self.database.retire_left(now, self.runners.jobs())

    def drop_lost(self) -> None:
        """End the jobs of identities that were declared lost: others own them now.

        What has ended is still settled. If a job belongs to another worker by now, the
        fence refuses its settlement.
        """
        identity = self.database.identity
        if not identity.is_lost:
            return

        lost = identity.leave_lost()
        logger.warning("declared lost", extra={"workers": sorted(lost)})

        given_up = self.runners.pool.give_up(lost)
        # What they have completed is still settled, so read it before `forget`.
        for runner in given_up:
            self.inbox.read_last(runner)

        self._clear_suspicion(lost, given_up)
        self.telemetry.declared_lost(self.runners.pool.held())
        self.runners.forget(lost)

    def _clear_suspicion(
        self, lost: AbstractSet[int], given_up: Iterable[RunnerProcess]
    ) -> None:
        """Clear the jobs of lost identities, except jobs whose runners crashed."""
        suspects: set[int] = set()
        for runner in given_up:
            if not runner.blameless:
                suspects.update(held.id for held in runner.held)

        known = (*self.runners.jobs(), *self.database.exchange.jobs())
        self.database.identity.clear_suspicion(
            held for held in known if held.worker in lost and held.id not in suspects
        )

    def _resume(self) -> None:
        """Resume the runners: the database has confirmed that their jobs are ours."""
        self.runners.suspension.end()
        if self.database.heartbeat.is_silent:  # again, a moment ago
            self.runners.suspension.begin()
        else:
            logger.info("resumed", extra={"jobs": self.runners.pool.held()})

    # ------------------------------------------------------------------ shutdown

    def begin_to_end(self) -> None:
        """Give back the jobs that have not started, and let the others finish."""
        held = self.runners.pool.held()
        logger.info("draining", extra={"jobs": held, "seconds": self.drain.seconds})

        unstarted, held_back = self.runners.give_up()
        for job in unstarted:
            self.database.exchange.settle(job, Release("shutdown"))
        for job, report in held_back:
            self.database.exchange.ended(job, report)

    def end(self, now: float) -> None:
        """End if everything is settled. Call it when no runner holds a job."""
        exchange = self.database.exchange
        # Jobs that somebody has locked delay the end only until time is up.
        is_held_up = exchange.is_held_up and self.drain.is_over(now)
        if exchange.is_settling and not is_held_up:
            return

        self.database.identity.leave()
        self.database.retire_left(now, self.runners.jobs())

        # If an identity could not be retired, the next turn tries again.
        if is_held_up:
            left = len(list(exchange.jobs()))
            logger.warning(
                "stopped before jobs that somebody has locked", extra={"jobs": left}
            )
            self.drain.end(1)
        elif not self.database.identity.left:
            self.drain.end(0)
            logger.info("stopped")
