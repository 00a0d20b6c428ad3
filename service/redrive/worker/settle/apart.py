"""Settling in parts: a job that cannot be settled now delays no other.

A user's transaction may hold a job's row for as long as it likes. A user's constraint
may refuse a row. An error of the database may concern one table only. So a batch that
failed is settled in parts, until the jobs that made it fail are found. These are set
aside and tried again.
"""

import logging
import random
import time
from collections.abc import Callable, Sequence

import psycopg

from redrive.database.connections.link import Link
from redrive.database.connections.trouble import Trouble, refusal, trouble
from redrive.worker import store
from redrive.worker.claim.identity import Identity
from redrive.worker.held import ClaimedJob
from redrive.worker.protocol import Report
from redrive.worker.round_trip import exchange
from redrive.worker.settle.settlements import (
    PendingSettlements,
    SettlementBatch,
    storable_forms,
)
from redrive.worker.telemetry import Telemetry

logger = logging.getLogger("redrive.worker")

SEARCH_SECONDS = 0.5
"""Longest search for the jobs that fail. After it, the rest is set aside with them."""

FIRST_PAUSE, LONGEST_PAUSE = 0.3, 2.0
"""Seconds until jobs set aside are tried again: at first, and at most."""

MAX_ASIDE = 200
"""With this many jobs set aside, no more are claimed."""


class Apart:
    """Settles the batches that failed as a whole. `on_refused` as for `Exchange`."""

    def __init__(
        self,
        link: Link,
        identity: Identity,
        pending: PendingSettlements,
        telemetry: Telemetry,
        on_refused: Callable[[ClaimedJob, psycopg.Error], None],
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
        """True if too many jobs are set aside to claim more."""
        return self._pending.aside >= MAX_ASIDE

    @property
    def due_at(self) -> float:
        """Return when to retry what was set aside; monotonic."""
        if self._pending.aside:
            return self._retry_at
        return float("inf")

    def abandoned(self, held: ClaimedJob) -> None:
        """Note that a job's handler is dead: its open transaction may be ended."""
        self._abandoned.add(held.key)

    def is_due(self, now: float) -> bool:
        """Return True if it is time to retry."""
        return now >= self.due_at

    def retry(self, now: float) -> None:
        """Retry what was set aside, if it is time."""
        if self.is_due(now):
            self.settle(self._pending.take_aside())

    def settle(self, batch: SettlementBatch) -> None:
        """Settle all of a batch that can be settled, and set the rest aside."""
        parts = [batch]
        give_up_at = time.monotonic() + SEARCH_SECONDS
        is_any_settled = False

        while parts:
            part = parts.pop()
            if time.monotonic() > give_up_at:
                self._pending.set_aside(part)
                continue

            try:
                is_any_settled |= self._settle_free(part)
            except psycopg.Error as error:
                self._telemetry.database_error("settle", error)
                if trouble(error) is Trouble.LOST:
                    # The other parts would fail alike.
                    give_up_at = 0.0

                parts += self._failed(part, error)

        self._plan_retry(is_any_settled=is_any_settled)

    def _failed(
        self, part: SettlementBatch, error: psycopg.Error
    ) -> Sequence[SettlementBatch]:
        """Act on a part that failed. Returns the parts to try next, in reverse."""
        if trouble(error) is Trouble.LOST:
            self._set_aside(part, error)
            return ()

        # Look for the job that fails in each half.
        if len(part) > 1:
            first, second = part.halves()
            return second, first

        if trouble(error) is Trouble.DATA:
            self._refused(part, error)
        else:
            self._set_aside(part, error)

        return ()

    def _set_aside(self, part: SettlementBatch, error: psycopg.Error) -> None:
        """Set a failed part aside. If the link was lost, it may have succeeded."""
        is_lost = trouble(error) is Trouble.LOST
        if is_lost:
            self._identity.leave()
        self._pending.set_aside(part, outcome_unknown=is_lost)

    def _plan_retry(self, *, is_any_settled: bool) -> None:
        """Choose when to retry what was set aside."""
        longer = min(2 * self._pause, LONGEST_PAUSE)
        self._pause = FIRST_PAUSE if is_any_settled else longer

        jitter = random.uniform(0.8, 1.2)
        self._retry_at = time.monotonic() + self._pause * jitter

    def _settle_free(self, part: SettlementBatch) -> bool:
        """Settle the jobs that no session has locked, and set the others aside.

        Returns True if any job was settled. Raises psycopg.Error.
        """
        with self._link.use() as conn, conn.transaction():
            # `busy` locks the free jobs, so that no session can lock them in between.
            jobs = sorted(held.id for held in part.held())
            locked, free = part.parted(store.busy(conn, jobs))
            claims = free.claims()

            answer = exchange(conn, free.columns(claims, self._identity.me), None)
            self._end_left_open(conn, locked)

        self._abandoned -= _keys(free)
        self._pending.set_aside(locked)
        self._identity.clear_suspicion(
            self._pending.done(free, claims, answer.completed, answer.settled)
        )

        return bool(free)

    def _end_left_open(self, conn: store.Connection, locked: SettlementBatch) -> None:
        """End the transactions that dead handlers left open. Raises psycopg.Error."""
        left = self._abandoned & _keys(locked)
        ended = store.end_left_open(conn, sorted(left)) if left else ()

        if ended:
            logger.info(
                "ended transactions of dead runners", extra={"jobs": len(ended)}
            )

    def _refused(self, part: SettlementBatch, error: psycopg.Error) -> None:
        """Settle one job in another way: the database does not accept this one."""
        for held in part.completions:
            self._on_refused(held, error)
        for report, held in part.reports:
            self._settle_storable(report, held, refusal(error))

    def _settle_storable(self, report: Report, held: ClaimedJob, reason: str) -> None:
        """Settle a job with the first form of its report that can be stored."""
        part = SettlementBatch([], [(report, held)])
        for form in storable_forms(held, report, reason):
            try:
                self._settle_free(SettlementBatch([], [(form, held)]))
            except psycopg.Error as error:
                self._telemetry.database_error("settle", error)
                # Another form helps only if the database refused the data.
                if trouble(error) is Trouble.DATA:
                    continue

                self._set_aside(part, error)

            return

        self._pending.set_aside(part)


def _keys(batch: SettlementBatch) -> set[tuple[int, int]]:
    return {held.key for held in batch.held()}
