"""Actions of the heartbeat and the watchdog, which run in threads of their own.

They do not wait for the loop. The loop may be stuck in a database call for longer than
a job may run, or for longer than other workers wait before they take its jobs.
"""

import logging
import os
import time
from dataclasses import dataclass

from redrive.worker.drain import Drain
from redrive.worker.polling import Polling
from redrive.worker.processes.breakers import Breakers
from redrive.worker.processes.crash_limits import RunnerLimits
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.selector import RunnerSelector
from redrive.worker.processes.suspension import Suspension

logger = logging.getLogger("redrive.worker")

SUSPENDED_TTLS = 5.0
"""How many heartbeat TTLs a job may be suspended for before its process is killed."""


@dataclass(slots=True, eq=False)
class Guards:
    """Actions of other threads on the runners and the loop. `ttl` is in seconds."""

    ttl: float
    pool: RunnerPool
    limits: RunnerLimits
    suspension: Suspension
    selector: RunnerSelector
    polling: Polling
    breakers: Breakers
    drain: Drain

    def notified(self) -> None:
        """Wake the loop if a notification makes it poll or report sooner."""
        if self.polling.notified(time.monotonic()) or self.breakers.is_used:
            self.selector.wake()

    def silenced(self) -> None:
        """Suspend the handlers: no heartbeat arrives, so others may take our jobs."""
        logger.warning("suspended: the database does not answer")
        self.suspension.begin()

    def keep_suspended(self, now: float) -> None:
        """Suspend new runners too, and kill runners suspended for too long."""
        self.suspension.keep_up(now, SUSPENDED_TTLS * self.ttl)

    def enforce_deadlines(self, now: float) -> None:
        """Kill runners whose attempts have outlived their timeouts."""
        if self.limits.enforce_deadlines(now):
            self.selector.wake()

    def exit_when_overdue(self, now: float) -> None:
        """Exit even if something hangs. Other workers rescue what is not settled."""
        if self.drain.is_overdue(now):
            self.pool.kill()
            os._exit(1)
