"""The thread that keeps the worker alive in the database, and does the chores that workers share.

It shares nothing with handlers, so nothing a handler does can silence it. When it cannot make
itself heard in time, the worker must assume that its jobs are being given to others, and stops.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psycopg

from redrive.database.connect import Link
from redrive.worker import store

logger = logging.getLogger("redrive.heartbeat")

BEATS_PER_TTL = 6
RESCUE_SECONDS = 5.0
FOLD_SECONDS = 2.0
UNPARK_SECONDS = 5.0
FORGET_SECONDS = 10.0
SETTLING_SECONDS = 1.0
MAX_LOSSES = 100
"""A job that lost so many workers is dead-lettered by whoever takes it back.

Before that its policy decides, at the claim.
"""

CHORES: Mapping[str, tuple[float, Callable[[store.Connection], object]]] = {
    "fold": (FOLD_SECONDS, store.fold),
    "sample": (FOLD_SECONDS, store.sample),
    "unpark": (UNPARK_SECONDS, store.unpark),
    "forget": (FORGET_SECONDS, store.forget),
}
"""What one of all workers does at most once in so many seconds, besides the rescue."""


@dataclass
class Heartbeat:
    """Beats for every identity that the supervisor has. Durations in seconds.

    `on_silence` is called from the watchdog, the others from this thread; `inflight` says how many
    jobs are in the hands of runners.
    """

    link: Link
    ttl: float
    on_silence: Callable[[], None]
    on_rescue: Callable[[int, int, int], None]
    on_lost: Callable[[], None]
    inflight: Callable[[], int]
    ticked_at: float = field(default_factory=time.monotonic, init=False)
    _heard: dict[int, float] = field(default_factory=dict[int, float], init=False)
    """Identity -> monotonic instant of the last good beat, taken before the beat was sent."""
    _lost: set[int] = field(default_factory=set[int], init=False)
    _next_beat: float = field(default=0.0, init=False)
    _next_chores: float = field(default=0.0, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)

    @property
    def interval(self) -> float:
        """Seconds between beats."""
        return self.ttl / BEATS_PER_TTL

    def start(self) -> None:
        """Beat until stopped, in a thread of its own."""
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Beat no more."""
        self._stopping.set()

    # ------------------------------------------------------------------ for the supervisor

    def heard(self, worker: int, at: float) -> None:
        """An identity was registered or beaten by a statement sent at `at`."""
        self._heard[worker] = at

    def forget(self, worker: int) -> None:
        """An identity was retired."""
        self._heard.pop(worker, None)
        self._lost.discard(worker)

    def lost(self) -> set[int]:
        """The identities that others may have declared lost."""
        return set(self._lost)

    def silent_seconds(self, now: float) -> float:
        """Since the database last confirmed a beat, of any identity."""
        return now - max(list(self._heard.values()), default=0.0)

    def check_silence(self, now: float) -> None:
        """End the jobs of identities that were silent for nearly a ttl: others may have them.

        Called from the watchdog: this thread may be held up by the very call that cannot make
        itself heard.
        """
        margin = min(2.0, self.ttl / 5)
        silent = {
            worker for worker, heard in list(self._heard.items()) if now - heard > self.ttl - margin
        }
        if silent - self._lost:
            self._lost.update(silent)
            self.on_silence()

    # ------------------------------------------------------------------ its thread

    def _run(self) -> None:
        self._next_chores = time.monotonic() + random.uniform(0.0, RESCUE_SECONDS)
        while not self._stopping.wait(min(0.5, self.ttl / 20)):
            now = self.ticked_at = time.monotonic()
            if now < self.link.retry_at:
                continue
            try:
                self._tick(now)
            except psycopg.Error as error:
                logger.debug("the heartbeat could not reach the database: %s", type(error).__name__)
                self._put_off_chores(now)

    def _put_off_chores(self, now: float) -> None:
        """After an outage every supervisor settles first: no jobs are rescued that have ended."""
        settled_at = self.link.retry_at + SETTLING_SECONDS
        self._next_chores = max(self._next_chores, now + 0.5, settled_at)

    def _tick(self, now: float) -> None:
        if now >= self._next_beat and self._heard:
            self._beat()
            self._next_beat = now + self.interval * random.uniform(0.9, 1.0)
        if now >= self._next_chores:
            self._do_chores()
            interval = min(FOLD_SECONDS, self.ttl / 3)
            self._next_chores = now + interval * random.uniform(0.8, 1.2)

    def _beat(self) -> None:
        sent = time.monotonic()
        known = list(self._heard)
        with self.link.use(bound=max(1.0, min(5.0, self.ttl / 3))) as conn:
            alive = store.beat(conn, dict.fromkeys(known, self.inflight()))
        for worker in known:
            if worker not in self._heard:
                continue  # retired meanwhile
            if worker not in alive:
                self._lost.add(worker)
                self.on_lost()
            elif worker not in self._lost:
                self._heard[worker] = sent

    def _do_chores(self) -> None:
        with self.link.use() as conn:
            if store.take_chore(conn, "rescue", min(RESCUE_SECONDS, self.ttl / 3)):
                rescued = store.rescue(conn, self.ttl, MAX_LOSSES)
                if rescued.workers:
                    self.on_rescue(*rescued)
            for name, (every, do) in CHORES.items():
                if store.take_chore(conn, name, every):
                    do(conn)
