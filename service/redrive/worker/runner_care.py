"""Care for the runners: hear them, replace them, and clear up after them."""

import logging
from dataclasses import dataclass

from redrive.worker.crash import Crashes
from redrive.worker.database_side import DatabaseSide
from redrive.worker.drain import Drain
from redrive.worker.inbox import Inbox
from redrive.worker.life import Life
from redrive.worker.processes.os_process import adopts_orphans, collect_orphans
from redrive.worker.processes.reload import CodeWatch
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.protocol import Hello
from redrive.worker.runner_side import RunnerSide
from redrive.worker.telemetry import Telemetry

logger = logging.getLogger("redrive.worker")


@dataclass(slots=True, eq=False)
class RunnerCare:
    """Looks after the runners of one worker. `code` is None unless it reloads."""

    database: DatabaseSide
    runners: RunnerSide
    inbox: Inbox
    crashes: Crashes
    life: Life
    drain: Drain
    telemetry: Telemetry
    code: CodeWatch | None

    def wait(self, seconds: float) -> None:
        """Hear what runners say within this time, or until something wakes the loop."""
        for runner in self.runners.selector.wait(self.runners.pool.runners, seconds):
            self._receive(runner)

    def look_after(self, now: float) -> None:
        """Replace runners that have ended, grown, or run old code."""
        pool = self.runners.pool
        self.runners.limits.stop_condemned()
        self.runners.limits.enforce_memory()

        for runner in pool.dead():
            self._read_out(runner)
        if adopts_orphans():
            collect_orphans([runner.pid for runner in pool.runners])
        for runner in pool.runners:
            self._relieve(runner, now)

        if self.code is not None and (changed := self.code.take()):
            logger.info("code changed", extra={"files": changed})
            pool.renew()
        if not self.drain.is_on:
            pool.replenish()

        pool.measure(now)
        self.crashes.tell()

    def _relieve(self, runner: RunnerProcess, now: float) -> None:
        """Have a runner replaced that starts no jobs, and take back its waiting jobs.

        Its running jobs have their time. Then it ends, or is ended.
        """
        runner.listen(now, is_suspended=self.runners.suspension.is_on)
        if runner.is_stuck and (self.drain.is_on or self.runners.pool.may_halt()):
            logger.warning(
                "a runner takes no jobs, and is replaced",
                extra={"pid": runner.pid, "seconds": round(runner.silent, 1)},
            )
            runner.halt(now)

        for held in runner.take_waiting(now):
            self.inbox.take_back(held)

    def kill(self) -> None:
        """Kill all runners, then settle or give back the jobs that they had."""
        self.runners.pool.kill()
        for runner in list(self.runners.pool.runners):
            self._read_out(runner)

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
            if self.runners.suspension.is_on:
                self.runners.suspension.begin()

            # A runner with outdated code is on its way out.
            if self.runners.pool.is_current(runner):
                self._learn(hello)
                self.runners.pool.retire_outdated()

    def _learn(self, hello: Hello) -> None:
        """Take the kinds, schedules and dependencies of a new runner."""
        kinds = {kind.kind: kind for kind in hello.kinds}
        has_other_kinds = self.runners.kinds.learn(kinds)
        self.runners.breakers.configure(hello.dependencies)
        self.runners.tell_open_breakers()

        self.telemetry.ready(kinds)
        self.database.learn(hello, has_other_kinds=has_other_kinds)

    def _ended(self, runner: RunnerProcess) -> None:
        # Do this first. If the runner was ended because its identity was lost, its jobs
        # are not charged for that.
        self.life.drop_lost()
        self.runners.selector.unwatch(runner)
        status = self.crashes.ended(runner)
        if status is not None:
            self.drain.exit_status = status

    def _read_out(self, runner: RunnerProcess) -> None:
        """Take the last reports of a dead runner, then give back what it still held."""
        runner.process.wait()
        self._receive(runner)
        # A child process that outlived it may still hold the channel open.
        if runner in self.runners.pool.runners:
            self._ended(runner)
