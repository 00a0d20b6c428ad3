"""Suspects: jobs that may kill their processes, run where they harm no other job.

Each runs in a runner of its own, a few at a time, on slots of their own. The rest is
given back.
"""

import random
from collections import deque
from collections.abc import Callable

from redrive.rules.attempts.releases import put_off_suspect
from redrive.rules.attempts.settlement import Release
from redrive.worker.held import ClaimedJob
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.runner_process import RunnerProcess

MOST_IN_HAND = 2
"""How many suspects this worker holds; all of them run.

Each runner is one more process with the whole application in it. A suspect that waits
while another one kills the worker would be charged for it.
"""

IDLE_SECONDS = 20.0


class Suspects:
    """Suspects of one worker, and the runners kept for them."""

    def __init__(self, pool: RunnerPool) -> None:
        self._pool = pool
        self._waiting: deque[ClaimedJob] = deque()
        self._put_off = 0

    def waiting(self) -> list[ClaimedJob]:
        """Return the suspects that have not started."""
        return list(self._waiting)

    def take(self, held: ClaimedJob) -> Release | None:
        """Take a claimed job, or return how to give it back."""
        running = sum(len(runner.held) for runner in self._runners())
        if running + len(self._waiting) < MOST_IN_HAND:
            self._waiting.append(held)
            return None

        self._put_off += 1
        return put_off_suspect(
            "suspect", after=0.0, ahead=self._put_off, jitter=random.random()
        )

    def keep(self, wanted: Callable[[ClaimedJob], bool]) -> None:
        """Drop the jobs that are not wanted."""
        self._waiting = deque(held for held in self._waiting if wanted(held))

    def hand_out(self, now: float) -> None:
        """Hand each free runner a job. Start missing runners, and stop idle ones."""
        for runner in self._runners():
            if runner.takes_suspects and self._waiting:
                runner.hand([self._waiting.popleft()])
            elif self._is_idle(runner, now):
                runner.stop()

        if not self._waiting:
            self._put_off = 0

        self._start_missing()

    def _is_idle(self, runner: RunnerProcess, now: float) -> bool:
        if runner.held or self._waiting:
            return False
        return now - runner.started_at > IDLE_SECONDS

    def _start_missing(self) -> None:
        """Start a runner for each waiting suspect that none is started for."""
        for _ in range(self._missing()):
            self._pool.spawn(alone=True)

    def _missing(self) -> int:
        runners = self._runners()
        starting = sum(not runner.ready for runner in runners)
        wanted = len(self._waiting) - starting
        return min(wanted, MOST_IN_HAND - len(runners))

    def free_runner(self) -> RunnerProcess | None:
        """Return a free runner, if one is ready. Starts the first runner."""
        runners = self._runners()
        if not runners:
            self._pool.spawn(alone=True)
        return next((runner for runner in runners if runner.takes_suspects), None)

    def _runners(self) -> list[RunnerProcess]:
        return [
            runner
            for runner in self._pool.runners
            if runner.alone and not runner.retiring
        ]
