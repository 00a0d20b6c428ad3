"""Maintenance: the thread that does the chores that all workers share.

A few workers do the chores, and each chore is done by the first of them that comes. One
statement returns the chores that are due and have work. No beat, claim or other worker
waits for a chore that is slow or fails. The loop lends this thread its connection while
there is no work. If the thread has to wait for it, it opens one of its own.
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import psycopg

from redrive.database.connections.link import GuestLink, Link
from redrive.dead_letters.campaigns.drive import drive_all
from redrive.dead_letters.campaigns.heal import retry_fixed
from redrive.dead_letters.groups import store as groups
from redrive.worker import store
from redrive.worker.protocol import Sampled
from redrive.worker.telemetry import Telemetry
from redrive.worker.upkeep import unhandled
from redrive.worker.upkeep.progress import ProgressBook
from redrive.worker.upkeep.schedules import Schedules
from redrive.worker.upkeep.times import TimeBook

logger = logging.getLogger("redrive.maintenance")

RESCUE_SECONDS = 5.0
FOLD_SECONDS = 2.0
CAMPAIGN_SECONDS = 0.4
"""Pause between two steps of a campaign that releases jobs.

Each step releases the jobs of AHEAD_SECONDS (dead_letters/campaigns/pace.py).
"""
CHORE_SECONDS = 10.0
"""Longest time of a chore; the server's own timeouts are shorter."""

STANDSTILL_SECONDS = 60.0
UNWELL_SECONDS = 300.0
"""How long a chore that jobs wait for may fail before this worker is not ready."""

MAX_SAMPLES = 100
"""Sampled jobs that wait to be offered; later ones replace the oldest."""

PUT_OFF_SECONDS = 10.0
"""Delay before this worker retries a failed chore: others get their turn."""

RESCUE = "rescue"
CAMPAIGN = "campaign"
SCHEDULES = "schedules"


def _tend_failing(conn: store.Connection) -> None:
    """Retry failing jobs whose cause is fixed, and hold the jobs of held groups."""
    retry_fixed(conn)
    store.hold_failing(conn)


Chores = Mapping[str, tuple[float, Callable[[store.Connection], object]]]
CHORES: Chores = {
    "fold": (FOLD_SECONDS, store.fold),
    "regressions": (FOLD_SECONDS, groups.judge),
    "sample": (FOLD_SECONDS, store.sample),
    "series": (FOLD_SECONDS, store.fold_series),
    "unpark": (5.0, store.unpark),
    "cancel": (1.0, store.end_cancellations),
    "batches": (1.0, store.fold_batches),
    "limits": (1.0, store.tend_limits),
    "hold": (1.0, _tend_failing),
    "unhandled": (60.0, unhandled.warn),
    "forget": (10.0, store.forget),
    "history": (300.0, store.tend_history),
}
"""Chores, besides the rescue, with the seconds between two runs by any worker."""

JOBS_WAIT_FOR = {RESCUE, CAMPAIGN, SCHEDULES, "unpark", "cancel", "batches", "limits"}
"""Chores without which jobs wait.

The others keep figures and delete old rows. A worker that cannot do them runs jobs all
the same, so it stays ready: nobody should lose a rollout or a drain of a node to them.
"""


class Failing(NamedTuple):
    """Chore that has failed each time, from `first_at` to `last_at`; monotonic."""

    first_at: float
    last_at: float
    times: int

    def again(self, now: float) -> "Failing":
        """Return this after one more failure.

        If the last one was long ago, other workers have done the chore since, and a new
        row of failures begins.
        """
        if now - self.last_at > UNWELL_SECONDS:
            return Failing(now, now, 1)
        return Failing(self.first_at, now, self.times + 1)


