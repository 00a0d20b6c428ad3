"""Claims of one worker: the request of each, and what follows from its answer."""

import random
import time
from collections.abc import Sequence

from redrive.database.connections.connect import OwnConnection
from redrive.database.connections.link import Link
from redrive.worker import store
from redrive.worker.claim.identity import Identity
from redrive.worker.claim.lanes import COST_FACTOR, LaneBook
from redrive.worker.held import Batch, ClaimedJob, LazyJobs, held_from
from redrive.worker.polling import LANE_WAIT_MS, Polling
from redrive.worker.round_trip import Answer, ClaimRequest
from redrive.worker.telemetry import Telemetry


class Claims:
    """Prepares claims, and learns from their answers when and where to claim next."""

    def __init__(
        self,
        link: Link,
        identity: Identity,
        lanes: LaneBook,
        polling: Polling,
        telemetry: Telemetry,
    ) -> None:
        self._link = link
        self._identity = identity
        self._lanes = lanes
        self._polling = polling
        self._telemetry = telemetry
        self._claimant: int | None = None
        self._last_claim = 0
        self._cost = 0.0
        self._may_add_at = 0.0
        self.asked_at = time.monotonic()
        """When it last asked for jobs; monotonic. Any thread may read it."""
        self.looks_for_lanes = False
        """True if it is time to look for new lanes."""

    def prepare(
        self, conn: OwnConnection, free_slots: int, lane_wait_ms: int, now: float
    ) -> ClaimRequest | None:
        """Register if needed, and return the request of the next claim.

        Returns None if no slot is free, or if there is no lane to claim from. Raises
        psycopg.Error.
        """
        worker = self._identity.take(conn)
        if worker != self._claimant:
            self._claimant = worker
            self._last_claim = 0
            self._lanes.start_over()

        if not conn.has_settings:  # a pooler's: other workers wait for it
            lane_wait_ms = min(lane_wait_ms, LANE_WAIT_MS)

        request = None
        if free_slots:
            request = self._request(conn, worker, free_slots, lane_wait_ms, now)

        # Forget the notification only now, because the request depends on it.
        self._polling.looked()
        return request

    def _request(
        self,
        conn: store.Connection,
        worker: int,
        free_slots: int,
        lane_wait_ms: int,
        now: float,
    ) -> ClaimRequest | None:
        polling = self._polling
        self.asked_at = now
        self.looks_for_lanes = self._lanes.is_stale(
            now, was_notified=polling.was_notified
        )
        # Without a lane there is nothing to claim. Otherwise, the look waits until
        # the jobs of the known lanes are on their way.
        if self.looks_for_lanes and not self._lanes.known:
            self.look(conn)
        elif self._lanes.continue_at is not None:
            self._add_lanes(conn, now)

        request = self._lanes.request(
            worker,
            free_slots,
            now,
            after=self._last_claim,
            is_large=polling.expects_more,
            lane_wait_ms=lane_wait_ms,
        )
        if request is None:
            polling.found_nothing(now, random.random())
            # A notification may be of a lane that cannot be looked for yet.
            if polling.was_notified:
                polling.no_later_than(max(now, self._lanes.may_look_at))

        return request

    def learn(
        self, request: ClaimRequest, answer: Answer, cost: float
    ) -> Sequence[ClaimedJob]:
        """Learn from a claim that took `cost` seconds. Returns its jobs."""
        count = sum(lane.jobs for lane in answer.lanes)
        if count:
            self._last_claim = max(lane.claim or 0 for lane in answer.lanes)
            self._link.keep()

        is_any_busy = self._lanes.learn(request, answer.lanes, cost)
        self._telemetry.claimed(count, cost)

        # A claim that left jobs for the next one did not wait: its second row has no place.
        first = {lane.lane_no: lane.upto for lane in reversed(answer.lanes)}
        has_waited = None in first.values()
        # An idle worker that found nothing, without a wait, knows the cost of a poll.
        if request.lane_wait_ms and not (count or has_waited):
            self._polling.took(cost)

        self._pace(request, count, is_any_busy=is_any_busy, has_waited=has_waited)
        self._cost = cost

        if not count:
            return []

        batch = Batch(request.worker, [lane.queue for lane in request.lanes])

        return LazyJobs(count, lambda: held_from(batch, answer.lanes, answer.rows()))

    def _pace(
        self, request: ClaimRequest, count: int, *, is_any_busy: bool, has_waited: bool
    ) -> None:
        """Choose the time of the next claim."""
        now = time.monotonic()
        chance = random.random()
        self._polling.claimed(count, request.want, now, chance)
        self._polling.had_turn(count, self.asked_at, now, has_waited=has_waited)

        if is_any_busy:
            self._polling.was_busy(now, chance)

    def handed_out(self, jobs: Sequence[ClaimedJob]) -> None:
        """Count the jobs of the last claim, now that they are on their way."""
        self._telemetry.received(jobs, self._cost)

    def get_ready(self) -> None:
        """Prepare for the next claim while there is nothing to do."""
        self._lanes.get_ready()

    def look(self, conn: store.Connection) -> None:
        """Look for lanes that hold jobs. Raises psycopg.Error."""
        began = time.monotonic()
        before = self._lanes.known
        found, self._lanes.continue_at = store.lanes(
            conn, self._lanes.queues, self._lanes.continue_at
        )
        ended = time.monotonic()

        due_in = self._lanes.replace(found, began, ended, self._polling.others)
        self._polling.lanes_due(None if due_in is None else began + due_in)
        if self._lanes.known - before:
            self._polling.expect_more()

        self.looks_for_lanes = False

    def _add_lanes(self, conn: store.Connection, now: float) -> None:
        """Add the lanes of new jobs, and of jobs that became due, to a part of all.

        Raises psycopg.Error.
        """
        if now >= self._may_add_at:
            found = store.new_lanes(conn, self._lanes.queues)
            ended = time.monotonic()
            self._may_add_at = ended + COST_FACTOR * (ended - now)
            self._lanes.add_when_due(found, now)
            now = ended

        self._polling.lanes_due(self._lanes.add_due(now))
