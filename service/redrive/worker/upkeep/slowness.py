"""Slowness of a worker's exchanges, and the snapshot that may be its cause."""

import time
from dataclasses import dataclass, field

import psycopg

from redrive.database.connections.link import Link
from redrive.database.transactions import OldTransaction, oldest_transaction
from redrive.observability.health import Remark
from redrive.rules.pace import Pace, Slow, slow_text

LOOK_SECONDS = 60.0
"""Time between two looks for old transactions."""

OLD_SECONDS = 1800.0
"""Age of a transaction that is told in any case; the alert has the same."""


@dataclass
class Slowness:
    """Watches one worker. Any thread may call its methods."""

    pace: Pace = field(default_factory=Pace)
    _oldest: OldTransaction | None = field(default=None, init=False)
    _look_at: float = field(
        default_factory=lambda: time.monotonic() + LOOK_SECONDS, init=False
    )

    def look(self, link: Link, bound: float) -> None:
        """Look for the oldest transaction, once a minute.

        Raises psycopg.Error, except if this login may not look.
        """
        now = time.monotonic()
        if now < self._look_at:
            return

        self._look_at = now + LOOK_SECONDS
        try:
            with link.use(bound) as conn:
                self._oldest = oldest_transaction(conn)
        except psycopg.errors.InsufficientPrivilege:
            self._oldest = None

    def slow(self) -> Slow | None:
        """Return how slow the exchanges are; None: they are not slow."""
        return self.pace.slow(time.monotonic())

    def factor(self) -> float:
        """Return how often the usual duration they take; 1: they are not slow."""
        slow = self.slow()
        return 1.0 if slow is None else slow.factor

    def remark(self) -> Remark | None:
        """Return what /readyz says about it. A restart would not help, so it is no fault."""
        slow, oldest = self.slow(), self._oldest
        parts: list[str] = []

        if slow is not None:
            parts.append(slow_text(slow.seconds, slow.factor))
        if oldest is not None and (slow or oldest.seconds > OLD_SECONDS):
            parts.append(f"{oldest.text} keeps dead rows")
        if not parts:
            return None

        return Remark("; ".join(parts))