@dataclass
class Maintenance:
    """Does chores until stopped.

    Attributes:
        ttl: in seconds, for workers that have none of their own.
        identities: returns the identities of this worker.
        on_cancelled: called with their jobs that are no longer wanted.
        progress: progress that handlers report, to be written.
        samples: jobs that succeeded, to be offered to the reservoirs of their kinds.
        is_caretaker: returns True if this worker does chores.
        has_jobs: returns True if this worker holds jobs.
    """

    link: Link
    ttl: float
    telemetry: Telemetry
    identities: Callable[[], Sequence[int]]
    on_cancelled: Callable[[Sequence[int]], None]
    progress: ProgressBook = field(default_factory=ProgressBook)
    schedules: Schedules = field(default_factory=lambda: Schedules(""))
    samples: deque[Sampled] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    is_caretaker: Callable[[], bool] = lambda: True
    has_jobs: Callable[[], bool] = lambda: True
    _ticked_at: float = field(default_factory=time.monotonic, init=False)
    _failing: dict[str, Failing] = field(default_factory=dict[str, Failing], init=False)
    _times: TimeBook = field(init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _is_releasing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Prepare the book of the times that this worker measures."""
        telemetry = self.telemetry
        self._times = TimeBook(telemetry.metrics.duration, telemetry.waits)
        self._thread = threading.Thread(
            target=self._run, name="maintenance", daemon=True
        )

    def start(self) -> None:
        """Do chores in a thread of its own."""
        self._thread.start()

    def stop(self, patience: float = 0.0) -> None:
        """Stop the thread, and wait this many seconds for its last words."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    def fault(self, now: float) -> str | None:
        """Return what is wrong, or None. Any thread may call it."""
        if now - self._ticked_at > STANDSTILL_SECONDS:
            return "stood still"

        for name, failing in list(self._failing.items()):
            if name not in JOBS_WAIT_FOR:
                continue

            # A chore that failed here once may have been others' to do ever since.
            since_first = now - failing.first_at
            if since_first > UNWELL_SECONDS > (now - failing.last_at):
                return f"{name} has failed for {since_first:.0f} s"

        return None

    # ------------------------------------------------------------------ its thread

    def _run(self) -> None:
        interval = min(FOLD_SECONDS, self.ttl / 3)
        # Workers that start together spread their rounds.
        self._stopping.wait(random.uniform(0.0, interval))

        while not self._rest(interval * random.uniform(0.8, 1.2)):
            now = self._ticked_at = time.monotonic()
            self._share_connection()

            if now >= self.link.retry_at:
                self._hear_of_cancelled()
                self._write_progress()
                self._offer_samples()
                self._send_times()
                self._do_all(now)

        self._send_times(is_last=True)
        self.link.close()

    def _share_connection(self) -> None:
        """Hold no connection of its own, unless there are chores, which may be long."""
        if isinstance(self.link, GuestLink):
            self.link.shares = not self.is_caretaker()

    def _rest(self, seconds: float) -> bool:
        """Rest until the next round, but drive a campaign that releases jobs.

        Returns True if no more rounds are wanted.
        """
        until = time.monotonic() + seconds
        while self._is_releasing and time.monotonic() + CAMPAIGN_SECONDS < until:
            if self._stopping.wait(CAMPAIGN_SECONDS):
                return True

            self._drive_campaigns()

        return self._stopping.wait(max(until - time.monotonic(), 0.0))

    def _drive_campaigns(self) -> None:
        """Drive all campaigns, unless another worker just did."""
        self._is_releasing = False
        if self._is_tried(CAMPAIGN, time.monotonic()):
            self._attempt(CAMPAIGN, *self._chores()[CAMPAIGN])

    def _drive(self, conn: store.Connection) -> None:
        self._is_releasing = drive_all(conn)

    def _do_all(self, now: float) -> None:
        if self.schedules:
            self._declare()
        if not self.is_caretaker():
            return

        tried = {
            name: chore
            for name, chore in self._chores().items()
            if name == RESCUE or self._is_tried(name, now)
        }

        # A chore that has failed is done even if it has no work: only success ends its fault.
        alone = set(self._failing)
        everys = {
            name: every for name, (every, _) in tried.items() if name not in alone
        }
        taken = self._take(everys)

        for name, (every, do) in tried.items():
            if taken is None or name in alone:
                self._attempt(name, every, do)
            elif name in taken:
                self._do(name, do)

    def _chores(self) -> Chores:
        """Return all chores that this worker can do, in their order."""
        chores = {RESCUE: (min(RESCUE_SECONDS, self.ttl / 3), self._rescue), **CHORES}

        # a little less than the pause, so that no turn is missed by a hair
        chores[CAMPAIGN] = (0.75 * CAMPAIGN_SECONDS, self._drive)

        if self.schedules:
            chores[SCHEDULES] = (1.0, self.schedules.fire)

        return chores

    def _take(self, everys: Mapping[str, float]) -> set[str] | None:
        """Take the chores that are due; None if the database cannot say which.

        A locked table may be the reason. Then each chore is tried by itself.
        """
        try:
            with self.link.use(bound=CHORE_SECONDS) as conn:
                return store.take_chores(conn, everys)
        except psycopg.Error:
            return None

    def _is_tried(self, name: str, now: float) -> bool:
        failing = self._failing.get(name)
        if failing is None:
            return True

        return now - failing.last_at > PUT_OFF_SECONDS

    def _declare(self) -> None:
        """Declare the schedules for each identity that has not declared them."""
        if self.schedules.has_told(self.identities()):
            return

        try:
            with self.link.use(bound=CHORE_SECONDS) as conn:
                self.schedules.declare(conn, self.identities())
        except psycopg.Error as error:
            self._failed(SCHEDULES, error)

    def _hear_of_cancelled(self) -> None:
        """Find the jobs of this worker that are no longer wanted."""
        if not (workers := self.identities()) or not self.has_jobs():
            return

        try:
            with self.link.use(bound=CHORE_SECONDS) as conn:
                if unwanted := store.cancelled(conn, workers):
                    self.on_cancelled(unwanted)
        except psycopg.Error as error:
            self._failed("cancel", error)

    def _write_progress(self) -> None:
        """Write the progress that handlers reported."""
        if noted := self.progress.take():
            self._do("progress", lambda conn: store.keep_progress(conn, noted))

    def _offer_samples(self) -> None:
        """Offer the sampled jobs. After a failure they are dropped: more will come."""
        taken = [self.samples.popleft() for _ in range(len(self.samples))]
        if taken:
            self._do("samples", lambda conn: store.keep_samples(conn, taken))

    def _send_times(self, *, is_last: bool = False) -> None:
        """Send the durations and waits of the minute that has ended.

        After a failure they are lost.
        """
        if measured := self._times.take(is_last=is_last):
            self._do("times", lambda conn: store.count_times(conn, measured))

    def _attempt(
        self, name: str, every: float, do: Callable[[store.Connection], object]
    ) -> None:
        try:
            with self.link.use(bound=CHORE_SECONDS) as conn:
                is_taken = store.take_chore(conn, name, every)
        except psycopg.Error as error:
            self._failed(name, error)
        else:
            if is_taken:
                self._do(name, do)

    def _do(self, name: str, do: Callable[[store.Connection], object]) -> None:
        try:
            with self.link.use(bound=CHORE_SECONDS) as conn:
                do(conn)
        except Exception as error:  # noqa: BLE001 # no row may end the thread for all chores
            self._failed(name, error)
        else:
            self._failing.pop(name, None)

    def _failed(self, name: str, error: Exception) -> None:
        now = time.monotonic()
        failing = self._failing.get(name, Failing(now, now, 0)).again(now)

        self._failing[name] = failing
        self.telemetry.chore_failed(name, error, failing.times)

    def _rescue(self, conn: store.Connection) -> None:
        store.mark_lost(conn, self.ttl)
        store.advance_floors(conn)

        is_more = True
        while is_more:
            rescued = store.rescue(conn, self.ttl)
            if rescued.workers:
                self.telemetry.rescued(*rescued)

            # what a handler's own transaction has locked has to wait
            is_more = rescued.workers > 0 and rescued.jobs + rescued.dead > 0
