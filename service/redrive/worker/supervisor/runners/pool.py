"""Runners of one worker: start them, ask them, replace them, and end them."""

import random
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

import msgspec

from redrive.worker.protocol import OpenBreakers
from redrive.worker.supervisor.held import ClaimedJob
from redrive.worker.supervisor.runners.process.runner_process import RunnerProcess
from redrive.worker.supervisor.runners.process.start import RunnerOptions, start_runner

END_SECONDS = 0.5
"""How long a runner that has closed its channel may take to end by itself."""

RESPAWN_SECONDS, MAX_RESPAWN_SECONDS = 0.1, 10.0
"""Longest pause after a first runner that could not start, and after many in a row."""

MAX_DOUBLINGS = 8


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

    def progress(self, worker: int, asked: float, *, is_draining: bool) -> str:
        """Return the progress of an identity's jobs as `workers.progress`.

        `asked`: seconds since it last asked for jobs. Any thread may call it.
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

        progress = {
            "slots": slots,
            "asked": round(asked, 1),
            "running": running,
            "waiting": waiting,
            "draining": is_draining,
        }

        return msgspec.json.encode(progress).decode()

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the jobs of these identities."""
        for runner in self.runners:
            runner.held.forget(workers)

    def measure(self, now: float) -> None:
        """Measure the speed of each runner."""
        for runner in self.runners:
            runner.held.measure(now)

    # ------------------------------------------------------------------ messages

    def is_any_ready(self) -> bool:
        """Return True if any runner has loaded its handlers."""
        return any(runner.ready for runner in self.runners)

    def listener(self) -> RunnerProcess | None:
        """Return a runner to tell what concerns the application as a whole."""
        return next(
            (r for r in self.runners if r.ready and not r.retiring),
            None,
        )

    def cancel(self, job: int) -> None:
        """Tell the runner that holds a job that it is no longer wanted."""
        for runner in self.runners:
            runner.cancel(job)

    def tell_open_breakers(self, message: OpenBreakers) -> None:
        """Tell every runner, but only one of them about probes.

        There is one probe among all workers.
        """
        prober = next(
            (r for r in self.runners if r.takes_any),
            None,
        )
        without_probes = OpenBreakers(message.names, {})
        for runner in self.runners:
            runner.tell(message if runner is prober else without_probes)

    # ------------------------------------------------------------------ birth and death

    def spawn(self, *, alone: bool = False) -> None:
        """Start a runner. Only the main thread may call it; see `start_runner`."""
        runner = start_runner(self._options, alone=alone)
        runner.generation = self._generation
        self.runners.append(runner)
        self._on_spawn(runner)

    def replenish(self) -> None:
        """Start the runners that are missing, unless the last ones could not start."""
        if time.monotonic() < self._respawn_at:
            return

        missing = self._options.runners - self._current()
        for _ in range(missing):
            self.spawn()

    def _current(self) -> int:
        """Return the number of regular runners with the newest code."""
        regular = [r for r in self.runners if not (r.alone or r.retiring)]
        return sum(self.is_current(runner) for runner in regular)

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

        doublings = min(self._failed_starts, MAX_DOUBLINGS)
        longest = RESPAWN_SECONDS * (2.0**doublings - 1)
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
