"""The runners of one worker: start them, see them hang, grow or die, replace them."""

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import msgspec

from redrive.worker.channel import Channel
from redrive.worker.protocol import OpenBreakers
from redrive.worker.shared_state import SharedState
from redrive.worker.supervisor.held import Held
from redrive.worker.supervisor.kinds import KnownKinds
from redrive.worker.supervisor.runners.environment import EVERYTHING, handed_over
from redrive.worker.supervisor.runners.os_process import OsProcess
from redrive.worker.supervisor.runners.runner_process import RunnerProcess

RUNNER = "import sys; from redrive.worker.runner.process import main; sys.exit(main(sys.argv[1:]))"

END_SECONDS = 0.5
"""How long a runner that has closed its channel may take to end by itself."""

MAX_SUSPENSIONS = 100
"""How many suspensions the pool remembers, to keep them out of timeouts."""


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """Options of runners, and their number. `memory_limit` in bytes, 0 = none.

    `environment`: the names of variables that they get, as `handed_over` takes them.
        `reload`: the
    code may change meanwhile, and may be broken for a while.
    """

    handlers: str
    targets: str = ""
    runners: int = 1
    slots: int = 16
    memory_limit: int = 0
    where: Mapping[str, str] = field(default_factory=dict[str, str])
    environment: Sequence[str] = EVERYTHING
    reload: bool = False
    samples: bool = True


