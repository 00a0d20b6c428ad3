"""The thread that hears NOTIFY: a hint that something may be due.

Polling is the truth and never stops. A LISTEN connection can be lost without a sign, so it makes a
round trip every few seconds; through PgBouncer in transaction mode it hears nothing, and that costs
latency only.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from redrive.database.connect import Link

ROUND_TRIP_SECONDS = 10.0


@dataclass
class Listener:
    """Calls `wake` when the database says that jobs were enqueued."""

    link: Link
    wake: Callable[[], None]
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _healthy_at: float = field(default=0.0, init=False)

    def start(self) -> None:
        """Listen until stopped, in a thread of its own."""
        threading.Thread(target=self._run, name="listener", daemon=True).start()

    def stop(self) -> None:
        """Listen no more."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self.link.use() as conn:
                    conn.execute("listen redrive")
                    self._healthy_at = time.monotonic()
                while not self._stopping.is_set():
                    self._hear()
            except psycopg.Error:
                self._stopping.wait(random.uniform(0.2, 2.0))

    def _hear(self) -> None:
        with self.link.use(bound=ROUND_TRIP_SECONDS + 15) as conn:
            for _ in conn.notifies(timeout=ROUND_TRIP_SECONDS, stop_after=1):
                self.wake()
            if time.monotonic() - self._healthy_at > ROUND_TRIP_SECONDS:
                conn.execute("select 1")
                self._healthy_at = time.monotonic()
