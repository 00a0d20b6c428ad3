"""Exchange: one call that settles what has ended and claims new jobs.

This file also decides what follows when that call fails.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

import psycopg

from redrive.database.connections.connect import OwnConnection, while_waiting
from redrive.database.connections.link import Link
from redrive.database.connections.trouble import Trouble, trouble
from redrive.rules.attempts.settlement import NotComplete, Outcome
from redrive.rules.pace import Pace
from redrive.worker.claim.claims import Claims
from redrive.worker.claim.identity import Identity
from redrive.worker.claim.lanes import LaneBook
from redrive.worker.held import Claim, ClaimedJob
from redrive.worker.polling import Polling
from redrive.worker.protocol import Checkpoint, Report, SideEffect, report_of
from redrive.worker.round_trip import (
    Answer,
    ClaimRequest,
    Settlements,
    exchange,
    may_have_claimed,
)
from redrive.worker.settle.apart import Apart
from redrive.worker.settle.checkpoints import Answer as AnswerCheckpoint
from redrive.worker.settle.checkpoints import Checkpoints
from redrive.worker.settle.settlements import PendingSettlements, SettlementBatch
from redrive.worker.settle.side_effects import SideEffects
from redrive.worker.telemetry import Telemetry

LOCK_NOT_AVAILABLE = "55P03"

AGAIN_SECONDS = 0.1
"""Average delay, about, after an error that a retry can mend."""

BACK_OFF_SECONDS = 1.0
"""Average delay, about, after an error that neither a retry nor this worker can mend."""


class Exchange:
    """Exchange of one worker with the database: settlements go, jobs come.

    While a round trip is under way, runners work on what they have. So batches grow by
    themselves under load, and hold one job when there is only one. Settlements that
    arrive during a round trip go with the next one.

    `on_refused` is called with each job whose completion the database does not accept.
    That job must end in another way.
    """

    def __init__(  # noqa: PLR0913 # what it talks to, and whom it tells
        self,
        link: Link,
        identity: Identity,
        lanes: LaneBook,
        polling: Polling,
        telemetry: Telemetry,
        on_refused: Callable[[ClaimedJob, psycopg.Error], None],
        pace: Pace,
    ) -> None:
        self._link = link
        self._identity = identity
        self._polling = polling
        self._telemetry = telemetry
        self.claims = Claims(link, identity, lanes, polling, telemetry)
        self._pending = PendingSettlements(telemetry)
        self._apart = Apart(link, identity, self._pending, telemetry, on_refused)
        self._side_effects = SideEffects()
        self._checkpoints = Checkpoints()
        self._hold_off_until = 0.0
        self._pace = pace
        self.answered_at = time.monotonic()
        """When it last succeeded or was not needed. Any thread may read it."""

    # ------------------------------------------------------------------ from runners

    def completed(
        self,
        finished: Sequence[tuple[ClaimedJob, float]],
        example: tuple[int, str] | None = None,
    ) -> None:
        """Take attempts that succeeded, with their seconds and the trace of one."""
        self._pending.completed(finished, example)

    def ended(
        self, held: ClaimedJob, report: Report, *, is_abandoned: bool = False
    ) -> None:
        """Take an attempt that did not succeed.

        `is_abandoned`: its handler is dead, and may have left a transaction that locks
        its job.
        """
        if is_abandoned:
            self._apart.abandoned(held)

        runs_again = report.outcome in {Outcome.RETRY, Outcome.RELEASE}
        if runs_again and report.run_at is None:
            self._polling.job_due(time.monotonic() + report.delay)

        self._pending.ended(held, report, aside=is_abandoned)

    def settle(self, held: ClaimedJob, settlement: NotComplete) -> None:
        """Settle a job that no runner reports."""
        self.ended(held, report_of(held.id, held.deliveries, settlement))

    def tell(self, held: ClaimedJob, side_effect: SideEffect) -> None:
        """Take a side effect that a handler has reported."""
        self._side_effects.add(held, side_effect)

    def keep(
        self, held: ClaimedJob, checkpoint: Checkpoint, answer: AnswerCheckpoint
    ) -> None:
        """Take a checkpoint. Its handler waits for the answer."""
        self._checkpoints.add(held, checkpoint, answer)

    def expect_results(self) -> None:
        """Look for results from now on: handlers of this worker return some."""
        self._pending.has_results = True

    # ------------------------------------------------------------------ its state

    @property
    def is_settling(self) -> bool:
        """True if the database does not know of every settlement yet."""
        return bool(self._pending)

    @property
    def is_held_up(self) -> bool:
        """True if only settlements that were set aside are left."""
        return 0 < len(self._pending) == self._pending.aside

    @property
    def available_at(self) -> float:
        """Monotonic instant before which the database should be left alone."""
        return max(self._hold_off_until, self._link.retry_at)

    def due_at(self, linger: float) -> float:
        """Return when to settle if settlements may wait for `linger` seconds."""
        pending_at = self._pending.due_at(linger)
        return max(min(pending_at, self._apart.due_at), self.available_at)

    def jobs(self) -> Iterable[ClaimedJob]:
        """Return the jobs that are not settled yet."""
        return self._pending.held()

    def is_needed(self, free_slots: int) -> bool:
        """Return True if there is anything to send or to ask, with this many free slots."""
        has_news = self.is_settling and not self.is_held_up
        return free_slots > 0 or has_news or not self._identity.may_claim

    def not_needed(self, now: float) -> None:
        """Note that nothing is to be sent or asked, so that no fault is seen in it."""
        self.answered_at = now

    # ------------------------------------------------------------------ the round trip

    def run(
        self,
        now: float,
        *,
        free_slots: int,
        linger: float,
        lane_wait_ms: int = 0,
        meanwhile: Callable[[], object] | None = None,
    ) -> Sequence[ClaimedJob]:
        """Settle what has ended, and claim up to `free_slots` jobs. Returns the claimed jobs.

        `lane_wait_ms`: milliseconds that a claim may wait for its turn. `meanwhile` is
        called while the database works, if there is anything to send.
        """
        if self._apart.is_full:
            free_slots = 0

        jobs: Sequence[ClaimedJob] = []
        if free_slots or self._is_due(now, linger):
            jobs = self._call(
                now, free_slots, self._pending.take(), lane_wait_ms, meanwhile
            )

        # Ask only now, because the call may have shown that the database is away.
        if time.monotonic() >= self.available_at:
            self._apart.retry(now)

        return jobs

    def claim(self, now: float, free_slots: int) -> Sequence[ClaimedJob]:
        """Claim up to `free_slots` jobs, and settle nothing. Returns the claimed jobs."""
        return self._call(now, free_slots, SettlementBatch([], []))

    def _is_due(self, now: float, linger: float) -> bool:
        return (
            now >= self._pending.due_at(linger)
            or self._side_effects.is_due(now)
            or self._checkpoints.is_due(now)
        )

    def _call(
        self,
        now: float,
        free_slots: int,
        settlements: SettlementBatch,
        lane_wait_ms: int = 0,
        meanwhile: Callable[[], object] | None = None,
    ) -> Sequence[ClaimedJob]:
        claims = settlements.claims()
        asked = None

        try:
            with self._link.use() as conn:
                request = self.claims.prepare(conn, free_slots, lane_wait_ms, now)
                self._checkpoints.send(conn, now)
                # Not earlier: what was refused until here was no side effect.
                is_taken = self._side_effects.take(now)
                if not (request or settlements or is_taken):
                    self.answered_at = time.monotonic()
                    return []

                self._side_effects.send(conn, now)
                # From here on, a failure may hide claimed jobs; see `_is_unread`.
                if request:
                    asked = conn
                answer, cost = _timed_exchange(
                    conn,
                    settlements.columns(claims, self._identity.me),
                    request,
                    meanwhile,
                )
        except psycopg.Error as error:
            self._failed("exchange", error, settlements, asked)
            return []

        self._settled(settlements, claims, answer, cost)
        jobs = self._claimed(request, answer, cost, asked)
        if not lane_wait_ms:  # else that time is not the database's alone
            self._pace.add(time.monotonic(), cost, len(settlements) + len(jobs))
        return jobs

    def _settled(
        self,
        settlements: SettlementBatch,
        claims: Counter[Claim],
        answer: Answer,
        cost: float,
    ) -> None:
        self._telemetry.settled(settlements.held(), cost)
        self._identity.clear_suspicion(
            self._pending.done(settlements, claims, answer.completed, answer.settled)
        )
        if answer.claim_error is None:
            self.answered_at = time.monotonic()

    def _claimed(
        self,
        request: ClaimRequest | None,
        answer: Answer,
        cost: float,
        asked: OwnConnection | None,
    ) -> Sequence[ClaimedJob]:
        if request is None:
            return []
        if answer.claim_error is None:
            return self.claims.learn(request, answer, cost)

        self._failed("claim", answer.claim_error, SettlementBatch([], []), asked)

        return []

    def look_for_lanes(self) -> None:
        """Look for new lanes, if it is time.

        Call this once the jobs of the known lanes are on their way.
        """
        if not self.claims.looks_for_lanes:
            return

        try:
            with self._link.use() as conn:
                self.claims.look(conn)
        except psycopg.Error as error:
            self._failed("lanes", error, SettlementBatch([], []))

    # ------------------------------------------------------------------ failures

    def _failed(
        self,
        operation: str,
        error: psycopg.Error,
        settlements: SettlementBatch,
        asked: OwnConnection | None = None,
    ) -> None:
        """Settle in parts after a failure, or keep what it was to write.

        The identity is left behind if the connection was lost. Jobs may have been
        claimed for it unseen. And a server that crashed may have forgotten claims that
        were not on its disk yet, and give us the same jobs again under the same fence.

        It is also left behind if a claim may have been made whose jobs were not read.
        That cannot be if the server refused the claim itself, as it does while a
        session keeps a table locked.

        No error ends the worker: somebody may mend the database.
        """
        self._telemetry.database_error(operation, error)
        self.claims.looks_for_lanes = False
        problem = trouble(error)

        match problem:
            case Trouble.LOST:
                self._put_back(settlements, outcome_unknown=True)
                self._identity.leave()

            # Checkpoints are sent first and by themselves, so one of them was refused.
            case Trouble.DATA if self._checkpoints.is_unanswered:
                self._checkpoints.refuse()
                self._put_back(settlements)

            # A refused side effect is dropped: no settlement may wait behind it.
            case Trouble.DATA if self._side_effects.is_taken or settlements:
                self._side_effects.drop()
                self._apart.settle(settlements)

            case Trouble.FATAL | Trouble.AGAIN if _may_be_of_one_job(
                error, settlements
            ):
                self._settle_in_parts(settlements)

            # Nothing was claimed unseen, so the identity can stay.
            case Trouble.AGAIN if not _is_unread(settlements, asked):
                self._try_again(settlements, AGAIN_SECONDS)

            case Trouble.AGAIN | Trouble.DATA | Trouble.FATAL:
                self._try_again(settlements, BACK_OFF_SECONDS)
                self._identity.leave()

            case _:
                assert_never(problem)

    def _settle_in_parts(self, settlements: SettlementBatch) -> None:
        """Settle each job by itself, and send side effects later."""
        # An empty batch: this puts back the side effects alone.
        self._put_back(SettlementBatch([], []))
        self._side_effects.wait_until(time.monotonic() + BACK_OFF_SECONDS)
        self._apart.settle(settlements)

    def _try_again(self, settlements: SettlementBatch, seconds: float) -> None:
        """Send all of a failed call again, after about this delay."""
        self._put_back(settlements)
        # Workers that failed together must not return together.
        delay = seconds * random.uniform(0.1, 1.1)
        self._hold_off_until = time.monotonic() + delay

    def _put_back(
        self, settlements: SettlementBatch, *, outcome_unknown: bool = False
    ) -> None:
        """Keep all of a failed call for the next one."""
        self._checkpoints.put_back()
        self._side_effects.put_back()
        self._pending.put_back(settlements, outcome_unknown=outcome_unknown)
        self._polling.retry_soon()


def _timed_exchange(
    conn: OwnConnection,
    columns: Settlements,
    request: ClaimRequest | None,
    meanwhile: Callable[[], object] | None,
) -> tuple[Answer, float]:
    """Return the answer of the database, and the seconds until it came."""
    began = time.monotonic()
    with while_waiting(meanwhile, conn):
        answer = exchange(conn, columns, request)
    return answer, time.monotonic() - began


def _is_unread(settlements: SettlementBatch, asked: OwnConnection | None) -> bool:
    """Return True if a claim may have been made whose jobs were not read.

    `asked`: the connection of a claim that was sent. If settlements failed, no claim
    was made after them.
    """
    return asked is not None and not settlements and may_have_claimed(asked)


def _may_be_of_one_job(error: psycopg.Error, settlements: SettlementBatch) -> bool:
    """Return True if one job of the batch may have caused the error.

    Other errors concern the whole batch: the server has no room, stops the statement,
    or wants a retry.
    """
    if not settlements:
        return False
    return trouble(error) is Trouble.FATAL or error.sqlstate == LOCK_NOT_AVAILABLE
