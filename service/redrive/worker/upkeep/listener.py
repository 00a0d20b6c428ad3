"""Listener for NOTIFY on a shared connection: a hint that jobs may be due.

Polling never stops, so a lost notification costs a few seconds of latency only. A
LISTEN connection can be lost without a sign; the next statement on it finds that.
Through a pooler the session is shared, so the worker does not listen.

Every user of the database can notify as often as they like. So a payload that is not a
number counts as nothing. A flood wakes a worker no more often than REST_SECONDS allow,
and one of many workers no more often than it would poll.
"""

import logging
import re
import select
import time
from collections.abc import Sequence

from redrive.worker import store

logger = logging.getLogger("redrive.worker")

REST_SECONDS = 0.01
"""Shortest time between two wake-ups. Our own functions notify less often."""

_SLOTS = re.compile(r"[0-9]{1,5}")
ALL_SLOTS = -1
"""Mask with every bit."""

_WHO_AND_WHAT = (
    "select pg_backend_pid(),"
    " (select bit_or(redrive.wake_slot_v1(queue)) from unnest(%s::text[]) as q(queue))"
)


class Listener:
    """Listens for jobs in these queues; None = in any queue."""

    def __init__(self, queues: Sequence[str] | None) -> None:
        self._queues = queues
        self._slots = ALL_SLOTS
        self._conn: store.Connection | None = None
        self._is_shared = False
        self._heard_at = float("-inf")

    @property
    def is_deaf(self) -> bool:
        """True if a pooler owns the session, so that no notification arrives."""
        return self._is_shared

    def hear(
        self,
        conn: store.Connection,
        seconds: float,
        rest: float = 0.0,
        *,
        ears: bool = True,
    ) -> bool:
        """Wait up to `seconds` for jobs. Returns True if some came.

        Raises psycopg.Error. `rest`: how long after one notification another has no
        use. Without `ears`, it stops listening and does not wait.
        """
        if not ears:
            self._stop(conn)
            return False

        if conn is not self._conn:
            self._listen(conn)
        if self._is_shared:
            return False

        until = time.monotonic() + seconds
        rested_at = self._heard_at + max(REST_SECONDS, rest)
        time.sleep(max(0.0, min(until, rested_at) - time.monotonic()))

        # All notifications that arrived meanwhile are one wake-up.
        left = max(0.0, until - time.monotonic())
        heard = _heard(conn) or (_wait(conn, left) and _arrived(conn))
        if not heard:
            return False

        self._heard_at = time.monotonic()
        return any(slots & self._slots for slots in heard)

    def _listen(self, conn: store.Connection) -> None:
        """Listen, if the session is not shared."""
        queues = None if self._queues is None else list(self._queues)

        pid, slots = conn.execute(_WHO_AND_WHAT, (queues,)).fetchone() or (0, None)
        self._slots = ALL_SLOTS if slots is None else slots

        # A pooler tells its clients a process that is not the server's.
        was_shared = self._is_shared
        self._is_shared = pid != conn.info.backend_pid

        if not self._is_shared:
            conn.execute("listen redrive")
        elif not was_shared:
            logger.info("not listening: the session is a pooler's; polling instead")

        self._conn = conn

    def _stop(self, conn: store.Connection) -> None:
        if conn is self._conn and not self._is_shared:
            conn.execute("unlisten redrive")
        self._conn = None


def _heard(conn: store.Connection) -> list[int]:
    """Return the queues of each notification that has arrived."""
    return [_slots(one.payload) for one in conn.notifies(timeout=0, stop_after=1)]


def _arrived(conn: store.Connection) -> list[int]:
    """Return the same for what can be read now.

    It does not wait as psycopg does, for a tenth of a millisecond.
    """
    connection = conn.pgconn
    connection.consume_input()
    found = iter(connection.notifies, None)
    return [_slots(one.extra.decode()) for one in found]


def _wait(conn: store.Connection, seconds: float) -> bool:
    """Wait until there is something to read; psycopg looks ten times a second."""
    poll = select.poll()
    poll.register(conn.fileno(), select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _slots(payload: str) -> int:
    """Return the queues of a notification as bits; all bits if it names none."""
    if not payload:
        return ALL_SLOTS
    return int(payload) if _SLOTS.fullmatch(payload) else 0
