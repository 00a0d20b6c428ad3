"""Check for `redrive worker --until-empty`: are there jobs to wait for?"""

from collections.abc import Sequence

import psycopg

from redrive.database.connections.link import Link
from redrive.worker import store
from redrive.worker.telemetry import Telemetry

SOON_SECONDS = 60.0
"""Time within which a job must be due to be waited for."""

CHECK_SECONDS = 0.2


class EmptyCheck:
    """Asks the database once in a while."""

    def __init__(
        self, link: Link, queues: Sequence[str] | None, telemetry: Telemetry
    ) -> None:
        self._link = link
        self._queues = queues
        self._telemetry = telemetry
        self._due_at = 0.0

    def is_empty(self, now: float, kinds: Sequence[str]) -> bool:
        """Return True if it is certain that no such job runs or is due soon."""
        if now < self._due_at:
            return False

        self._due_at = now + CHECK_SECONDS
        try:
            with self._link.use() as conn:
                return not store.is_pending(conn, self._queues, kinds, SOON_SECONDS)
        except psycopg.Error as error:
            self._telemetry.database_error("pending", error)
            return False
