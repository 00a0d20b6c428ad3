"""Heartbeat: the thread that keeps the worker alive in the database.

It shares nothing with handlers, chores or claims, so they cannot silence it. If no
heartbeat arrives in time, other workers may take the jobs of this one. Then it suspends
its runners until the database says if they did.

Between two heartbeats, it waits for notifications, if few workers come before it.
Postgres wakes every session that listens for every notification. So 1,000 sessions
would cost it a tenth of a second each time. If there is a URL of its own for
notifications, the thread `listener` waits for them there.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import psycopg

from redrive.database.connections.link import LONGEST_BACKOFF, Link
from redrive.worker import store
from redrive.worker.polling import (
    MANY_WORKERS,
    delay_seconds,
    longest_seconds,
    rest_seconds,
)
from redrive.worker.upkeep.listener import Listener
from redrive.worker.upkeep.slowness import Slowness
from redrive.worker.upkeep.standstill import Standstill

BEATS_PER_TTL, BEATS_OF_MANY = 6, 4
"""Heartbeats within a TTL; the clock of contact allows no fewer than 4."""

BEATS_PER_LOOK = 4
"""With many workers, each looks at the others only with every fourth heartbeat.

A look reads the rows of all workers. They do not look at the same time, so some worker
notices soon if the caretakers are gone.
"""

LISTENERS = 32
"""Workers with the same handlers that listen. The others only poll."""

CARETAKERS = 3
"""Workers with the same handlers that do the chores."""

LATE_SECONDS = 15.0
"""If no rescue has begun for this long, the caretakers are gone, and others do chores."""

LISTEN_SECONDS = 5.0
"""Longest wait for notifications: after it, the thread shows that it lives."""


@dataclass
class Heartbeat:
    """Sends heartbeats for every identity of the supervisor. Durations are in seconds.

    Attributes:
        on_silence: called from the watchdog when no heartbeat arrives.
        on_answer: called after a silence, or when an identity is lost.
        on_notify: called when jobs were enqueued.
        on_failure: called when a heartbeat fails.
        inflight: returns how many jobs runners hold.
        progress: returns the progress of an identity's jobs.
        listen_link: listens here, in a thread of its own; None = on `link`.
    """

    link: Link
    ttl: float
    on_silence: Callable[[], None]
    on_answer: Callable[[], None]
    on_notify: Callable[[], None]
    on_failure: Callable[[psycopg.Error], None]
    inflight: Callable[[], int]
    progress: Callable[[int], str]
    listener: Listener
    standstill: Standstill
    slowness: Slowness
    listen_link: Link | None = None
    ticked_at: float = field(default_factory=time.monotonic, init=False)
    _others: int = field(default=0, init=False)
    _place: int | None = field(default=None, init=False)
    """Number of workers before this one; None = no heartbeat has said it yet."""
    _late: float = field(default=0.0, init=False)
    _began_at: float = field(default_factory=time.monotonic, init=False)
    _heard: dict[int, float] = field(default_factory=dict[int, float], init=False)
    """Identity -> when its last good heartbeat was about to be sent; monotonic."""
    _silent: set[int] = field(default_factory=set[int], init=False)
    """Identities that other workers may have declared lost: nobody knows yet."""
    _lost: set[int] = field(default_factory=set[int], init=False)
    _left: set[int] = field(default_factory=set[int], init=False)
    """Lost identities whose jobs were dropped; what had ended is still to be settled.
    """
    _beat_at: float = field(default=0.0, init=False)
    _beats_until_look: int = field(default=0, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)

    @property
    def _bound(self) -> float:
        """Longest time of one statement."""
        return max(1.0, min(5.0, self.ttl / 3))

    @property
    def interval(self) -> float:
        """Seconds between two heartbeats."""
        are_many = self._others >= MANY_WORKERS
        return self.ttl / (BEATS_OF_MANY if are_many else BEATS_PER_TTL)

    # -------------------------------------------------- its place among the workers

    @property
    def is_caretaker(self) -> bool:
        """True if this worker does chores. Any thread may ask."""
        # No heartbeat was answered yet.
        if self._place is None:
            return time.monotonic() - self._began_at > LATE_SECONDS

        return self._place < CARETAKERS or self._late > LATE_SECONDS

    @property
    def is_listener(self) -> bool:
        """True if this worker listens for notifications. Any thread may ask."""
        return self._place is not None and self._place < LISTENERS

    @property
    def others(self) -> int:
        """Number of other workers that look for the same jobs as often as this one."""
        if self.is_listener:
            return min(self._others, LISTENERS - 1)
        return self._others

    @property
    def delay(self) -> float:
        """Seconds for which the workers before it get a new job. Any thread may ask."""
        return delay_seconds(self._place or 0)

    @property
    def longest_poll(self) -> float:
        """Seconds between two polls without a reason. Any thread may ask."""
        return longest_seconds(self._others, is_deaf=self.listener.is_deaf)

    def start(self) -> None:
        """Send heartbeats until stopped, in a thread of its own."""
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

        if self.listen_link is not None:
            threading.Thread(
                target=self._listen_apart,
                args=(self.listen_link,),
                name="listener",
                daemon=True,
            ).start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()

    # ------------------------------------------------------- for the supervisor

    def heard(self, worker: int, at: float) -> None:
        """Note that a statement sent at `at` has kept an identity alive."""
        self._heard[worker] = at

    def forget(self, worker: int) -> None:
        """Forget an identity that was retired."""
        self._heard.pop(worker, None)
        self._silent.discard(worker)
        self._lost.discard(worker)
        self._left.discard(worker)

    def leave(self, workers: AbstractSet[int]) -> None:
        """Note that the jobs of lost identities were dropped.

        Their heartbeats continue until they are retired. What had ended is settled
        before that.
        """
        self._left |= workers
        self._lost -= workers

    def identities(self) -> list[int]:
        """Return the identities that it beats for. Any thread may call it."""
        return list(self._heard)

    def lost(self) -> set[int]:
        """Return the identities that other workers have declared lost."""
        return set(self._lost)

    @property
    def is_silent(self) -> bool:
        """True if an identity was silent for so long that others may have its jobs."""
        return bool(self._silent)

    def silent_seconds(self, now: float) -> float:
        """Return the seconds since the database last confirmed a heartbeat."""
        return now - max(list(self._heard.values()), default=0.0)

    def check_silence(self, now: float) -> None:
        """Find the identities that were silent for nearly a ttl.

        Other workers may have their jobs. The watchdog calls this: the thread of the
        heartbeat may be stuck in the very call that does not get through.
        """
        margin = min(2.0, self.ttl / 5)
        # Look at a copy, because the loop adds and removes identities meanwhile.
        silent = {
            worker
            for worker, heard in list(self._heard.items())
            if now - heard > self.ttl - margin
        }
        silent -= self._left | self._lost

        if silent - self._silent:
            self._silent |= silent
            self.on_silence()

    # ------------------------------------------------------------------ its thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.ticked_at = time.monotonic()
            try:
                if self.ticked_at >= self._beat_at:
                    self._beat(self.ticked_at)

                self.standstill.look(self.link, self._bound)
                self.slowness.look(self.link, self._bound)
                self._listen(self._pause())
            except psycopg.Error as error:
                self.on_failure(error)
                # Retry sooner than the link does: the worker may be silent only for a
                # ttl.
                longest = min(LONGEST_BACKOFF, self.interval)
                self._stopping.wait(random.uniform(0.05, longest))

    def _beat(self, sent: float) -> None:
        """Send a heartbeat for each identity. Raises psycopg.Error."""
        known = list(self._heard)
        if not known:
            return

        with self.link.use(self._bound) as conn:
            # Each identity reports the jobs of the whole worker.
            inflight = dict.fromkeys(known, self.inflight())
            progress = {worker: self.progress(worker) for worker in known}
            alive = self._send(conn, inflight, progress)

        for worker in known:
            self._confirmed(worker, sent, is_alive=worker in alive)

        # Workers that started together must not beat together.
        self._beat_at = sent + self.interval * random.uniform(0.9, 1.0)

    def _send(
        self,
        conn: store.Connection,
        inflight: Mapping[int, int],
        progress: Mapping[int, str],
    ) -> set[int]:
        """Send heartbeats, and look at the other workers if it is time to."""
        if self._beats_until_look > 0:
            self._beats_until_look -= 1
            return store.beat_only(conn, inflight, progress)

        alive, self._others, self._place, self._late = store.beat(
            conn, inflight, progress
        )
        if self._others >= MANY_WORKERS:
            self._beats_until_look = BEATS_PER_LOOK - 1

        return alive

    def _pause(self) -> float:
        """Return the seconds to listen: until the next heartbeat, if one is due."""
        if not self._heard:
            # It has no identity before its first claim.
            return min(0.5, self.ttl / 20)

        return max(0.0, min(LISTEN_SECONDS, self._beat_at - time.monotonic()))

    def _listen(self, seconds: float) -> None:
        """Wait for up to `seconds`, for notifications too. Raises psycopg.Error."""
        if self.listen_link is not None:
            self._stopping.wait(seconds)
        else:
            self._hear(self.link, seconds)

    def _hear(self, link: Link, seconds: float) -> None:
        """Wait for notifications, if this worker listens. Raises psycopg.Error."""
        if link is self.link or self.is_listener:
            with link.use(bound=seconds + 5.0) as conn:
                rest = rest_seconds(self.others)
                if self.listener.hear(conn, seconds, rest, ears=self.is_listener):
                    self.on_notify()
        else:
            # A worker that does not listen keeps no connection for it.
            link.close()

        if self.listener.is_deaf or not self.is_listener:
            self._stopping.wait(seconds)

    def _listen_apart(self, link: Link) -> None:
        while not self._stopping.is_set():
            try:
                self._hear(link, LISTEN_SECONDS)
            except psycopg.Error as error:
                self.on_failure(error)
                self._stopping.wait(random.uniform(0.05, LONGEST_BACKOFF))

    def _confirmed(self, worker: int, sent: float, *, is_alive: bool) -> None:
        if worker not in self._heard:
            return  # retired meanwhile

        if worker in self._left:
            # Its jobs were dropped, so it cannot be lost again.
            self._heard[worker] = sent
            self._silent.discard(worker)
            return

        if not is_alive:
            self._lost.add(worker)
        elif worker not in self._lost:
            self._heard[worker] = sent

        if worker in self._silent or not is_alive:
            self._silent.discard(worker)
            self.on_answer()
