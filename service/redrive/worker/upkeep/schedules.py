"""Schedules that this worker's code declares, and the firing of due schedules.

The database says what time it is and which schedules are due. This file computes which
slots these are, and when the next one comes. The database accepts that from one worker.
The clock of this process plays no part.
"""

import logging
from collections.abc import Sequence

import psycopg

from redrive.rules.slots import Declaration, Plan, next_slot, plan
from redrive.worker import store
from redrive.worker.store import DueSchedule

logger = logging.getLogger("redrive.schedules")


class Schedules:
    """Schedules of this worker; False if it declares none. Then it fires none.

    `version` is the application's.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._declared: Sequence[Declaration] = ()
        self._told: set[int] = set()  # identities that have said so, or are lost

    def __bool__(self) -> bool:
        return bool(self._declared)

    def learn(self, declared: Sequence[Declaration]) -> bool:
        """Learn the schedules of a runner. Returns True if they have changed."""
        are_others = bool(self._declared) and list(self._declared) != list(declared)
        self._declared = declared
        return are_others

    def has_told(self, identities: Sequence[int]) -> bool:
        """Return True if each of these identities has declared them."""
        return self._told.issuperset(identities)

    def declare(self, conn: store.Connection, identities: Sequence[int]) -> None:
        """Declare them for each identity that has not done it. Raises psycopg.Error."""
        own = set(identities)
        self._told &= own

        for worker in own - self._told:
            store.declare_schedules(conn, worker, self._version, self._declared)
            self._told.add(worker)

    def fire(self, conn: store.Connection) -> None:
        """Enqueue the jobs of all slots that have come.

        If a schedule's jobs are refused, the others are fired all the same. Raises
        psycopg.Error after the last one.
        """
        refused: psycopg.Error | None = None
        for due in store.due_schedules(conn):
            try:
                _advance(conn, due)
            except psycopg.Error as error:
                # Without a connection, no other schedule can be fired.
                if conn.closed:
                    raise

                refused = error
            except ValueError:
                # Declared by a worker of another version, or with other time zones: it
                # can do it.
                logger.info(
                    "schedule cannot be read here", extra={"schedule": due.name}
                )

        if refused is not None:
            raise refused


def _advance(conn: store.Connection, due: DueSchedule) -> None:
    """Fire one schedule, or compute when it is due. The first worker succeeds."""
    slots, next_at, left_out = _planned(due)
    jobs = store.fire_schedule(conn, due, slots, next_at)
    if jobs is None:
        return

    fields = {"schedule": due.name, "jobs": len(jobs), "since": str(due.next_at)}

    if left_out:
        logger.warning("schedule left out missed slots", extra=fields)
    elif jobs:
        logger.info("schedule fired", extra=fields)


def _planned(due: DueSchedule) -> Plan:
    if due.next_at is None:
        return Plan(
            slots=[], next_at=next_slot(due.cron, due.tz, due.after), left_out=False
        )

    if due.next_at > due.as_of:  # only what is declared has changed
        return Plan(slots=[], next_at=due.next_at, left_out=False)

    return plan(due.cron, due.tz, due.catch_up, due.next_at, due.as_of)
