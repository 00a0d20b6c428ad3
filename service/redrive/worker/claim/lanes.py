"""Order of the lanes that a claim looks at, and the place where each scan starts.

A worker remembers how far it has claimed in each lane. Its next scan starts there, and
does not walk again over dead index entries. With 400,000 of them held by an open
snapshot, a claim takes 0.5 ms instead of 80 ms.

A transaction that commits late may leave a job before that place. A sweep from the
beginning finds it. A sweep takes longer, and other jobs wait for it. So sweeps take a
two-hundredth of the time if they are short. They take more if they would otherwise be
rarer than every five seconds, but never more than a twentieth. Workers with the same
kinds share the sweeps of a lane. After a sweep that found only jobs before that place,
there are probably more, as after a large transaction. So the next claim sweeps, too.

The most urgent lanes come first. Among equal ones, the front lanes come first, because
their jobs have waited already. Then the lane that has waited longest for a look comes
first. A claim that is full does not look at the lanes after its last one. Under a flood
they would never have a turn. So one of `FRONT_SHARE` such claims in a row does not
prefer front lanes. One of `AGING_SHARE` begins with the lane that has waited longest,
whatever its priority. Every worker looks at each of n lanes within n * AGING_SHARE
claims.

One look returns at most MOST_LANES lanes. If there are more, each look continues where
the last one ended. Jobs do not wait for that walk: between two looks, the worker adds
the lanes of the newest jobs, and lanes that it has seen and that have become due since.
"""

import heapq
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from redrive.worker.round_trip import (
    START,
    ClaimRequest,
    Lane,
    LaneArrays,
    LaneClaim,
    Place,
    lane_arrays,
)

COST_FACTOR = 20.0
"""Pause after a look for lanes, as a multiple of its cost."""

SWEEP_COST_FACTOR, SWEEP_SECONDS = 200.0, 5.0
"""Pause after a sweep, as a multiple of its cost, and its usual limit in seconds."""

DEAR_SECONDS = 0.005
"""A look that takes longer than this is not repeated for each notification.

If the network or a busy server makes it long, a new lane waits up to REFRESH_SECONDS.
"""

REFRESH_SECONDS = 1.0
FRONT_SHARE = 4
AGING_SHARE = 16

MOST_FRONTS = 32
"""Lanes whose front lanes are claimed from before a look has found jobs there.

Each of them costs a claim 2.5 microseconds. Jobs in others wait for the next look.
"""

SOON_SECONDS = 60.0
"""Lanes whose next job is due sooner than this are claimed from in time."""

LATE_COMMIT = timedelta(seconds=10)
"""If a job becomes visible later than this after it was due, only a sweep finds it."""


def sweep_pause(cost: float) -> float:
    """Return the seconds until the next sweep, after one that took `cost` seconds."""
    return max(COST_FACTOR * cost, min(SWEEP_COST_FACTOR * cost, SWEEP_SECONDS))