class RunnerPool:
    """The runners of one worker. `on_spawn` hears of each new one."""

    def __init__(
        self,
        options: RunnerOptions,
        kinds: KnownKinds,
        on_spawn: Callable[[RunnerProcess], None],
    ) -> None:
        self.runners: list[RunnerProcess] = []
        self._options = options
        self._kinds = kinds
        self._on_spawn = on_spawn
        self._respawn_at = 0.0
        self._deaths = 0
        self._generation = 0
        self._suspending = threading.Lock()
        self._suspended_at: float | None = None
        self._suspensions: deque[tuple[float, float]] = deque(maxlen=MAX_SUSPENSIONS)

    # ------------------------------------------------------------------ what they hold

    def held(self) -> int:
        """Jobs in the hands of runners."""
        return sum(len(runner.held) for runner in self.runners)

    def inflight(self) -> Tally[tuple[str, str]]:
        """Jobs in the hands of runners, by queue and kind."""
        return Tally(
            (held.queue, held.kind) for runner in self.runners for held in runner.held
        )

    def jobs(self) -> Iterator[Held]:
        """The jobs in their hands."""
        return (held for runner in self.runners for held in runner.held)

    def progress(self, worker: int, asked: float, *, is_draining: bool) -> str:
        """Return the progress of an identity's jobs as `workers.progress`. Any thread
        may call it.

        `asked`: seconds since it last asked for jobs.
        """
        running: dict[str, float] = {}
        waiting: list[list[int]] = []
        slots = 0
        for runner in list(self.runners):
            begun, not_begun = runner.progress(worker)
            running |= begun
            waiting.append(not_begun)
            slots += runner.shared.slots
        return msgspec.json.encode(
            {
                "slots": slots,
                "asked": round(asked, 1),
                "running": running,
                "waiting": [ids for ids in waiting if ids],
                "draining": is_draining,
            }
        ).decode()

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the jobs of these identities."""
        for runner in self.runners:
            runner.held.forget(workers)

    # ------------------------------------------------------------------ whom to talk to

    def is_any_ready(self) -> bool:
        """True if any runner has loaded its handlers."""
        return any(runner.ready for runner in self.runners)

    def listener(self) -> RunnerProcess | None:
        """A runner that hears of what concerns the application as a whole."""
        return next((r for r in self.runners if r.ready and not r.retiring), None)

    def cancel(self, job: int) -> None:
        """Tell the runner that has a job that it is no longer wanted."""
        for runner in self.runners:
            runner.cancel(job)

    def tell_open_breakers(self, message: OpenBreakers) -> None:
        """Tell every runner; a probe is for one of them: among all workers there is
        only one.
        """
        prober = next((r for r in self.runners if r.takes_any), None)
        for runner in self.runners:
            runner.tell(
                message if runner is prober else OpenBreakers(message.names, {})
            )

    # ------------------------------------------------------------------ birth and death

    def spawn(self, *, alone: bool = False) -> RunnerProcess:
        """Start a runner.

        Only the main thread may: on Linux a runner dies with the thread that started
            it.
        """
        ours, theirs = socket.socketpair()
        slots = 1 if alone else self._options.slots
        shared = SharedState(slots)
        process = self._start_process(theirs.fileno(), shared.fd, slots)
        theirs.close()
        runner = RunnerProcess(
            OsProcess(process), Channel(ours), shared, alone, time.monotonic()
        )
        runner.generation = self._generation
        self.runners.append(runner)
        self._on_spawn(runner)
        return runner

    def _start_process(
        self, fd: int, shared_fd: int, slots: int
    ) -> subprocess.Popen[bytes]:
        """Start a process, with the arguments of `runner.process.main`."""
        arguments = (
            *map(str, (fd, shared_fd, slots, os.getpid())),
            self._options.handlers,
            self._options.targets,
            msgspec.json.encode(dict(self._options.where)).decode(),
            "samples" if self._options.samples else "",
        )
        return subprocess.Popen(
            [sys.executable, "-c", RUNNER, *arguments],
            pass_fds=(fd, shared_fd),
            env=handed_over(os.environ, self._options.environment),
            start_new_session=True,
        )

    def replenish(self) -> None:
        """Start what is missing; after deaths in a row, not at once."""
        missing = self._options.runners - sum(
            self.is_current(r) and not (r.alone or r.retiring) for r in self.runners
        )
        if missing > 0 and time.monotonic() >= self._respawn_at:
            for _ in range(missing):
                self.spawn()

    def remove(self, runner: RunnerProcess) -> int:
        """Forget a runner whose channel has closed. Returns its exit status, negative:
        a signal.
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
        """Wait before the next spawn, if the last runner could not even start.

        A poisonous job must not slow the restarts its neighbours wait for.
        """
        self._deaths = 0 if has_started else self._deaths + 1
        self._respawn_at = time.monotonic() + random.uniform(
            0.0, min(10.0, 0.1 * 2.0 ** min(self._deaths, 8) - 0.1)
        )

    def dead(self) -> list[RunnerProcess]:
        """Runners whose processes have ended and whose channels have not said so."""
        return [runner for runner in self.runners if runner.process.is_dead]

    # ------------------------------------------------------------------ new code

    def renew(self) -> None:
        """The code has changed: start others with it; those that run go on until one is
        ready.
        """
        self._generation += 1
        self._respawn_at = 0.0
        for runner in self.runners:
            if not runner.ready and not runner.retiring:
                runner.stop()

    def is_current(self, runner: RunnerProcess) -> bool:
        """Return True if the runner has today's code, as far as is known."""
        return runner.generation == self._generation

    def retire_outdated(self) -> None:
        """One with the code of now is ready: let the others end their jobs."""
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

    # ------------------------------------------------------------------ limits

    def enforce_deadlines(self, now: float) -> bool:
        """Condemn runners with an attempt that outlived its timeout, then kill them.

        Any one thread may, beside the loop. Returns whether there was anything to do.
        """
        if self.is_suspended:
            return False
        now_ns = time.monotonic_ns()
        acted = False
        for runner in list(self.runners):
            if runner.must_die(now):
                runner.process.kill_living()
                acted = True
                continue
            for job in runner.overdue(
                self._kinds.timeout, now_ns, self._suspended_since
            ):
                runner.condemn(job, now)
                acted = True
        return acted

    def stop_condemned(self) -> None:
        """Let those that are to be killed start nothing more."""
        for runner in self.runners:
            if runner.killed_for and not runner.retiring:
                runner.stop()

    def measure(self, now: float) -> None:
        """Take the speed of each."""
        for runner in self.runners:
            runner.held.measure(now)

    def enforce_memory(self) -> None:
        """Replace runners that grew past the limit, once their jobs are done."""
        limit = self._options.memory_limit
        for runner in self.runners:
            if limit and not runner.retiring and runner.process.memory() > limit:
                runner.stop()

    # ------------------------------------------------------------------ suspension

    @property
    def is_suspended(self) -> bool:
        """True if all runners are stopped until the database says who owns their
        jobs.
        """
        return self._suspended_at is not None

    def suspend(self) -> None:
        """Stop every ready runner, until `resume`. Any thread may call this.

        A runner that is not ready has no jobs. It must not be stopped before it has
        arranged to die with the supervisor.
        """
        with self._suspending:
            if self._suspended_at is None:
                self._suspended_at = time.monotonic()
            self._stop_ready()

    def keep_suspended(self, now: float, longest: float) -> None:
        """Stop runners again that became ready, or that somebody else let go on.

        After `longest` seconds, kill those that have jobs: a stopped handler keeps its
        locks, transactions and connections. Any thread may call this.
        """
        with self._suspending:
            if self._suspended_at is None:
                return
            self._stop_ready()
            if now - self._suspended_at > longest:
                self._kill_busy()

    def resume(self) -> None:
        """Let every runner go on."""
        with self._suspending:
            if self._suspended_at is None:
                return
            now = time.monotonic()
            self._suspensions.append((self._suspended_at, now))
            for runner in self.runners:
                runner.resume(now - self._suspended_at)
            self._suspended_at = None

    def _stop_ready(self) -> None:
        for runner in list(self.runners):
            if runner.ready:
                runner.process.suspend()

    def _kill_busy(self) -> None:
        for runner in list(self.runners):
            if runner.held:
                runner.give_up()

    def _suspended_since(self, since_ns: int) -> float:
        """For how many seconds nothing ran since then."""
        since = since_ns / 1e9
        return sum(
            max(0.0, end - max(begin, since)) for begin, end in self._suspensions
        )

    # ------------------------------------------------------------------ all at once

    def stop(self) -> None:
        """Ask all of them to end."""
        for runner in self.runners:
            runner.stop()

    def see_out(self, patience: float) -> None:
        """Let runners that were stopped end by themselves: they may have spans to
        export.
        """
        give_up_at = time.monotonic() + patience
        for runner in self.runners:
            runner.process.wait(give_up_at - time.monotonic())

    def give_up(self, workers: AbstractSet[int]) -> list[RunnerProcess]:
        """End those that have jobs of these identities. Returns them, dead."""
        given_up = [r for r in self.runners if any(j.worker in workers for j in r.held)]
        for runner in given_up:
            runner.give_up()
            runner.process.wait()
        return given_up

    def kill(self) -> None:
        """End all of them now. Any thread may."""
        for runner in list(self.runners):
            runner.give_up()
