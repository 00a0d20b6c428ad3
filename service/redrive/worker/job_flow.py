"""Flow of jobs between the database and the runners.

Each turn settles and claims in one call. A worker that keeps up claims first, and hands
out the new jobs while the database settles. During a backlog, the worker asks for the
next jobs before it hands out the last ones, so that both sides work at once.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import psycopg

from redrive.worker.claim.load import Load, load_of
from redrive.worker.database_side import DatabaseSide
from redrive.worker.drain import Drain
from redrive.worker.held import ClaimedJob
from redrive.worker.inbox import Inbox
from redrive.worker.runner_side import RunnerSide
from redrive.worker.telemetry import Telemetry

LINGER_SECONDS = 0.002
"""How long a settlement may wait for others while more jobs run."""


@dataclass(slots=True, eq=False)
class JobFlow:
    """Settles, claims and hands out the jobs of one worker."""

    database: DatabaseSide
    runners: RunnerSide
    inbox: Inbox
    drain: Drain
    telemetry: Telemetry

    def due_at(self, otherwise: float) -> float:
        """Return when to settle or claim, at the latest `otherwise`; monotonic."""
        if self.runners.dispatch.is_loaded:
            return 0.0

        exchange = self.database.exchange
        due_at = otherwise
        if exchange.is_settling:
            due_at = min(due_at, exchange.due_at(self._linger()))

        if self.database.free_slots():
            claim_at = max(self.database.polling.due_at(), exchange.available_at)
            due_at = min(due_at, claim_at)

        return due_at

    def proceed(self, now: float) -> None:
        """Do what is due. While the database is to be left alone, only hand out."""
        if now < self.database.exchange.available_at:
            self._hand_out()
            return

        self._report_breakers(now)
        if not self.drain.is_on:
            self._proceed_trial(now)

        self._settle_and_claim(now)

    def _settle_and_claim(self, now: float) -> None:
        exchange = self.database.exchange
        polling = self.database.polling
        free_slots = self.database.free_slots() if polling.is_due(now) else 0
        has_undelivered = self.runners.dispatch.is_loaded
        load = load_of(
            has_jobs=has_undelivered or self.runners.pool.held() > 0,
            has_unclaimed_rest=polling.expects_more,
            has_undelivered=has_undelivered,
            is_settling=exchange.is_settling,
            has_free_slots=free_slots > 0,
        )

        match load:
            case Load.IDLE:
                # Nothing waits for this worker, so its loop may stand still for a turn.
                jobs = exchange.run(
                    now,
                    free_slots=free_slots,
                    linger=0.0,
                    lane_wait_ms=polling.lane_wait_ms(now),
                )

            case Load.STEADY:
                jobs = exchange.run(now, free_slots=free_slots, linger=self._linger())
                self._use_wait()

            case Load.CLAIM_FIRST:
                jobs = self._claim_first(now, free_slots)

            case Load.BACKLOG:
                jobs = exchange.run(
                    now,
                    free_slots=free_slots,
                    linger=self._linger(),
                    meanwhile=self._use_wait,
                )
                self._use_wait()

            case _:
                assert_never(load)

        self._pass_on(jobs)

    def _claim_first(self, now: float, free_slots: int) -> Sequence[ClaimedJob]:
        """Claim, then settle while the new jobs are handed out. Returns no jobs."""
        jobs = self.database.exchange.claim(now, free_slots)
        # If the claim failed, leave the database alone.
        if time.monotonic() < self.database.exchange.available_at:
            return jobs

        # `_use_wait` hands these jobs out while the database settles.
        self.runners.dispatch.load(jobs)
        self.database.exchange.run(
            now, free_slots=0, linger=0.0, meanwhile=self._use_wait
        )
        self._use_wait()

        return ()

    def _linger(self) -> float:
        return LINGER_SECONDS if self.runners.pool.held() else 0.0

    def _pass_on(self, jobs: Sequence[ClaimedJob]) -> None:
        """Hand out the jobs of a claim, unless the next call can cover that time."""
        looks_for_lanes = self.database.exchange.claims.looks_for_lanes
        is_backlog = jobs and self.database.polling.expects_more and not looks_for_lanes
        may_wait = is_backlog and not self.runners.dispatch

        self.runners.dispatch.load(jobs)
        if may_wait and self.database.free_slots():
            return  # they are handed out while the next exchange is under way

        self._hand_out()
        self.database.exchange.look_for_lanes()

    def _use_wait(self) -> None:
        """Work while the database works, without a connection.

        Messages that may need the connection are left alone: a runner's first words,
        and its end.
        """
        self._hand_out()

        for runner in self.runners.pool.runners:
            if runner.takes_any:
                for message in runner.receive() or ():
                    self.inbox.handle(runner, message)

    def _hand_out(self) -> None:
        """Give jobs to runners. Release jobs of open breakers, or during a trial."""
        claimed = self.runners.dispatch.unload()
        if not claimed:
            return

        for held, release in self.runners.hand_out(claimed):
            self.database.exchange.settle(held, release)

        # Count them only now, when no job waits for it.
        self.database.exchange.claims.handed_out(claimed)

    def _proceed_trial(self, now: float) -> None:
        try:
            given_back = self.runners.dispatch.try_alone(self.database.link, now)
        except psycopg.Error as error:
            self.telemetry.database_error("trial", error)
            return

        if given_back is not None:
            self.database.exchange.settle(*given_back)

    def _report_breakers(self, now: float) -> None:
        """Report what was seen of dependencies, if it is time."""
        worker = self.database.identity.me
        was_notified = self.database.polling.was_notified
        if worker is None or not self.runners.breakers.is_due(
            now, was_notified=was_notified
        ):
            return

        try:
            settled = self.runners.breakers.report(self.database.link, worker, now)
        except psycopg.Error as error:
            self.telemetry.database_error("breakers", error)
            return

        for held, report in settled:
            self.database.exchange.ended(held, report)

        self.runners.tell_open_breakers()
