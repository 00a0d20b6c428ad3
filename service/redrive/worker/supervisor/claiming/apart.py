"""Settling apart: what cannot be settled now keeps nothing else from being settled.

A user's transaction may hold the row of a job for as long as it likes, a constraint of
a user may refuse one, and an error of the database may concern one table only. So a
batch that failed is settled in parts, until the jobs are found that it failed for.
These are set aside, and tried again.
"""

import logging
import random
import time
from collections.abc import Callable

import psycopg

from redrive.database.link import Link
from redrive.database.trouble import Trouble, refusal, trouble
from redrive.worker import store
from redrive.worker.exchange import exchange
from redrive.worker.supervisor.claiming.identity import Identity
from redrive.worker.supervisor.claiming.settlements import (
    PendingSettlements,
    SettlementBatch,
    storable_forms,
)
from redrive.worker.supervisor.held import Held
from redrive.worker.supervisor.telemetry import Telemetry

logger = logging.getLogger("redrive.worker")

SEARCH_SECONDS = 0.5
"""How long one search for the jobs that fail may take; the rest is set aside with
them.
"""

FIRST_PAUSE, LONGEST_PAUSE = 0.3, 2.0
"""Seconds until what was set aside is tried again, and at most, while nothing comes of
it.
"""

MAX_ASIDE = 200
"""Jobs set aside, up to which more are claimed."""


class Apart:
    """Settles what does not go with the others. `on_refused` as for `Exchange`."""

    def __init__(
        self,
        link: Link,
        identity: Identity,
        pending: PendingSettlements,
        telemetry: Telemetry,
        on_refused: Callable[[Held, psycopg.Error], None],
    ) -> None:
        self._link = link
        self._identity = identity
        self._pending = pending
        self._telemetry = telemetry
        self._on_refused = on_refused
        self._abandoned: set[tuple[int, int]] = set()
        self._pause = FIRST_PAUSE
        self._retry_at = 0.0

    @property
    def is_full(self) -> bool:
        """True if so many jobs are set aside that no more are claimed."""
        return self._pending.aside >= MAX_ASIDE

    @property
    def due_at(self) -> float:
        """Return when to retry what was set aside; monotonic."""
        return self._retry_at if self._pending.aside else float("inf")

    def abandoned(self, held: Held) -> None:
        """The handler of this job is dead. A transaction that it left open is ours to
        end.
        """
        self._abandoned.add((held.id, held.deliveries))

    def is_due(self, now: float) -> bool:
        """Return True if it is time to retry."""
        return now >= self.due_at

    def retry(self, now: float) -> None:
        """Try again what was set aside, if it is time."""
        if self.is_due(now):
            self.settle(self._pending.take_aside())

    def settle(self, batch: SettlementBatch) -> None:
        """Settle all of a batch that can be settled, and set the rest aside."""
        parts, until, is_any_settled = [batch], time.monotonic() + SEARCH_SECONDS, False
        while parts:
            part = parts.pop()
            if time.monotonic() > until:
                self._pending.set_aside(part)
                continue
            try:
                is_any_settled |= self._settle_free(part)
            except psycopg.Error as error:
                self._telemetry.database_error("settle", error)
                if trouble(error) is Trouble.LOST:
                    self._identity.leave()
                    self._pending.set_aside(part, may_be_done=True)
                    until = 0.0
                elif len(part) > 1:
                    parts += reversed(part.halves())
                elif trouble(error) is Trouble.DATA:
                    self._refused(part, error)
                else:
                    self._pending.set_aside(part)
        self._pause = (
            FIRST_PAUSE if is_any_settled else min(2 * self._pause, LONGEST_PAUSE)
        )
        self._retry_at = time.monotonic() + self._pause * random.uniform(0.8, 1.2)

    def _settle_free(self, part: SettlementBatch) -> bool:
        """Settle what nobody has locked, and set the rest aside. Raises psycopg.Error.

        Returns whether anything was settled.
        """
        with self._link.use() as conn, conn.transaction():
            busy = store.busy(conn, sorted(held.id for held in part.held()))
            locked, free = part.parted(busy)
            claims = free.claims()
            answer = exchange(conn, free.columns(claims), None)
            self._end_left_open(conn, locked)
        self._abandoned -= {(held.id, held.deliveries) for held in free.held()}
        self._pending.set_aside(locked)
        stale = self._pending.done(free, claims, answer.completed, answer.settled)
        self._identity.acquit(stale)
        return bool(free)

    def _end_left_open(self, conn: store.Connection, locked: SettlementBatch) -> None:
        """End the transactions that dead handlers left open. Raises psycopg.Error."""
        left = self._abandoned & {(held.id, held.deliveries) for held in locked.held()}
        if left and (ended := store.end_left_open(conn, sorted(left))):
            logger.info(
                "ended transactions of dead runners", extra={"jobs": len(ended)}
            )

    def _refused(self, part: SettlementBatch, error: psycopg.Error) -> None:
        """The database does not accept one settlement: say something else in its
        place.
        """
        for held in part.completions:
            self._on_refused(held, error)
        for report, held in part.reports:
            for form in storable_forms(held, report, refusal(error)):
                try:
                    self._settle_free(SettlementBatch([], [(form, held)]))
                except psycopg.Error as again:
                    self._telemetry.database_error("settle", again)
                    if trouble(again) is Trouble.DATA:
                        continue
                    self._pending.set_aside(part, may_be_done=True)
                break
            else:
                self._pending.set_aside(part)
