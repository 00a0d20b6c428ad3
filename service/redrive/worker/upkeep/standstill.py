"""Standstill of a worker: jobs are due for it, and none of its exchanges succeeds.

It also stands still if a session keeps the lanes locked that its claims wait for.

The loop may be stuck in the very statement that does not end. So the heartbeat's thread
asks the database if jobs are due, but only while exchanges fail.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import psycopg

from redrive.database.connections.link import Link
from redrive.jobs.standing import blockers
from redrive.observability.health import Remark
from redrive.worker import store

LEAST_SECONDS = 30.0
"""Shortest time of failing exchanges that counts as a standstill."""

LOOK_SHARE = 2 / 3
"""Share of that time after which it looks for due jobs.

An idle worker among many others polls every 15 seconds. It need not look.
"""

LOOK_SECONDS = 5.0
"""Time between two looks for due jobs."""


class _Due(Enum):
    """Result of the last look, in the words of /readyz; an empty value is no fault."""

    NOTHING = ""
    JOBS = "jobs are due"
    UNKNOWN = "somebody has locked a table, so nobody can see whether jobs are due"


@dataclass
class Standstill:
    """Watches one worker. `ttl` is in seconds.

    `age` returns for how many seconds no exchange has succeeded, and `waited` for how many
    its claims have waited for others. `kinds` and `queues` (None = all) say which jobs are
    for this worker.
    """

    ttl: float
    queues: Sequence[str] | None
    kinds: Callable[[], Sequence[str]]
    age: Callable[[float], float]
    waited: Callable[[float], float]
    _blockers: Sequence[str] = field(default=(), init=False)
    _due: _Due = field(default=_Due.NOTHING, init=False)
    _look_at: float = field(default=0.0, init=False)

    @property
    def limit(self) -> float:
        """Seconds for which exchanges may fail."""
        return max(LEAST_SECONDS, self.ttl)

    def look(self, link: Link, bound: float) -> None:
        """Look for due jobs, if exchanges have failed for a while.

        Raises psycopg.Error, except if a table is locked: then nobody knows.
        """
        now = time.monotonic()
        if max(self.age(now), self.waited(now)) < self.limit * LOOK_SHARE:
            self._due = _Due.NOTHING
            return
        if now < self._look_at:
            return

        self._look_at = now + LOOK_SECONDS
        with link.use(bound) as conn:
            try:
                is_any = store.is_any_due(conn, self.queues, self.kinds())
            except psycopg.errors.LockNotAvailable:
                self._due = _Due.UNKNOWN
            else:
                self._due = _Due.JOBS if is_any else _Due.NOTHING
            self._blockers = [blocker.text for blocker in blockers(conn)[:1]]

    def fault(self, now: float) -> str | None:
        """Return what is wrong, or None. Any thread may call it.

        It is only a remark if claims wait and no session was seen that stops them: other
        workers may be in the way.
        """
        age, waited = self.age(now), self.waited(now)
        if self._due is _Due.NOTHING or max(age, waited) < self.limit:
            return None

        text = f"claims have waited for {waited:.0f} s for a lane"
        if age >= self.limit:
            text = f"none has succeeded for {age:.0f} s, and {self._due.value}"
        elif not self._blockers:
            return Remark(text)

        return "; ".join([text, *self._blockers])
