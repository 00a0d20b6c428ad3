"""Care for the runners: hear them, replace them, and clear up after them."""

import logging
from dataclasses import dataclass

from redrive.worker.drain import Drain
from redrive.worker.ownership import Ownership
from redrive.worker.processes.crash import Crashes
from redrive.worker.processes.crash_limits import RunnerLimits
from redrive.worker.processes.inbox import Inbox
from redrive.worker.processes.os_process import adopts_orphans, collect_orphans
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.reload import CodeWatch
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.processes.selector import RunnerSelector
from redrive.worker.processes.suspension import Suspension
from redrive.worker.welcome import Welcome

logger = logging.getLogger("redrive.worker")


@dataclass(slots=True, eq=False)
class RunnerCare:
    """Looks after the runners of one worker. `code` is None unless it reloads."""

    pool: RunnerPool
    limits: RunnerLimits
    suspension: Suspension
    selector: RunnerSelector
    inbox: Inbox
    crashes: Crashes
    ownership: Ownership
    welcome: Welcome
    drain: Drain
    code: CodeWatch | None

    def start(self) -> None:
        """Start the first runners."""
        self.pool.replenish()

    def watch_code(self) -> None:
        """Start to watch the code, if this worker reloads it."""
        if self.code is not None:
            self.code.start()

    def wait(self, seconds: float) -> None:
        """Hear what runners say within this time, or until something wakes the loop."""
        for runner in self.selector.wait(self.pool.runners, seconds):
            self._receive(runner)

    def look_after(self, now: float) -> None:
        """Replace runners that have ended, grown, or run old code."""
        self.limits.stop_condemned()
        self.limits.enforce_memory()

        for runner in self.pool.dead():
            self._read_out(runner)
        if adopts_orphans():
            collect_orphans([runner.pid for runner in self.pool.runners])
        for runner in self.pool.runners:
            self._relieve(runner, now)

        self._renew_changed_code()
        if not self.drain.is_on:
            self.pool.replenish()

        self.pool.measure(now)
        self.crashes.tell()

    def _relieve(self, runner: RunnerProcess, now: float) -> None:
        """Have a runner replaced that starts no jobs, and take back its waiting jobs.

        Its running jobs have their time. Then it ends, or is ended.
        """
        runner.listen(now, is_suspended=self.suspension.is_on)
        if runner.is_stuck and (self.drain.is_on or self.pool.may_halt()):
            logger.warning(
                "a runner takes no jobs, and is replaced",
                extra={"pid": runner.pid, "seconds": round(runner.silent, 1)},
            )
            runner.halt(now)

        for held in runner.take_waiting(now):
            self.inbox.take_back(held)

    def kill(self) -> None:
        """Kill all runners, then settle or give back the jobs that they had."""
        self.pool.kill()
        for runner in list(self.pool.runners):
            self._read_out(runner)

    def _renew_changed_code(self) -> None:
        changed = [] if self.code is None else self.code.take()

        if changed:
            logger.info("code changed", extra={"files": changed})
            self.pool.renew()

    def _receive(self, runner: RunnerProcess) -> None:
        messages = runner.receive()
        if messages is None:
            self._ended(runner)
            return

        for message in messages:
            hello = self.inbox.handle(runner, message)
            if hello is None:
                continue

            # A runner that becomes ready now was not suspended with the others.
            if self.suspension.is_on:
                self.suspension.begin()

            # A runner with outdated code is on its way out.
            if self.pool.is_current(runner):
                self.welcome.learn(hello)
                self.pool.retire_outdated()

    def _ended(self, runner: RunnerProcess) -> None:
        # Do this first. If the runner was ended because its identity was lost, its jobs
        # are not charged for that.
        self.ownership.drop_lost()
        self.selector.unwatch(runner)
        status = self.crashes.ended(runner)
        if status is not None:
            self.drain.exit_status = status

    def _read_out(self, runner: RunnerProcess) -> None:
        """Take the last reports of a dead runner, then give back what it still held."""
        runner.process.wait()
        self._receive(runner)
        # A child process that outlived it may still hold the channel open.
        if runner in self.pool.runners:
            self._ended(runner)
