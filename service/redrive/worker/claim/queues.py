"""Check for queues that never had a job: mostly typing errors in a setting."""

import logging
from collections.abc import Iterable

import psycopg

from redrive.database.connections.link import Link
from redrive.rules.nearest import nearest
from redrive.worker import store
from redrive.worker.telemetry import Telemetry

logger = logging.getLogger("redrive.worker")


class QueueCheck:
    """Warns of each such queue once, unless the database knows no queue yet."""

    def __init__(
        self, link: Link, queues: Iterable[str] | None, telemetry: Telemetry
    ) -> None:
        self._link = link
        self._unknown = set(queues or ())
        self._telemetry = telemetry

    def look(self, declared: Iterable[str]) -> None:
        """Look up the queues that no handler and no schedule names."""
        self._unknown.difference_update(declared)
        if not self._unknown:
            return

        try:
            with self._link.use() as conn:
                known = store.known_queues(conn)
        except psycopg.Error as error:
            self._telemetry.database_error("queues", error)
            return

        if known:
            self._warn(known)

        self._unknown.clear()

    def _warn(self, known: list[str]) -> None:
        for queue in sorted(self._unknown.difference(known)):
            fields = {"queue": queue, "meant": nearest(queue, known)}
            logger.warning("no job has been in this queue yet", extra=fields)
