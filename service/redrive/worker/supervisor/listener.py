"""The thread that hears NOTIFY: a hint that something may be due.

Polling is the truth and never stops. A LISTEN connection can be lost without a sign, so it makes a
round trip every few seconds. Through a pooler nothing is listened to: the session is shared, and it
costs latency only.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psycopg

from redrive.database.connect import Link

logger = logging.getLogger("redrive.worker")

ROUND_TRIP_SECONDS = 10.0
ALL_SLOTS = -1
"""Has every bit."""

_WHO_AND_WHAT = (
    "select pg_backend_pid(),"
    " (select bit_or(redrive.wake_slot_v1(queue)) from unnest(%s::text[]) as q(queue))"
)


@dataclass
class Listener:
    """Calls `wake` when the database says that jobs came to one of these queues; None = to any."""

    link: Link
    wake: Callable[[], None]
    queues: Sequence[str] | None = None
    _slots: int = field(default=ALL_SLOTS, init=False)
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
                if not self._listen():
                    logger.info("not listening: the session is a pooler's; polling goes on")
                    self.link.close()
                    return
                while not self._stopping.is_set():
                    self._hear()
            except psycopg.Error:
                # which errors leave no time to wait until
                soon = random.uniform(0.1, 0.5)
                self._stopping.wait(max(soon, self.link.retry_at - time.monotonic()))

    def _listen(self) -> bool:
        """Ask to be told, where the session is our own. Returns whether it is."""
        with self.link.use() as conn:
            # A pooler's clients are told a process that is none of the server's.
            queues = None if self.queues is None else list(self.queues)
            pid, slots = conn.execute(_WHO_AND_WHAT, (queues,)).fetchone() or (0, None)
            if pid != conn.info.backend_pid:
                return False
            self._slots = ALL_SLOTS if slots is None else slots
            conn.execute("listen redrive")
            self._healthy_at = time.monotonic()
            return True

    def _hear(self) -> None:
        with self.link.use(bound=ROUND_TRIP_SECONDS + 15) as conn:
            for heard in conn.notifies(timeout=ROUND_TRIP_SECONDS, stop_after=1):
                if int(heard.payload or ALL_SLOTS) & self._slots:
                    self.wake()
            if time.monotonic() - self._healthy_at > ROUND_TRIP_SECONDS:
                conn.execute("select 1")
                self._healthy_at = time.monotonic()
