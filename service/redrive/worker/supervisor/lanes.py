"""Which lanes to look at, in what order, and from where: the floor.

A worker remembers, for each lane, the last run_at it claimed, and starts its next scan there
instead of walking again over the dead index entries behind it: with 400,000 of them held by an open
snapshot a claim takes 0.5 ms instead of 80 ms. The floor is a hint. What lies below it (a
transaction that committed late, a job that another claimer let go) is found by a sweep from the
beginning, allowed whenever 20 times the cost of the last one has passed.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime

from redrive.worker.store import EPOCH, ClaimRequest, Lane
from redrive.worker.supervisor.held import Held

SWEEP_COST_FACTOR = 20.0
REFRESH_SECONDS = 1.0


class LaneBook:
    """The lanes that one worker knows."""

    def __init__(self, queues: Sequence[str] | None) -> None:
        self.queues = queues
        self._lanes: list[Lane] = []
        self._seen: dict[Lane, float] = {}
        self._floors: dict[Lane, datetime] = {}
        self._turn = 0
        self._sweep_at = 0.0
        self._sweeping = False
        self._fresh_until = 0.0
        self._may_look_at = 0.0

    @property
    def known(self) -> set[Lane]:
        """The lanes that held jobs at the last look, or a moment before."""
        return set(self._lanes)

    @property
    def may_look_at(self) -> float:
        """When to look again at the soonest, monotonic: it may cost a twentieth of the time."""
        return self._may_look_at

    def is_stale(self, now: float, *, was_notified: bool) -> bool:
        """Whether it is time to ask the database; a notification may mean a lane never seen."""
        has_reason = was_notified or not self._lanes
        return now >= self._fresh_until or (has_reason and now >= self._may_look_at)

    def replace(
        self, found: Iterable[tuple[Lane, float | None]], began: float, ended: float
    ) -> float | None:
        """Take what the database answered: each lane with the seconds until its next job is due.

        Returns the shortest of these, or None.
        """
        due_in = dict(found)
        self._remember(due_in, ended)
        cost = ended - began
        self._may_look_at = ended + SWEEP_COST_FACTOR * cost
        self._fresh_until = max(self._may_look_at, ended + REFRESH_SECONDS)
        waits = [wait for wait in due_in.values() if wait is not None]
        return max(0.0, min(waits)) if waits else None

    def _remember(self, found: Iterable[Lane], now: float) -> None:
        """Keep these lanes, and for a moment those that were found before.

        Under a steady load a lane is empty every now and then, and would be left alone until the
        next look.
        """
        self._seen |= dict.fromkeys(found, now)
        self._seen = {lane: at for lane, at in self._seen.items() if now < at + REFRESH_SECONDS}
        self._lanes = list(self._seen)
        self._floors = {lane: self._floors.get(lane, EPOCH) for lane in self._lanes}

    def request(self, worker: int, want: int, now: float) -> ClaimRequest | None:
        """What to ask for: by priority, equal ones in turn. None when there is nowhere to look."""
        if not self._lanes or want <= 0:
            return None
        self._sweeping = now >= self._sweep_at
        order = self._next_order()
        floors = [EPOCH if self._sweeping else self._floors[lane] for lane in order]
        return ClaimRequest(worker, order, floors, want)

    def _next_order(self) -> list[Lane]:
        """By priority; among equals each is the first in turn."""
        self._turn += 1
        turn = self._turn % len(self._lanes)
        return sorted(self._lanes[turn:] + self._lanes[:turn], key=lambda lane: lane.priority)

    def learn(self, request: ClaimRequest, jobs: Iterable[Held], cost: float) -> None:
        """Raise the floors to what was claimed."""
        if self._sweeping:
            self._sweep_at = time.monotonic() + SWEEP_COST_FACTOR * cost
        for lane_no, run_at in _reached(jobs).items():
            lane = request.lanes[lane_no - 1]
            self._floors[lane] = max(self._floors.get(lane, EPOCH), run_at)


def _reached(jobs: Iterable[Held]) -> dict[int, datetime]:
    """The latest run_at of the jobs of each lane, by its number."""
    reached: dict[int, datetime] = {}
    for held in jobs:
        latest = reached.get(held.lane_no)
        if latest is None or held.run_at > latest:
            reached[held.lane_no] = held.run_at
    return reached
