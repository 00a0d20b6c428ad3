"""Identities of the worker: the current one claims jobs, others are left behind.

An identity is left behind if its last claim may have succeeded unseen. Nothing more is
claimed for it. Its unknown jobs are given back at once. Its heartbeats continue while a
known job of it is not settled.

An identity may be declared lost through no fault of its jobs: the process was stopped
or cut off. If this worker is still there, its jobs killed no process, and the crashes
they were charged with are refunded.
"""

import logging
import time
from collections.abc import Callable, Iterable

from redrive.database.connections.link import Link
from redrive.worker import store
from redrive.worker.held import ClaimedJob
from redrive.worker.upkeep.heartbeat import Heartbeat

logger = logging.getLogger("redrive.worker")


class Identity:
    """Identities of a worker. `me` is None before the first claim and after `leave`."""

    def __init__(
        self, describe: Callable[[], store.Registration], heartbeat: Heartbeat
    ) -> None:
        self.me: int | None = None
        self.left: set[int] = set()
        # Identities left behind whose unknown jobs have been given back.
        self._closed: set[int] = set()
        # Jobs by identity that are not to be blamed for a crash.
        self._innocent: dict[int, list[tuple[int, int]]] = {}

        self._describe = describe
        self._heartbeat = heartbeat

    def take(self, conn: store.Connection) -> int:
        """Return the identity to claim for, registered if needed. Raises psycopg.Error."""
        if self.me is None:
            # Count from before the call: the server may run it at once.
            sent = time.monotonic()
            self.me = store.register(conn, self._describe())
            self._heartbeat.heard(self.me, sent)
            logger.info("registered", extra={"worker": self.me})

        return self.me

    @property
    def may_claim(self) -> bool:
        """True if this worker may claim now.

        Identities left behind first give back their unknown jobs. While the database
        refuses that, each failed claim would leave one more behind.
        """
        return self.me is not None or self.left <= self._closed

    def leave(self) -> None:
        """Leave the identity behind: the next claim needs a new one."""
        if self.me is not None:
            self.left.add(self.me)
            self.me = None

    @property
    def is_lost(self) -> bool:
        """True if any identity may have been declared lost."""
        return bool(self._heartbeat.lost())

    def leave_lost(self) -> set[int]:
        """Leave the identities behind that may be declared lost. Returns them."""
        lost = self._heartbeat.lost()
        if self.me in lost:
            self.me = None

        self.left |= lost
        self._heartbeat.leave(lost)

        return lost

    def clear_suspicion(self, jobs: Iterable[ClaimedJob]) -> None:
        """Note that these jobs of lost identities have killed no process."""
        for held in jobs:
            self._innocent.setdefault(held.worker, []).append(
                (held.id, held.deliveries)
            )

    def retire(self, link: Link, known: Iterable[ClaimedJob]) -> None:
        """Give back the jobs of identities left behind, except the `known` ones.

        Raises psycopg.Error.
        """
        kept: dict[int, list[int]] = {worker: [] for worker in self.left}
        for held in known:
            if held.worker in kept:
                kept[held.worker].append(held.id)

        for worker, jobs in kept.items():
            if jobs and worker in self._closed:
                # Its unknown jobs were given back. Its known ones are not settled yet.
                continue

            with link.use() as conn:
                released, is_over = store.retire(conn, worker, jobs)
                if is_over and not jobs:  # from now on no worker charges them
                    self._refund_crashes(conn, worker)

            if jobs or not is_over:
                self._closed.add(worker)
            else:
                self._forget(worker)

            if released:
                extra = {"worker": worker, "jobs": released}
                logger.info("released jobs of an identity left behind", extra=extra)

    def _forget(self, worker: int) -> None:
        """Forget an identity left behind that has no jobs left."""
        self._closed.discard(worker)
        self.left.discard(worker)
        self._heartbeat.forget(worker)

    def _refund_crashes(self, conn: store.Connection, worker: int) -> None:
        if worker not in self._innocent:
            return

        refunded = store.forgive(conn, self._innocent[worker])
        del self._innocent[worker]

        if refunded:
            extra = {"worker": worker, "jobs": len(refunded)}
            logger.info("took back what jobs were charged for our silence", extra=extra)
