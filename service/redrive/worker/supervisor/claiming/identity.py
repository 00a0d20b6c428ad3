"""Identities of the worker: the one that claims jobs, and those it left behind.

An identity is left behind when its last claim may have gone through unseen: nothing
    more is claimed
for it, what nobody knows of is given back at once, and it beats on while anything known
of it is unsettled.

One that was declared lost may be so for no fault of its jobs: the process was stopped,
    or cut off.
That we are here to say so is the proof, and what its jobs were charged is taken back.
"""

import logging
import time
from collections.abc import Callable, Iterable

from redrive.database.link import Link
from redrive.worker import store
from redrive.worker.supervisor.held import Held
from redrive.worker.supervisor.upkeep.heartbeat import Heartbeat

logger = logging.getLogger("redrive.worker")


class Identity:
    """The identities of one worker; `me` is None before the first claim and after
    `leave`.
    """

    def __init__(
        self, describe: Callable[[], store.Registration], heartbeat: Heartbeat
    ) -> None:
        self.me: int | None = None
        self.left: set[int] = set()
        self._closed: set[int] = (
            set()
        )  # of these, what nobody knew of has been given back
        self._innocent: dict[int, list[tuple[int, int]]] = {}
        self._describe = describe
        self._heartbeat = heartbeat

    def take(self, conn: store.Connection) -> int:
        """The identity to claim for, a new one if need be. Raises psycopg.Error."""
        if self.me is None:
            sent = time.monotonic()
            self.me = store.register(conn, self._describe())
            self._heartbeat.heard(self.me, sent)
            logger.info("registered", extra={"worker": self.me})
        return self.me

    @property
    def may_claim(self) -> bool:
        """Whether one may claim now.

        Not before those left behind have given back what nobody knows of. While the
        database refuses that, each claim that fails would leave one more behind.
        """
        return self.me is not None or self.left <= self._closed

    def leave(self) -> None:
        """Come back as somebody new."""
        if self.me is not None:
            self.left.add(self.me)
            self.me = None

    @property
    def is_lost(self) -> bool:
        """True if any identity may have been declared lost."""
        return bool(self._heartbeat.lost())

    def leave_lost(self) -> set[int]:
        """Leave those behind that others may have declared lost. Returns them."""
        lost = self._heartbeat.lost()
        if self.me in lost:
            self.me = None
        self.left |= lost
        self._heartbeat.leave(lost)
        return lost

    def acquit(self, jobs: Iterable[Held]) -> None:
        """Jobs of lost identities have killed no process of ours."""
        for held in jobs:
            self._innocent.setdefault(held.worker, []).append(
                (held.id, held.deliveries)
            )

    def retire(self, link: Link, known: Iterable[Held]) -> None:
        """Give back what was claimed for those left behind, except `known` jobs.

        Raises psycopg.Error.
        """
        kept: dict[int, list[int]] = {worker: [] for worker in self.left}
        for held in known:
            if held.worker in kept:
                kept[held.worker].append(held.id)
        for worker, jobs in kept.items():
            if jobs and worker in self._closed:
                continue
            with link.use() as conn:
                released, is_over = store.retire(conn, worker, jobs)
                if is_over and not jobs:  # from here on nobody charges them
                    self._forgive(conn, worker)
            if jobs or not is_over:
                self._closed.add(worker)
            else:
                self._closed.discard(worker)
                self.left.discard(worker)
                self._heartbeat.forget(worker)
            if released:
                logger.info(
                    "released jobs of an identity left behind",
                    extra={"worker": worker, "jobs": released},
                )

    def _forgive(self, conn: store.Connection, worker: int) -> None:
        if worker not in self._innocent:
            return
        forgiven = store.forgive(conn, self._innocent[worker])
        del self._innocent[worker]
        if forgiven:
            told = {"worker": worker, "jobs": len(forgiven)}
            logger.info("took back what jobs were charged for our silence", extra=told)