class LaneBook:
    """The lanes that one worker knows."""

    def __init__(self, queues: Sequence[str] | None) -> None:
        self.queues = queues
        self._lanes: list[Lane] = []
        # When each lane was last known to hold jobs.
        self._seen: dict[Lane, float] = {}
        self._remembered_at = 0.0
        self._places: dict[Lane, Place] = {}

        self._claims = 0
        self._partial_claims = 0
        # The number of the last claim that looked at each lane.
        self._looked: dict[Lane, int] = {}

        self._sweep_at = 0.0
        self._fresh_until = 0.0
        self._may_look_at = 0.0

        self.continue_at: Lane | None = None
        """Where the next look continues. None: the last one saw all lanes."""
        # When jobs of lanes that no claim looks at are due: a heap.
        self._soon: list[tuple[float, Lane]] = []

        self._ready: tuple[list[Lane], list[Place], LaneArrays] | None = None

    @property
    def known(self) -> set[Lane]:
        """Return the lanes that held jobs at the last look or shortly before."""
        return set(self._seen)

    @property
    def may_look_at(self) -> float:
        """Return the earliest time of the next look; monotonic.

        Looks may take a twentieth of the time.
        """
        return self._may_look_at

    def is_stale(self, now: float, *, was_notified: bool) -> bool:
        """Return True if it is time to look: a notification may mean a new lane."""
        if now >= self._fresh_until:
            return True

        has_reason = was_notified or not self._lanes
        return has_reason and now >= self._may_look_at

    def replace(
        self,
        found: Iterable[tuple[Lane, float | None]],
        began: float,
        ended: float,
        others: int = 0,
    ) -> float | None:
        """Take the lanes found by a look, with the seconds until each one's next job.

        Returns the shortest of these times, or None. With `others`, this worker looks
        less often: together, the workers see a new lane as soon.
        """
        due_in = dict(found)
        self._remember(due_in, ended)

        cost = ended - began
        pause = COST_FACTOR * cost
        if cost >= DEAR_SECONDS:
            pause = max(pause, REFRESH_SECONDS)

        self._may_look_at = ended + max(pause, min(pause * others, REFRESH_SECONDS))
        self._fresh_until = max(self._may_look_at, ended + REFRESH_SECONDS)

        if self.continue_at is not None:
            self.add_when_due(due_in.items(), began)

        waits = [wait for wait in due_in.values() if wait is not None]
        return min(waits, default=None)

    def add_when_due(
        self, found: Iterable[tuple[Lane, float | None]], began: float
    ) -> None:
        """Note lanes, with the seconds until the next job of each is due."""
        for lane, wait in found:
            if wait is not None and wait < SOON_SECONDS:
                heapq.heappush(self._soon, (began + wait, lane))

    def add_due(self, now: float) -> float | None:
        """Claim from the lanes that have become due, too.

        Returns when the next one is due; monotonic; None if none is.
        """
        due: list[Lane] = []
        while self._soon and self._soon[0][0] <= now:
            due.append(heapq.heappop(self._soon)[1])

        self._seen |= dict.fromkeys(due, now)
        new = [lane for lane in dict.fromkeys(due) if lane not in self._places]
        if new:
            self._ready = None
            self._lanes = self._lanes + new
            self._places |= dict.fromkeys(new, START)
            self._looked |= dict.fromkeys(new, self._claims)

        return self._soon[0][0] if self._soon else None

    def _remember(self, found: Iterable[Lane], now: float) -> None:
        """Keep these lanes, and the lanes that held jobs at the last look or since.

        Under a steady load a lane is sometimes empty for a moment. Without this, it
        would be ignored until the next look.
        """
        self._ready = None

        since = min(self._remembered_at, now - REFRESH_SECONDS)
        seen = self._seen | dict.fromkeys(found, now)
        self._seen = {lane: at for lane, at in seen.items() if at >= since}
        self._remembered_at = now
        self._keep(list(self._seen))

    def _keep(self, lanes: list[Lane]) -> None:
        """Claim from these lanes only; a lane that is new is read from its start.

        The front lanes of a few are always among them: what this worker settles may put
        the next job there, and the claim that follows finds it.
        """
        fronts = [lane.front for lane in lanes[:MOST_FRONTS]]
        self._lanes = list(dict.fromkeys(lanes + fronts))
        places: dict[Lane, Place] = {}
        looked: dict[Lane, int] = {}

        for lane in self._lanes:
            places[lane] = self._places.get(lane, START)
            looked[lane] = self._looked.get(lane, self._claims)

        self._places = places
        self._looked = looked

    def request(  # noqa: PLR0913 # all that a claim says
        self,
        worker: int,
        want: int,
        now: float,
        *,
        after: int = 0,
        is_large: bool = True,
        lane_wait_ms: int = 0,
    ) -> ClaimRequest | None:
        """Return the request of the next claim; None if there is no lane to look at."""
        if not self._lanes or want <= 0:
            return None

        order, places, arrays = self._ready or self._next()
        # If another worker has swept a lane for all, the claim leaves it out.
        sweeps = None if now >= self._sweep_at else False

        return ClaimRequest(
            worker=worker,
            lanes=order,
            places=places,
            want=want,
            from_start=sweeps,
            after=after,
            is_large=is_large,
            lane_wait_ms=lane_wait_ms,
            arrays=arrays,
        )

    def get_ready(self) -> None:
        """Pack the arrays of the next request while no job waits for it."""
        if self._ready is None:
            self._ready = self._next()
            for array in self._ready[-1]:
                array.packed()

    def _next(self) -> tuple[list[Lane], list[Place], LaneArrays]:
        order = self._next_order()
        places = [self._places[lane] for lane in order]
        return order, places, lane_arrays(order, places)

    def _next_order(self) -> list[Lane]:
        """Return the lanes by priority, or with the longest waiting one first."""
        looked = self._looked
        order = sorted(self._lanes, key=lambda lane: (lane.priority, looked[lane]))
        if self._partial_claims % FRONT_SHARE != FRONT_SHARE - 1:
            order.sort(key=lambda lane: (lane.priority, not lane.is_front))

        if self._partial_claims % AGING_SHARE == AGING_SHARE - 1:
            oldest = min(filter(self._seen.__contains__, order), key=looked.__getitem__)
            order.remove(oldest)
            order.insert(0, oldest)

        return order

    def learn(
        self, request: ClaimRequest, found: Iterable[LaneClaim], cost: float
    ) -> bool:
        """Continue each lane behind the jobs that have been claimed.

        Returns True if another worker was claiming from one of the lanes.
        """
        self._ready = None
        now = time.monotonic()
        if request.from_start is None:
            self._sweep_at = now + sweep_pause(cost)

        busy = set[int | None]()
        looked_at = 0

        for lane_no, jobs, upto, upto_id, as_of, _ in found:
            # A row without a lane says that all lanes were looked at.
            looked_at = max(looked_at, lane_no or len(request.lanes))
            if upto is None:
                # Another worker claims from this lane.
                busy.add(lane_no)
            elif lane_no is None:
                self._looked_at_all(request.lanes, upto)
            else:
                busy.discard(lane_no)  # the claim has waited for it
                lane = request.lanes[lane_no - 1]
                self._move_on(lane, Place(upto, upto_id or 0, as_of or 0), jobs, now)

        self._count_looks(request.lanes, looked_at, is_partial=bool(busy))
        return bool(busy)

    def _move_on(self, lane: Lane, reached: Place, jobs: int, now: float) -> None:
        """Continue a lane at the place that a claim has reached, which got `jobs` jobs."""
        before = self._places[lane]
        self._places[lane] = reached
        if not jobs:
            return

        self._seen[lane] = now
        only_late_jobs = before[:2] == reached[:2]
        if only_late_jobs:
            self._sweep_at = now  # there are probably more before the place

    def _count_looks(
        self, lanes: Sequence[Lane], looked_at: int, *, is_partial: bool
    ) -> None:
        """Note that a claim has looked at the first `looked_at` of these lanes.

        `is_partial`: it has left due jobs in one of them.
        """
        self._claims += 1
        self._looked |= dict.fromkeys(lanes[:looked_at], self._claims)
        self._partial_claims += 1

        if looked_at in {0, len(lanes)} and not is_partial:
            self._partial_claims = 0

    def _looked_at_all(self, lanes: Iterable[Lane], now: datetime) -> None:
        """Move the places of lanes that hold no due job that is still free."""
        for lane in lanes:
            place = self._places[lane]
            # If the clock went back, the next jobs are due before the place.
            if place.run_at > now:
                self._places[lane] = START
            elif place.run_at < now - LATE_COMMIT:
                # From there on, each claim also finds jobs that are committed late.
                self._places[lane] = Place(now - LATE_COMMIT, 0, place.as_of)

    def start_over(self) -> None:
        """Forget the places: the claims that they are based on may be forgotten too."""
        self._ready = None
        self._places = dict.fromkeys(self._lanes, START)
