"""The thread that keeps the worker alive in the database, and does the chores of the fleet while it
is there.

It shares nothing with handlers, so nothing a handler does can silence it. When it cannot make
itself heard in time, the worker must assume that its jobs are being given to others, and stops.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from redrive.database.connect import Link
from redrive.worker import store

logger = logging.getLogger("redrive.heartbeat")

BEATS_PER_TTL = 6
SWEEP_SECONDS = 5.0
FOLD_SECONDS = 2.0
UNPARK_SECONDS = 5.0
SETTLING_SECONDS = 1.0
MAX_LOSSES = 100
"""A job that lost so many workers is buried by whoever takes it back. Before that its policy
decides, at the claim.
"""


@dataclass
class Heartbeat:
    """Beats for every identity the supervisor has.

    Shared with the supervisor: it adds and removes `identities` (id -> monotonic instant of the
    last good beat, taken before the beat was sent) and takes ids out of `lost`.
    """

    link: Link
    ttl: float
    on_silence: Callable[[], None]
    on_rescue: Callable[[int, int, int], None]
    on_lost: Callable[[], None]
    inflight: Callable[[], int]
    identities: dict[int, float] = field(default_factory=dict[int, float])
    lost: set[int] = field(default_factory=set[int])
    ticked_at: float = field(default_factory=time.monotonic)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def interval(self) -> float:
        """Seconds between beats."""
        return self.ttl / BEATS_PER_TTL

    def start(self) -> threading.Thread:
        """Run until `stopping` is set."""
        thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        thread.start()
        return thread

    def heard(self, worker: int, at: float) -> None:
        """An identity was registered or beaten by a statement sent at `at`."""
        self.identities[worker] = at

    def forget(self, worker: int) -> None:
        """An identity was retired."""
        self.identities.pop(worker, None)
        self.lost.discard(worker)

    def _run(self) -> None:
        next_beat = 0.0
        next_chores = time.monotonic() + random.uniform(0.0, SWEEP_SECONDS)
        while not self.stopping.wait(min(0.5, self.ttl / 20)):
            now = self.ticked_at = time.monotonic()
            if now < self.link.retry_at:
                continue
            try:
                if now >= next_beat and self.identities:
                    self._beat()
                    next_beat = now + self.interval * random.uniform(0.9, 1.0)
                if now >= next_chores:
                    self._chores()
                    next_chores = now + min(FOLD_SECONDS, self.ttl / 3) * random.uniform(0.8, 1.2)
            except psycopg.Error as error:
                logger.debug("the heartbeat could not reach the database: %s", type(error).__name__)
                # After an outage every supervisor settles what has ended meanwhile, before jobs are
                # taken from them.
                next_chores = max(next_chores, now + 0.5, self.link.retry_at + SETTLING_SECONDS)

    def check_silence(self, now: float) -> None:
        """Whoever was silent for a whole ttl may have been declared lost: its jobs must not go on
        running here.

        Called from the watchdog: this thread may be held up by the very call that cannot make
        itself heard.
        """
        margin = min(2.0, self.ttl / 5)
        silent = [
            worker
            for worker, heard in list(self.identities.items())
            if now - heard > self.ttl - margin
        ]
        if any(worker not in self.lost for worker in silent):
            self.lost.update(silent)
            self.on_silence()

    def _beat(self) -> None:
        sent = time.monotonic()
        known = list(self.identities)
        with self.link.use(bound=max(1.0, min(5.0, self.ttl / 3))) as conn:
            alive = store.beat(conn, dict.fromkeys(known, self.inflight()))
        for worker in known:
            if worker in alive:
                if worker in self.identities and worker not in self.lost:
                    self.identities[worker] = sent
            elif worker in self.identities:
                self.lost.add(worker)
                self.on_lost()

    def _chores(self) -> None:
        with self.link.use() as conn:
            if store.take_chore(conn, "rescue", min(SWEEP_SECONDS, self.ttl / 3)):
                lost, rescued, buried = store.rescue(conn, self.ttl, MAX_LOSSES)
                if lost:
                    self.on_rescue(lost, rescued, buried)
            if store.take_chore(conn, "fold", FOLD_SECONDS):
                store.fold(conn)
            if store.take_chore(conn, "sample", FOLD_SECONDS):
                store.sample(conn)
            if store.take_chore(conn, "unpark", UNPARK_SECONDS):
                store.unpark(conn)
