"""Order of lanes to look at, and the place where each scan starts.

The claims of a lane follow each other: a worker remembers, for each lane, up to where
    it has been
claimed, and its next scan starts there instead of walking again over the dead index
entries behind it: with 400,000 of them held by an open snapshot a claim takes 0.5 ms
    instead of 80 ms. What lies
before that place (a transaction that committed late) is found by a sweep from the
beginning. A claim that sweeps takes longer, and the jobs of its time wait for it: a
two-hundredth of the time where that is a few milliseconds, more where it would
otherwise come less than every five seconds, but never more than a twentieth.

The most urgent lanes come first, and of equal ones the one that has not been looked at
for longest: none of them is looked at again before every other was. A claim that is
    full leaves the lanes after
its last one alone, and under a flood that would be for ever. So of `AGING_SHARE` such
claims in a row one begins with the lane that has not been looked at for longest,
    whatever its priority: each of
n lanes is looked at within n * AGING_SHARE claims of every worker, and the urgent ones
keep the rest.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from redrive.worker.exchange import (
    START,
    ClaimRequest,
    Lane,
    LaneArrays,
    LaneClaim,
    Place,
    lane_arrays,
)

COST_FACTOR = 20.0
"""Times the cost of a look or a sweep pass before the next."""

SWEEP_COST_FACTOR, SWEEP_SECONDS = 200.0, 5.0
"""And before a sweep so many, but no more than so long."""

DEAR_SECONDS = 0.005
"""A look that takes longer is not repeated for each notification; no new lane waits for
it for more than REFRESH_SECONDS, where it is the network or a busy server that makes it
long."""

REFRESH_SECONDS = 1.0
AGING_SHARE = 16

LATE_COMMIT = timedelta(seconds=10)
"""How long a job may become visible after it was due before a sweep alone finds it."""


def sweep_pause(cost: float) -> float:
    """Seconds until the next sweep, after one that took `cost` seconds."""
    return max(COST_FACTOR * cost, min(SWEEP_COST_FACTOR * cost, SWEEP_SECONDS))


class LaneBook:
    """The lanes that one worker knows."""

    def __init__(self, queues: Sequence[str] | None) -> None:
        self.queues = queues
        self._lanes: list[Lane] = []
        self._seen: dict[Lane, float] = {}  # when it was last known to hold jobs
        self._remembered_at = 0.0
        self._places: dict[Lane, Place] = {}
        self._claims = 0
        self._partial_claims = 0
        self._looked: dict[Lane, int] = {}  # which claim was the last to look at it
        self._sweep_at = 0.0
        self._fresh_until = 0.0
        self._may_look_at = 0.0
        self._ready: tuple[list[Lane], list[Place], LaneArrays] | None = None

    @property
    def known(self) -> set[Lane]:
        """The lanes that held jobs at the last look, or a moment before."""
        return set(self._lanes)

    @property
    def may_look_at(self) -> float:
        """Return the earliest time of the next look, monotonic: looks may cost a
        twentieth of the time.
        """
        return self._may_look_at

    def is_stale(self, now: float, *, was_notified: bool) -> bool:
        """Return True if it is time to ask the database; a notification may mean a new
        lane.
        """
        has_reason = was_notified or not self._lanes
        return now >= self._fresh_until or (has_reason and now >= self._may_look_at)

    def replace(
        self,
        found: Iterable[tuple[Lane, float | None]],
        began: float,
        ended: float,
        others: int = 0,
    ) -> float | None:
        """Take what the database answered: each lane with the seconds until its next
        job is due.

        Returns the shortest of these, or None. Beside `others` it looks less often:
        together they see a new lane as soon.
        """
        due_in = dict(found)
        self._remember(due_in, ended)
        cost = ended - began
        pause = max(
            COST_FACTOR * cost, REFRESH_SECONDS if cost >= DEAR_SECONDS else 0.0
        )
        self._may_look_at = ended + max(pause, min(pause * others, REFRESH_SECONDS))
        self._fresh_until = max(self._may_look_at, ended + REFRESH_SECONDS)
        waits = [wait for wait in due_in.values() if wait is not None]
        return max(0.0, min(waits)) if waits else None

    def _remember(self, found: Iterable[Lane], now: float) -> None:
        """Keep these lanes, and those that held jobs at the look before or since.

        Under a steady load a lane is empty every now and then, and would be left alone
        until the next look.
        """
        self._ready = None
        since = min(self._remembered_at, now - REFRESH_SECONDS)
        self._seen |= dict.fromkeys(found, now)
        self._seen = {lane: at for lane, at in self._seen.items() if at >= since}
        self._remembered_at = now
        self._lanes = list(self._seen)
        self._places = {lane: self._places.get(lane, START) for lane in self._lanes}
        self._looked = {
            lane: self._looked.get(lane, self._claims) for lane in self._lanes
        }

    def request(
        self,
        worker: int,
        want: int,
        now: float,
        *,
        after: int = 0,
        is_large: bool = True,
    ) -> ClaimRequest | None:
        """Return the request of the next claim; None if there is no lane to look at."""
        if not self._lanes or want <= 0:
            return None
        order, places, arrays = self._ready or self._next()
        is_sweep = now >= self._sweep_at
        return ClaimRequest(
            worker, order, places, want, is_sweep, after, is_large, arrays=arrays
        )

    def get_ready(self) -> None:
        """Pack what the next request says, while nobody waits for it."""
        if self._ready is None:
            self._ready = self._next()
            for array in self._ready[-1]:
                array.packed()

    def _next(self) -> tuple[list[Lane], list[Place], LaneArrays]:
        order = self._next_order()
        places = [self._places[lane] for lane in order]
        return order, places, lane_arrays(order, places)

    def _next_order(self) -> list[Lane]:
        """By priority, equal ones in turn; now and then the one that has waited longest
        first.
        """
        looked = self._looked
        order = sorted(self._lanes, key=lambda lane: (lane.priority, looked[lane]))
        if self._partial_claims == AGING_SHARE - 1:
            oldest = min(order, key=looked.__getitem__)
            order.remove(oldest)
            order.insert(0, oldest)
        return order

    def learn(
        self, request: ClaimRequest, found: Iterable[LaneClaim], cost: float
    ) -> bool:
        """Go on from where these lanes have been claimed.

        Returns whether somebody else was claiming from one.
        """
        self._ready = None
        now, busy, looked_at = time.monotonic(), set[int | None](), 0
        if request.from_start:
            self._sweep_at = now + sweep_pause(cost)
        for lane_no, jobs, upto, upto_id, as_of, _ in found:
            looked_at = max(looked_at, lane_no or len(request.lanes))
            if upto is None:
                busy.add(lane_no)
            elif lane_no is None:
                self._looked_at_all(request.lanes, upto)
            else:
                busy.discard(lane_no)  # it was waited for
                lane = request.lanes[lane_no - 1]
                self._places[lane] = Place(upto, upto_id or 0, as_of or 0)
                if jobs:
                    self._seen[lane] = now
        self._claims += 1
        self._looked |= dict.fromkeys(request.lanes[:looked_at], self._claims)
        is_all = looked_at in {0, len(request.lanes)}
        self._partial_claims = 0 if is_all else (self._partial_claims + 1) % AGING_SHARE
        return bool(busy)

    def _looked_at_all(self, lanes: Iterable[Lane], now: datetime) -> None:
        """Nothing that was due is left in these lanes but what others are to run."""
        for lane in lanes:
            place = self._places[lane]
            if (
                place.run_at > now
            ):  # the clock went back, and what comes now is before it
                self._places[lane] = START
            elif place.run_at < now - LATE_COMMIT:
                self._places[lane] = Place(now - LATE_COMMIT, 0, place.as_of)

    def start_over(self) -> None:
        """Forget the places: what they were said to be true of may be forgotten,
        too.
        """
        self._ready = None
        self._places = dict.fromkeys(self._lanes, START)
