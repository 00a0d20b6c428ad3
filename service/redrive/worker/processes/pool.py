"""Runners of one worker: start them, ask them, replace them, and end them."""

import logging
import random
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

import msgspec

from redrive.rules.pace import Slow
from redrive.worker.held import ClaimedJob
from redrive.worker.processes.runner_process import RunnerProcess
from redrive.worker.processes.speed import LEAST_SECONDS
from redrive.worker.processes.start import RunnerOptions, start_runner
from redrive.worker.protocol import OpenBreakers

END_SECONDS = 0.5
"""How long a runner that has closed its channel may take to end by itself."""

RESPAWN_SECONDS, MAX_RESPAWN_SECONDS = 0.1, 10.0
"""Longest pause after a first runner that could not start, and after many in a row."""

UNABLE_SECONDS = 1.0
"""Time until the next try if the system has no process, memory or descriptor left."""

SILENT_SECONDS = 30.0
"""Time without a ready runner that is logged, again and again."""

UNREADY_SECONDS = 5.0
"""Time without a runner that is ready after which that is a fault."""

MAX_DOUBLINGS = 8

logger = logging.getLogger("redrive.worker")


class RunnerPool:
    """Runners of one worker. `on_spawn` is called with each new one."""

    def __init__(
        self, options: RunnerOptions, on_spawn: Callable[[RunnerProcess], None]
    ) -> None:
        self.runners: list[RunnerProcess] = []
        self._options = options
        self._on_spawn = on_spawn
        self._respawn_at = 0.0
        self._failed_starts = 0
        self._generation = 0
        self._unable_until = 0.0
        self._ready_at = float("inf")
        self._told_at = time.monotonic()

    # ------------------------------------------------------------------ their jobs

    def held(self) -> int:
        """Return the number of jobs in the hands of runners."""
        return sum(len(runner.held) for runner in self.runners)

    def inflight(self) -> Tally[tuple[str, str]]:
        """Count the jobs in the hands of runners by queue and kind."""
        return Tally((held.queue, held.kind) for held in self.jobs())

    def jobs(self) -> Iterator[ClaimedJob]:
        """Return the jobs in the hands of runners."""
        return (held for runner in self.runners for held in runner.held)

    def progress(
        self, worker: int, asked: float, slow: Slow | None, *, is_draining: bool
    ) -> str:
        """Return the progress of an identity's jobs as `workers.progress`.

        `asked`: seconds since it last asked for jobs. `slow`: how slow its exchanges
        are, if they are. Any thread may call it.
        """
        running: dict[str, float] = {}
        waiting: list[list[int]] = []
        slots = 0

        # Look at a copy, because the loop starts and removes runners meanwhile.
        for runner in list(self.runners):
            begun, not_begun = runner.progress(worker)
            running |= begun
            if not_begun:
                waiting.append(not_begun)

            slots += runner.shared.slots

        progress: dict[str, object] = {
            "slots": slots,
            "asked": round(asked, 1),
            "running": running,
            "waiting": waiting,
            "draining": is_draining,
        }
        fault = self.fault(time.monotonic())
        if fault is not None:
            progress["fault"] = fault
        if slow is not None:
            progress["slow"] = slow._asdict()

        return msgspec.json.encode(progress).decode()

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the jobs of these identities."""
        for runner in self.runners:
            runner.held.forget(workers)

    def measure(self, now: float) -> None:
        """Measure the speed of each runner."""
        for runner in self.runners:
            runner.held.measure(now, LEAST_SECONDS)
        if self.is_any_ready():
            self._ready_at = self._told_at = now
        elif self.runners and now - self._told_at > SILENT_SECONDS:
            self._told_at = now
            logger.warning(
                "no runner is ready: the import of %s has not ended; a runner that hangs"
                " there is pid %d",
                self._options.handlers or "the targets",
                self.runners[0].pid,
            )

    # ------------------------------------------------------------------ messages

    def is_any_ready(self) -> bool:
        """Return True if any runner has loaded its handlers."""
        return any(r.ready and r.halted_at is None for r in self.runners)

    def may_halt(self) -> bool:
        """Return True if one more runner may be replaced while its jobs still run."""
        halted = sum(runner.halted_at is not None for runner in self.runners)
        return halted < self._options.runners

    def fault(self, now: float) -> str | None:
        """Return why jobs wait although this worker runs. Any thread may call it."""
        for runner in list(self.runners):
            if runner.is_stuck:
                return f"runner {runner.pid}: its event loop has not run for {runner.silent:.0f} s"

        if now - self._ready_at > UNREADY_SECONDS:
            return f"no runner has been ready for {now - self._ready_at:.0f} s"
        return None

    def listener(self) -> RunnerProcess | None:
        """Return a runner to tell what concerns the application as a whole."""
        return next((r for r in self.runners if r.ready and not r.retiring), None)

    def cancel(self, job: int) -> None:
        """Tell the runner that holds a job that it is no longer wanted."""
        for runner in self.runners:
            runner.cancel(job)

    def tell_open_breakers(self, message: OpenBreakers) -> None:
        """Tell every runner, but only one of them about probes.

        There is one probe among all workers.
        """
        prober = next((r for r in self.runners if r.takes_any), None)
        without_probes = OpenBreakers(message.names, {})
        for runner in self.runners:
            runner.tell(message if runner is prober else without_probes)

    # ------------------------------------------------------------------ birth and death

    def spawn(self, *, alone: bool = False) -> None:
        """Start a runner, unless the system refuses to, or refused a moment ago.

        Only the main thread may call it; see `start_runner`.
        """
        now = time.monotonic()
        if now < self._unable_until:
            return

        try:
            runner = start_runner(self._options, alone=alone)
        except OSError as error:
            self._unable_until = now + UNABLE_SECONDS
            logger.warning("no runner can be started: %s", error)
            return

        runner.generation = self._generation
        self.runners.append(runner)
        self._on_spawn(runner)

    def replenish(self) -> None:
        """Start the runners that are missing, unless the last ones could not start."""
        if time.monotonic() < self._respawn_at:
            return

        regular = [r for r in self.runners if not (r.alone or r.retiring)]
        missing = self._options.runners - sum(
            self.is_current(runner) for runner in regular
        )
        for _ in range(missing):
            self.spawn()

    def remove(self, runner: RunnerProcess) -> int:
        """Remove a runner whose channel has closed.

        Returns its exit status, negative for a signal.
        """
        self.runners.remove(runner)
        if runner.process.wait(END_SECONDS) is None:
            runner.process.kill()

        status = runner.process.wait()
        runner.process.kill()  # what its handlers started and left behind
        runner.close()
        self._hold_back_next(has_started=runner.ready or runner.retiring)

        return status or 0

    def _hold_back_next(self, *, has_started: bool) -> None:
        """Wait before the next start, if the last runner could not even start.

        A job that kills its runner must not delay the restart for its neighbours.
        """
        if has_started:
            self._failed_starts = 0
        else:
            self._failed_starts += 1

        longest = RESPAWN_SECONDS * (2.0 ** min(self._failed_starts, MAX_DOUBLINGS) - 1)
        pause = random.uniform(0.0, min(MAX_RESPAWN_SECONDS, longest))
        self._respawn_at = time.monotonic() + pause

    def dead(self) -> list[RunnerProcess]:
        """Return runners that have ended although their channels do not say so."""
        return [runner for runner in self.runners if runner.process.is_dead]

    # ------------------------------------------------------------------ new code

    def renew(self) -> None:
        """Start runners with the new code; the old ones work until one is ready."""
        self._generation += 1
        # Runners that could not load the code may start now.
        self._respawn_at = 0.0
        for runner in self.runners:
            if not runner.ready and not runner.retiring:
                runner.stop()

    def is_current(self, runner: RunnerProcess) -> bool:
        """Return True if no newer code than the runner's is known."""
        return runner.generation == self._generation

    def retire_outdated(self) -> None:
        """Let runners with old code end their jobs: one with the new code is ready."""
        for runner in self.runners:
            if not self.is_current(runner) and not runner.retiring:
                runner.stop()

    def waits_for_change(self, runner: RunnerProcess, status: int) -> bool:
        """Return True if a dead runner could not load code that is being edited.

        Another one would fail alike, so none is started until the code changes.
        """
        if not self._options.reload or runner.ready or status < 0:
            return False
        if self.is_current(runner):
            self._respawn_at = float("inf")
        return True

    # ------------------------------------------------------------------ all at once

    def stop(self) -> None:
        """Ask all of them to end."""
        for runner in self.runners:
            runner.stop()

    def see_out(self, patience: float) -> None:
        """Wait until stopped runners have ended: they may have spans to export."""
        give_up_at = time.monotonic() + patience
        for runner in self.runners:
            runner.process.wait(give_up_at - time.monotonic())

    def give_up(self, workers: AbstractSet[int]) -> list[RunnerProcess]:
        """End the runners with jobs of these identities. Returns them, dead."""
        given_up = [
            runner
            for runner in self.runners
            if any(held.worker in workers for held in runner.held)
        ]

        for runner in given_up:
            runner.give_up()
            runner.process.wait()

        return given_up

    def kill(self) -> None:
        """Kill all of them now. Any thread may call it."""
        for runner in list(self.runners):
            runner.give_up()
