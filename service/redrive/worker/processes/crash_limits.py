"""Limits of runners: how long their jobs may run, and how large they may grow."""

import time
from dataclasses import dataclass

from redrive.worker.kinds import KnownKinds
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.processes.suspension import Suspension


@dataclass(slots=True, eq=False)
class RunnerLimits:
    """Enforces the limits of one worker's runners. `memory`: in bytes, 0 = none."""

    pool: RunnerPool
    kinds: KnownKinds
    suspension: Suspension
    memory: int

    def enforce_deadlines(self, now: float) -> bool:
        """Condemn runners with an attempt that outlived its timeout, then kill them.

        One thread besides the loop may call it. Returns True if it has acted.
        """
        if self.suspension.is_on:
            return False

        now_ns = time.monotonic_ns()
        acted = [
            self._enforce_deadline(runner, now, now_ns)
            for runner in list(self.pool.runners)
        ]

        return any(acted)

    def _enforce_deadline(self, runner: RunnerProcess, now: float, now_ns: int) -> bool:
        if runner.must_die(now):
            runner.process.kill_living()
            return True

        overdue = list(
            runner.overdue(self.kinds.timeout, now_ns, self.suspension.seconds_since)
        )
        for job in overdue:
            runner.condemn(job, now)

        return bool(overdue)

    def stop_condemned(self) -> None:
        """Let the runners that are to be killed start nothing more."""
        for runner in self.pool.runners:
            if runner.killed_for and not runner.retiring:
                runner.stop()

    def enforce_memory(self) -> None:
        """Replace runners that grew past the limit, once their jobs have ended."""
        if not self.memory:
            return
        for runner in self.pool.runners:
            if not runner.retiring and runner.process.memory() > self.memory:
                runner.stop()
