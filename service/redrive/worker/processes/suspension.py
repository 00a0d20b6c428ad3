"""Suspension of all runners while nobody knows who owns their jobs."""

import threading
import time
from collections import deque

from redrive.worker.processes.pool import RunnerPool

MAX_SUSPENSIONS = 100
"""How many suspensions are remembered, so that they count towards no timeout."""


class Suspension:
    """Suspends the runners of one worker. Any thread may call its methods."""

    def __init__(self, pool: RunnerPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._began_at: float | None = None
        self._past: deque[tuple[float, float]] = deque(maxlen=MAX_SUSPENSIONS)

    @property
    def is_on(self) -> bool:
        """True until the database says who owns the jobs of the runners."""
        return self._began_at is not None

    def begin(self) -> None:
        """Suspend every ready runner until `end`.

        A runner that is not ready has no jobs. It must not be suspended before it has
        arranged to die with the supervisor.
        """
        with self._lock:
            if self._began_at is None:
                self._began_at = time.monotonic()
            self._suspend_ready()

    def keep_up(self, now: float, longest: float) -> None:
        """Suspend runners that became ready, or that somebody else resumed.

        After `longest` seconds, kill the runners that have jobs: a suspended handler
        keeps its locks, transactions and connections.
        """
        with self._lock:
            if self._began_at is None:
                return
            self._suspend_ready()
            if now - self._began_at > longest:
                self._kill_busy()

    def end(self) -> None:
        """Resume every runner."""
        with self._lock:
            if self._began_at is None:
                return

            now = time.monotonic()
            self._past.append((self._began_at, now))

            for runner in self._pool.runners:
                runner.resume(now - self._began_at)

            # Do this last. Until then, no deadline is enforced.
            self._began_at = None

    def seconds_since(self, since_ns: int) -> float:
        """Return for how many seconds nothing ran since this monotonic instant."""
        since = since_ns / 1e9
        total = 0.0

        for begin, end in self._past:
            total += max(0.0, end - max(begin, since))

        return total

    def _suspend_ready(self) -> None:
        for runner in list(self._pool.runners):
            if runner.ready:
                runner.process.suspend()

    def _kill_busy(self) -> None:
        for runner in list(self._pool.runners):
            if runner.held:
                runner.give_up()
