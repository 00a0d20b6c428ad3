"""The exchange: one call that settles what has ended and claims new jobs.

What it means when that fails is decided here, too.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import assert_never

import psycopg

from redrive.database.connect import doing
from redrive.database.link import Link
from redrive.database.trouble import Trouble, trouble
from redrive.rules.attempts.settlement import NotComplete, Outcome
from redrive.worker import store
from redrive.worker.exchange import Answer, ClaimRequest, exchange
from redrive.worker.protocol import Checkpoint, Report, SideEffect, report_of
from redrive.worker.supervisor.claiming.apart import Apart
from redrive.worker.supervisor.claiming.checkpoints import Answer as AnswerCheckpoint
from redrive.worker.supervisor.claiming.checkpoints import Checkpoints
from redrive.worker.supervisor.claiming.identity import Identity
from redrive.worker.supervisor.claiming.lanes import LaneBook
from redrive.worker.supervisor.claiming.settlements import (
    PendingSettlements,
    SettlementBatch,
)
from redrive.worker.supervisor.held import Batch, Claim, Coming, Held, held_from
from redrive.worker.supervisor.polling import Polling
from redrive.worker.supervisor.telemetry import Telemetry

TELL_AGAIN_SECONDS = 0.1
"""Until a side effect is reported again whose job its handler holds in a transaction of
its own.
"""

LOCK_NOT_AVAILABLE = "55P03"

BACK_OFF_SECONDS = 1.0
"""Until the database is asked again after an error that neither a retry nor we can
mend.
"""


class Exchange:
    """Exchange of one worker with the database: settlements go, jobs come.

    A round trip under way lets the runners work on what they have, so batches grow by
    themselves under load and are one job long when there is only one. What they say
    meanwhile may be told: it goes with the next one. `on_refused`: the database does
        not accept this job's completion;
    it is to end otherwise.
    """

    def __init__(  # noqa: PLR0913 # what it talks to, and whom it tells
        self,
        link: Link,
        identity: Identity,
        lanes: LaneBook,
        polling: Polling,
        telemetry: Telemetry,
        on_refused: Callable[[Held, psycopg.Error], None],
    ) -> None:
        self._link = link
        self._identity = identity
        self._lanes = lanes
        self._polling = polling
        self._telemetry = telemetry
        self._pending = PendingSettlements(telemetry)
        self._apart = Apart(link, identity, self._pending, telemetry, on_refused)
        self._side_effects: list[store.WorkerSideEffect] = []
        self._tell_at = 0.0
        self._checkpoints = Checkpoints()
        self._hold_off_until = 0.0
        self._looks_for_lanes = False
        self._claimant: int | None = None
        # when it last asked for jobs, and when it last succeeded or was not needed; any
        # thread may read them
        self.asked_at = self.answered_at = time.monotonic()
        self._last_claim = 0
        self._cost = 0.0

    # ------------------------------------------------------------------ what it is told

    def completed(
        self,
        finished: Sequence[tuple[Held, float]],
        example: tuple[int, str] | None = None,
    ) -> None:
        """Attempts succeeded, with the seconds each took, and the trace of one of
        them.
        """
        self._pending.completed(finished, example)

    def ended(self, held: Held, report: Report, *, is_abandoned: bool = False) -> None:
        """An attempt ended otherwise.

        `is_abandoned`: its handler is dead, and may have left a transaction that locks
            its job.
        """
        if is_abandoned:
            self._apart.abandoned(held)
        if report.outcome in {Outcome.RETRY, Outcome.RELEASE} and report.run_at is None:
            self._polling.job_due(time.monotonic() + report.delay)
        self._pending.ended(held, report, aside=is_abandoned)

    def settle(self, held: Held, settlement: NotComplete) -> None:
        """Settle a job by our own decision."""
        self.ended(held, report_of(held.id, held.deliveries, settlement))

    def tell(self, held: Held, side_effect: SideEffect) -> None:
        """A handler says what it has done."""
        self._side_effects.append((held.worker, side_effect))
        self._tell_at = 0.0

    def keep(
        self, held: Held, checkpoint: Checkpoint, answer: AnswerCheckpoint
    ) -> None:
        """A handler hands over a checkpoint, and waits for the answer."""
        self._checkpoints.add(held, checkpoint, answer)

    def expect_results(self) -> None:
        """Handlers of this worker return what is to be kept."""
        self._pending.has_results = True

    # ------------------------------------------------------------------ what it answers

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
        """Return when to settle if settlements may wait for `linger` seconds;
        monotonic.
        """
        return max(
            min(self._pending.due_at(linger), self._apart.due_at), self.available_at
        )

    def jobs(self) -> Iterable[Held]:
        """The jobs that are not settled yet."""
        return self._pending.held()

    def is_needed(self, room: int) -> bool:
        """Whether there is anything to tell or to ask, with room for so many jobs."""
        has_news = self.is_settling and not self.is_held_up
        return room > 0 or has_news or not self._identity.may_claim

    def not_needed(self, now: float) -> None:
        """Nothing is to be told or asked now: that none succeeds is no fault."""
        self.answered_at = now

    # ------------------------------------------------------------------ the round trip

    def run(
        self,
        now: float,
        *,
        room: int,
        linger: float,
        patience: int = 0,
        meanwhile: Callable[[], object] | None = None,
    ) -> Sequence[Held]:
        """Settle what has ended, claim up to `room` jobs. Returns the jobs that were
        claimed.

        `patience`: milliseconds that a claim may wait for its turn. `meanwhile` is done
            while the
        database works, if there is anything to say to it.
        """
        if self._apart.is_full:
            room = 0
        jobs: Sequence[Held] = []
        if room or self._is_due(now, linger):
            jobs = self._run(now, room, self._pending.take(), patience, meanwhile)
        if time.monotonic() >= self.available_at:
            self._apart.retry(now)
        return jobs

    def claim(self, now: float, room: int) -> Sequence[Held]:
        """Claim up to `room` jobs, and settle nothing. Returns the jobs that were
        claimed.
        """
        return self._run(now, room, SettlementBatch([], []))

    def _run(
        self,
        now: float,
        room: int,
        settlements: SettlementBatch,
        patience: int = 0,
        meanwhile: Callable[[], object] | None = None,
    ) -> Sequence[Held]:
        claims = settlements.claims()
        side_effects: list[store.WorkerSideEffect] = []
        if now >= self._tell_at:
            side_effects, self._side_effects = self._side_effects, side_effects
        try:
            with self._link.use() as conn:
                request = self._prepare(conn, room, now)
                request = request and replace(request, patience=patience)
                if self._checkpoints.is_due(now):
                    self._checkpoints.send(conn, now)
                if not (request or settlements or side_effects):
                    self.answered_at = time.monotonic()
                    return []
                if side_effects:
                    self._send_side_effects(conn, side_effects, now)
                    side_effects = []
                began = time.monotonic()
                with doing(meanwhile, conn):
                    answer = exchange(conn, settlements.columns(claims), request)
                cost = time.monotonic() - began
        except psycopg.Error as error:
            self._telemetry.database_error("exchange", error)
            self._failed(error, settlements, side_effects)
            return []
        self._settled(settlements, claims, answer, cost)
        return [] if request is None else self._learn(request, answer, cost)

    def _is_due(self, now: float, linger: float) -> bool:
        return (
            now >= self._pending.due_at(linger)
            or (bool(self._side_effects) and now >= self._tell_at)
            or self._checkpoints.is_due(now)
        )

    def _prepare(
        self, conn: store.Connection, room: int, now: float
    ) -> ClaimRequest | None:
        """Be somebody, and say what to claim; None when there is no room, or nowhere to
        look.
        """
        worker = self._identity.take(conn)
        if worker != self._claimant:
            self._claimant, self._last_claim = worker, 0
            self._lanes.start_over()
        request = self._request(conn, worker, room, now) if room else None
        self._polling.looked()
        return request

    def _request(
        self, conn: store.Connection, worker: int, room: int, now: float
    ) -> ClaimRequest | None:
        """Return the request of a claim; None if no lane is known, even after a look
        for some.
        """
        polling = self._polling
        self.asked_at = now
        self._looks_for_lanes = self._lanes.is_stale(
            now, was_notified=polling.was_notified
        )
        if self._looks_for_lanes and not self._lanes.known:
            self._look(conn)
        request = self._lanes.request(
            worker, room, now, after=self._last_claim, is_large=polling.expects_more
        )
        if request is None:
            polling.found_nothing(now, random.random())
            if polling.was_notified:  # of a lane that could not be looked for yet
                polling.no_later_than(max(now, self._lanes.may_look_at))
        return request

    def _send_side_effects(
        self,
        conn: store.Connection,
        side_effects: Sequence[store.WorkerSideEffect],
        now: float,
    ) -> None:
        again = store.side_effects(conn, side_effects)
        self._side_effects = [
            (worker, effect) for worker, effect in side_effects if effect.id in again
        ]
        self._tell_at = now + TELL_AGAIN_SECONDS

    def _settled(
        self,
        settlements: SettlementBatch,
        claims: Counter[Claim],
        answer: Answer,
        cost: float,
    ) -> None:
        self._telemetry.settled(settlements.held(), cost)
        stale = self._pending.done(
            settlements, claims, answer.completed, answer.settled
        )
        self._identity.acquit(stale)
        if answer.claim_error is None:
            self.answered_at = time.monotonic()

    def _learn(
        self, request: ClaimRequest, answer: Answer, cost: float
    ) -> Sequence[Held]:
        if answer.claim_error is not None:
            self._telemetry.database_error("claim", answer.claim_error)
            self._failed(answer.claim_error, SettlementBatch([], []), [])
            return []
        count = sum(lane.jobs for lane in answer.lanes)
        if count:
            self._last_claim = max(lane.claim or 0 for lane in answer.lanes)
            self._link.keep()
        is_any_busy = self._lanes.learn(request, answer.lanes, cost)
        self._telemetry.claimed(count, cost)
        now, chance = time.monotonic(), random.random()
        if request.patience and not (count or is_any_busy):
            self._polling.took(cost)
        self._polling.claimed(count, request.want, now, chance)
        if is_any_busy:
            self._polling.was_busy(now, chance)
        self._cost = cost
        batch = Batch(request.worker, [lane.queue for lane in request.lanes])
        return (
            Coming(count, lambda: held_from(batch, answer.lanes, answer.rows()))
            if count
            else []
        )

    def handed_out(self, jobs: Sequence[Held]) -> None:
        """The jobs of the last claim are on their way: what is to be known of them can
        wait.
        """
        self._telemetry.received(jobs, self._cost)

    # ------------------------------------------------------------------ lanes

    def get_ready(self) -> None:
        """Prepare for the next claim while there is nothing to do."""
        self._lanes.get_ready()

    @property
    def looks_for_lanes(self) -> bool:
        """True if `look_for_lanes` is due."""
        return self._looks_for_lanes

    def look_for_lanes(self) -> None:
        """See whether there are new lanes, if it is time.

        To be called after the jobs of those that were known are on their way.
        """
        if not self._looks_for_lanes:
            return
        try:
            with self._link.use() as conn:
                self._look(conn)
        except psycopg.Error as error:
            self._telemetry.database_error("lanes", error)
            self._failed(error, SettlementBatch([], []), [])

    def _look(self, conn: store.Connection) -> None:
        began, before = time.monotonic(), self._lanes.known
        found = store.lanes(conn, self._lanes.queues)
        due_in = self._lanes.replace(
            found, began, time.monotonic(), self._polling.others
        )
        self._polling.lanes_due(None if due_in is None else began + due_in)
        if self._lanes.known - before:
            self._polling.expect_more()
        self._looks_for_lanes = False

    # ------------------------------------------------------------------ failures

    def _failed(
        self,
        error: psycopg.Error,
        settlements: SettlementBatch,
        side_effects: list[store.WorkerSideEffect],
    ) -> None:
        """A round trip came to nothing: settle in parts, or keep what it was to write.

        When the connection was lost the identity is left behind: jobs may have been
            claimed for it
        unseen; and a server that crashed may have forgotten claims of it that were
        committed relaxed, and give us the same jobs again under the same fence.

        And when no settlements were there to fail before it, a claim may have been made
        whose jobs could not be read.

        No error ends the worker: what is wrong with the database somebody may mend.
        """
        self._looks_for_lanes = False
        problem = trouble(error)
        match problem:
            case Trouble.LOST:
                self._keep(settlements, side_effects, may_be_done=True)
                self._identity.leave()
            case Trouble.DATA if self._checkpoints.is_unanswered:
                self._checkpoints.refuse()
                self._keep(settlements, side_effects)
            case Trouble.DATA if side_effects or settlements:
                self._apart.settle(
                    settlements
                )  # without the side effects: they may be to blame
            case Trouble.FATAL | Trouble.AGAIN if settlements and _may_be_of_one_job(
                error
            ):
                self._keep(SettlementBatch([], []), side_effects)
                self._tell_at = time.monotonic() + BACK_OFF_SECONDS
                self._apart.settle(settlements)
            case Trouble.AGAIN:
                self._keep(settlements, side_effects)
                self._hold_off(0.1)
                if not settlements:
                    self._identity.leave()
            case Trouble.DATA | Trouble.FATAL:
                self._keep(settlements, side_effects)
                self._hold_off(BACK_OFF_SECONDS)
                self._identity.leave()
            case _:
                assert_never(problem)

    def _hold_off(self, seconds: float) -> None:
        self._hold_off_until = time.monotonic() + seconds * random.uniform(0.1, 1.1)

    def _keep(
        self,
        settlements: SettlementBatch,
        side_effects: list[store.WorkerSideEffect],
        *,
        may_be_done: bool = False,
    ) -> None:
        self._side_effects = side_effects + self._side_effects
        self._pending.put_back(settlements, may_be_done=may_be_done)
        self._polling.retry_soon()


def _may_be_of_one_job(error: psycopg.Error) -> bool:
    """Return True if a part of the batch may be settled although the whole was not.

    Not when the server has no room, stops the statement, or asks for the whole once
    more.
    """
    return trouble(error) is Trouble.FATAL or error.sqlstate == LOCK_NOT_AVAILABLE
