"""Warning of kinds whose jobs wait while no living worker handles them."""

import logging

from redrive.jobs.unhandled import unhandled
from redrive.worker import store

logger = logging.getLogger("redrive.jobs")

MAX_KINDS = 20
"""Most kinds to warn of at once, and to name as handled."""

FIX = "declare a handler in the registry that REDRIVE_HANDLERS names, or start a worker that has one"


def warn(conn: store.Connection) -> None:
    """Warn of each such kind; kinds with the most jobs come first."""
    for found in unhandled(conn)[:MAX_KINDS]:
        logger.warning(
            "no live worker handles this kind",
            extra={**found._asdict(), "handled": found.handled[:MAX_KINDS], "fix": FIX},
        )
