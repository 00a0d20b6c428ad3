"""`--until-empty`: whether there is anything left to wait for."""

from collections.abc import Sequence

import psycopg

from redrive.database.link import Link
from redrive.worker import store
from redrive.worker.supervisor.telemetry import Telemetry

SOON_SECONDS = 60.0
"""A job due within this time is waited for."""

CHECK_SECONDS = 0.2


class EmptyCheck:
    """Asks the database every now and then."""

    def __init__(
        self, link: Link, queues: Sequence[str] | None, telemetry: Telemetry
    ) -> None:
        self._link = link
        self._queues = queues
        self._telemetry = telemetry
        self._due_at = 0.0

    def is_empty(self, now: float, kinds: Sequence[str]) -> bool:
        """Return True if no job of these kinds runs or is due soon; False if nobody can
        say.
        """
        if now < self._due_at:
            return False
        self._due_at = now + CHECK_SECONDS
        try:
            with self._link.use() as conn:
                return not store.is_pending(conn, self._queues, kinds, SOON_SECONDS)
        except psycopg.Error as error:
            self._telemetry.database_error("pending", error)
            return False
