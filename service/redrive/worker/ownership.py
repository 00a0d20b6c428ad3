"""Ownership of jobs after a silence, a lost connection or a lost answer."""

import logging
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain

import psycopg

from redrive.database.connections.link import Link
from redrive.worker.claim.identity import Identity
from redrive.worker.held import ClaimedJob
from redrive.worker.processes.breakers import Breakers
from redrive.worker.processes.dispatch import Dispatch
from redrive.worker.processes.inbox import Inbox
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.processes.suspension import Suspension
from redrive.worker.settle.exchange import Exchange
from redrive.worker.telemetry import Telemetry
from redrive.worker.upkeep.heartbeat import Heartbeat

logger = logging.getLogger("redrive.worker")


@dataclass(slots=True, eq=False)
class Ownership:
    """Tells jobs that this worker owns from jobs that it may have lost."""

    link: Link
    identity: Identity
    heartbeat: Heartbeat
    exchange: Exchange
    pool: RunnerPool
    suspension: Suspension
    dispatch: Dispatch
    breakers: Breakers
    inbox: Inbox
    telemetry: Telemetry

    def review(self, now: float) -> None:
        """Act on what the database has said about the identities of this worker."""
        # Read this first. An answer that says "lost" is recorded before the silence
        # ends, so `is_lost` knows of it.
        has_answer = not self.heartbeat.is_silent
        self.drop_lost()
        if self.suspension.is_on and has_answer:
            self._resume()

        self.retire_left(now)

    def drop_lost(self) -> None:
        """End the jobs of identities that were declared lost: others own them now.

        What has ended is still settled. If a job belongs to another worker by now, the
        fence refuses its settlement.
        """
        if not self.identity.is_lost:
            return

        lost = self.identity.leave_lost()
        logger.warning("declared lost", extra={"workers": sorted(lost)})

        given_up = self.pool.give_up(lost)
        # What they have completed is still settled, so read it before `forget`.
        for runner in given_up:
            self.inbox.read_last(runner)

        self._clear_suspicion(lost, given_up)
        self.telemetry.declared_lost(self.pool.held())
        self.pool.forget(lost)
        self.dispatch.forget(lost)

    def _clear_suspicion(
        self, lost: AbstractSet[int], given_up: Iterable[RunnerProcess]
    ) -> None:
        """Clear the jobs of lost identities, except jobs whose runners crashed."""
        suspects: set[int] = set()
        for runner in given_up:
            if not runner.blameless:
                suspects.update(held.id for held in runner.held)

        ours = [held for held in self._known() if held.worker in lost]
        innocent = [held for held in ours if held.id not in suspects]
        self.identity.clear_suspicion(innocent)

    def _resume(self) -> None:
        """Resume the runners: the database has confirmed that their jobs are ours."""
        self.suspension.end()
        if self.heartbeat.is_silent:  # again, a moment ago
            self.suspension.begin()
        else:
            logger.info("resumed", extra={"jobs": self.pool.held()})

    def retire_left(self, now: float) -> None:
        """Give back jobs that were claimed for identities left behind, unseen.

        An identity with jobs that this worker knows of keeps them until they are
        settled.
        """
        if not self.identity.left or now < self.exchange.available_at:
            return

        try:
            self.identity.retire(self.link, self._known())
        except psycopg.Error as error:
            self.telemetry.database_error("retire", error)

    def _known(self) -> Iterator[ClaimedJob]:
        """Return all jobs that this worker has, wherever they are."""
        return chain(
            self.pool.jobs(), self.dispatch, self.breakers.jobs(), self.exchange.jobs()
        )
