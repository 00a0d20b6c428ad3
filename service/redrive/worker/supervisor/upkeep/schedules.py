"""Schedules: what this worker's code declares, and the firing of what is due, whoever
declared it.

The database says what time it is and what is due; here is worked out which slots these
are, and when the next one comes; the database takes that from one worker. This
process's clock has no part in it.
"""

import logging
from collections.abc import Sequence

import psycopg

from redrive.rules.scheduling.slots import Declaration, Plan, next_slot, plan
from redrive.worker import store
from redrive.worker.store import DueSchedule

logger = logging.getLogger("redrive.schedules")


class Schedules:
    """Schedules that this worker declares; false while there are none, and then it
    fires none.

    `version` is the application's.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._declared: Sequence[Declaration] = ()
        self._told: set[int] = set()  # identities that have said so, or are lost

    def __bool__(self) -> bool:
        return bool(self._declared)

    def learn(self, declared: Sequence[Declaration]) -> bool:
        """Take what a runner said. Returns whether it is something else than before."""
        are_others = bool(self._declared) and list(self._declared) != list(declared)
        self._declared = declared
        return are_others

    def declare(self, conn: store.Connection, identities: Sequence[int]) -> None:
        """Say so in the name of each identity that has not. Raises psycopg.Error."""
        self._told &= set(identities)
        for worker in set(identities) - self._told:
            store.declare_schedules(conn, worker, self._version, self._declared)
            self._told.add(worker)

    def fire(self, conn: store.Connection) -> None:
        """Enqueue the jobs of all slots that have come. Raises psycopg.Error, when all
        had a try.

        One whose jobs are refused keeps no other one waiting.
        """
        refused: psycopg.Error | None = None
        for due in store.due_schedules(conn):
            try:
                _advance(conn, due)
            except psycopg.Error as error:
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
    """Fire one schedule, or work out when it is due; whoever comes first does it."""
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
        return Plan([], next_slot(due.cron, due.tz, due.after), left_out=False)
    if due.next_at > due.as_of:  # only what is declared has changed
        return Plan([], due.next_at, left_out=False)
    return plan(due.cron, due.tz, due.catch_up, due.next_at, due.as_of)
