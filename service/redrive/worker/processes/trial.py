"""Trial: a job that may kill whole pods runs alone in one, and this is noted.

A job that has lost as many processes as its policy allows dies only if there is no
doubt. So it gets the pod to itself: nothing is claimed, running jobs end first, and the
database is told before it starts. If the worker is lost then, the cause is known. The
others continue once the job has ended, or has run for longer than it ever took to lose
a process.

The delay for other jobs is bounded: the wait for running jobs, and the share of time
for trials.
"""

import logging
import random
import time
from collections.abc import Set as AbstractSet

from redrive.database.connections.link import Link
from redrive.rules.attempts.releases import put_off_suspect
from redrive.rules.attempts.settlement import Release
from redrive.worker import store
from redrive.worker.held import ClaimedJob
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.processes.suspects import Suspects

logger = logging.getLogger("redrive.worker")

PATIENCE_SECONDS = 30.0
"""Time for running jobs to end before a trial."""

REST_FACTOR = 4.0
"""Pause after a trial, in trials: they take a fifth of a pod's time at most."""


class Trial:
    """Job that has this worker to itself, if there is one."""

    def __init__(self, pool: RunnerPool, suspects: Suspects) -> None:
        self._pool = pool
        self._suspects = suspects

        self._held: ClaimedJob | None = None
        self._runner: RunnerProcess | None = None
        self._is_on = self._is_noted = False
        self._since = self._over_at = self._next_at = 0.0
        self._put_off = 0

    @property
    def is_on(self) -> bool:
        """True if everything else must wait."""
        return self._is_on

    def waiting(self) -> list[ClaimedJob]:
        """Return the job, if it has not started."""
        if self._held is not None and self._runner is None:
            return [self._held]
        return []

    def take(self, held: ClaimedJob) -> Release | None:
        """Take a claimed job, or return how to give it back."""
        now = time.monotonic()
        if self._held is None and now >= self._next_at:
            self._held = held
            self._since = now
            self._put_off = 0
            # Running jobs continue until there is a runner for it. If none runs, it
            # comes first.
            self._is_on = not self._pool.held()

            return None

        self._put_off += 1
        after = max(0.0, self._next_at - now)

        return put_off_suspect(
            "trial", after=after, ahead=self._put_off, jitter=random.random()
        )

    def proceed(self, link: Link, now: float) -> tuple[ClaimedJob, Release] | None:
        """Begin or end the trial if it is time.

        Returns the job to give back, if it never started. Raises psycopg.Error; then
        the other jobs wait until the next call succeeds.
        """
        held = self._held
        if held is None:
            return None

        if self._runner is not None:
            if now >= self._over_at or not self._runs(held, self._runner):
                self._end(link, now)

            return None

        runner = self._suspects.free_runner()
        if runner is not None and not self._is_on:
            # From here on everything else waits, so the patience begins anew.
            self._is_on = True
            self._since = now

        if runner is not None and not self._pool.held():
            self._begin(link, held, runner)
        elif now - self._since > PATIENCE_SECONDS:
            self._end(link, now)
            rest = self._next_at - now
            return held, put_off_suspect(
                "trial", after=rest, ahead=1, jitter=random.random()
            )

        return None

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the job if its identity was declared lost."""
        if self._held is not None and self._held.worker in workers:
            self.drop()

    def drop(self) -> None:
        """Drop the job."""
        self._held = self._runner = None
        self._is_on = self._is_noted = False

    def _runs(self, held: ClaimedJob, runner: RunnerProcess) -> bool:
        if runner not in self._pool.runners:
            return False

        return runner.held.find(held.id) is held

    def _begin(self, link: Link, held: ClaimedJob, runner: RunnerProcess) -> None:
        self._is_noted = True  # the answer may be lost
        with link.use() as conn:
            seconds = store.run_alone(conn, held.worker, held.id)

        # If it is None, the job is no longer ours, and the loop will hear of it.
        if seconds is not None:
            self._runner = runner
            self._over_at = time.monotonic() + seconds
            runner.hand([held])
            extra = {"job": held.id, "kind": held.kind, "seconds": round(seconds)}
            logger.warning(
                "a job has the worker to itself: it may be what kills them", extra=extra
            )

    def _end(self, link: Link, now: float) -> None:
        """Remove the note before anything else starts, and drop the job."""
        if self._held is not None and self._is_noted:
            with link.use() as conn:
                store.run_alone(conn, self._held.worker, None)

        self._next_at = now + REST_FACTOR * (now - self._since)
        self.drop()
