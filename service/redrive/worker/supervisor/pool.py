"""The supervisor's side of its runners: start them, give them jobs, see them hang or die, replace
them.

Every job handed out is in exactly one runner's `held` until its ending is known.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec

from redrive.handlers import matching
from redrive.worker.channel import Channel
from redrive.worker.protocol import Jobs, Kind, Stop, Work
from redrive.worker.shared_state import SharedState
from redrive.worker.store import Row

RUNNER = "import sys; from redrive.worker.runner.process import main; sys.exit(main(sys.argv[1:]))"

FRAME_CHARACTERS = 1 << 18
"""Of payloads in one frame: a runner starts the first jobs of a claim while the others are on their
way.
"""

KILL_GRACE = 1.0
"""Seconds past its timeout that an attempt may take to react to being cancelled, before its process
is killed.
"""

RETIRE_SECONDS = 5.0
"""Seconds that a runner without jobs gets to end by itself: a task that refuses to be cancelled
would keep it.
"""

REAP_SECONDS = 0.002
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in which `ru_maxrss` counts."""

NEIGHBOUR_GRACE = 0.5
"""Seconds that the other jobs of a runner get to finish before it is killed for one that hangs."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What one claim's rows have in common: the identity it was made for, and the queue of each
    lane.
    """

    worker: int
    queues: list[str]


class Held(msgspec.Struct, gc=False):
    """A job in a runner's hands. `position` counts the jobs sent to that runner; compare with
    SharedState.taken.
    """

    row: Row
    batch: Batch
    position: int = 0

    @property
    def worker(self) -> int:
        """The identity that claimed it."""
        return self.batch.worker

    @property
    def queue(self) -> str:
        """Where it waited."""
        lane_no: int = self.row[6]
        return self.batch.queues[lane_no - 1]

    @property
    def id(self) -> int:
        """The job."""
        return self.row[0]

    @property
    def deliveries(self) -> int:
        """Its fence."""
        return self.row[1]

    @property
    def kind(self) -> str:
        """What it is."""
        return self.row[3]


@dataclass(slots=True, eq=False)
class RunnerProcess:
    """One runner.

    `alone`: it gets one suspect at a time and nothing else. `rate`: jobs per second while it has
    any, as measured; `done` and `busy` (jobs, and seconds with jobs in hand) are what came since.
    `peak_memory`: bytes, once it is dead.
    """

    process: subprocess.Popen[bytes]
    channel: Channel
    shared: SharedState
    alone: bool
    started_at: float
    held: dict[int, Held] = field(default_factory=dict[int, Held])
    sent: int = 0
    ready: bool = False
    retiring: bool = False
    kill_at: float = float("inf")
    killed_for: set[int] = field(default_factory=set[int])
    blameless: bool = False
    rate: float = 0.0
    done: int = 0
    busy: float = 0.0
    busy_since: float = 0.0
    idle_since: float = 0.0
    peak_memory: int = 0

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def hand(self, batch: Batch, rows: list[Row]) -> None:
        """Send jobs of one claim. When the runner is gone they are held all the same: its end sorts
        them out.
        """
        if not self.held:
            self.busy_since = time.monotonic()
        for row in rows:
            self.sent += 1
            self.held[row[0]] = Held(row, batch, self.sent)
        with contextlib.suppress(OSError):
            parts = sum([len(row[4]) for row in rows]) // FRAME_CHARACTERS + 1
            step = -(-len(rows) // parts) or 1
            for at in range(0, len(rows), step):
                # Rows go as the tuples they came as: they are encoded like Work.
                works = cast("list[Work]", [row[:7] for row in rows[at : at + step]])
                self.channel.send(Jobs(batch.worker, batch.queues, works))

    @property
    def takes_any(self) -> bool:
        """Whether it gets jobs as they come."""
        return self.ready and not self.retiring and not self.alone

    def ended(self, count: int) -> None:
        """So many of the jobs in hand have ended."""
        self.done += count
        if not self.held:
            self.busy += time.monotonic() - self.busy_since

    def stop(self) -> None:
        """Ask it to start nothing more and to end when the rest is done."""
        self.retiring = True
        self.idle_since = time.monotonic()
        with contextlib.suppress(OSError):  # it is gone; its channel will say so
            self.channel.send(Stop())

    def kill(self) -> None:
        """End it now, with whatever processes its handlers started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self.process.kill()

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended. Its channel need not say so: a child of a handler may hold
        it open.
        """
        self._reap()
        return self.process.returncode is not None

    def wait(self, patience: float = float("inf")) -> int | None:
        """Its exit status, negative for a signal; None when it has not ended within `patience`
        seconds.
        """
        give_up_at = time.monotonic() + patience
        while not self.is_dead and time.monotonic() < give_up_at:
            time.sleep(REAP_SECONDS)
        return self.process.returncode

    def _reap(self) -> None:
        """Take in its end by ourselves: `Popen` would throw away what the system says of its
        memory.
        """
        if self.process.returncode is not None:
            return
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            self.process.poll()
            return
        if pid:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.peak_memory = usage.ru_maxrss * MAXRSS_UNIT

    def give_up(self) -> None:
        """End it now, through no fault of its jobs."""
        self.blameless = True
        self.kill()

    def memory(self) -> int:
        """Its resident memory in bytes; 0 where the system does not tell."""
        try:
            statm = Path(f"/proc/{self.pid}/statm").read_bytes()
            return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0


@dataclass(slots=True)
class Remains:
    """What a dead runner left: running when it died, completed or failed but unreported, never
    started.
    """

    running: list[Held] = field(default_factory=list[Held])
    completed: list[Held] = field(default_factory=list[Held])
    failed: list[Held] = field(default_factory=list[Held])
    waiting: list[Held] = field(default_factory=list[Held])


class RunnerPool:
    """The runners of one worker."""

    def __init__(  # noqa: PLR0913 # what a runner is started with
        self,
        handlers: str,
        targets: str,
        runners: int,
        slots: int,
        memory_limit: int = 0,
        where: Mapping[str, str] | None = None,
    ) -> None:
        self.where = dict(where or {})
        self._handlers = handlers
        self._targets = targets
        self._wanted = runners
        self._slots = slots
        self._memory_limit = memory_limit
        self._respawn_at = 0.0
        self._deaths = 0
        self.runners: list[RunnerProcess] = []
        self.kinds: dict[str, Kind] = {}

    def kind(self, name: str) -> Kind | None:
        """What is known of a kind, None when no runner has a handler for it."""
        prefixes = sorted((k for k in self.kinds if k.endswith("*")), key=len, reverse=True)
        return self.kinds.get(matching(name, self.kinds, prefixes) or "")

    def held(self) -> int:
        """Jobs in the hands of runners."""
        return sum(len(runner.held) for runner in self.runners)

    def spawn(self, *, alone: bool = False) -> RunnerProcess:
        """Start a runner. Only the main thread may: on Linux a runner dies with the thread that
        started it.
        """
        ours, theirs = socket.socketpair()
        slots = 1 if alone else self._slots
        shared = SharedState(slots)
        command = [
            sys.executable,
            "-c",
            RUNNER,
            str(theirs.fileno()),
            str(shared.fd),
            str(slots),
            str(os.getpid()),
            self._handlers,
            self._targets,
            msgspec.json.encode(self.where).decode(),
        ]
        process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(), shared.fd), start_new_session=True
        )
        theirs.close()
        runner = RunnerProcess(process, Channel(ours), shared, alone, time.monotonic())
        self.runners.append(runner)
        return runner

    def replenish(self, observe: Callable[[RunnerProcess], None]) -> None:
        """Start what is missing; after deaths in a row, not at once."""
        now = time.monotonic()
        missing = self._wanted - sum(not (r.alone or r.retiring) for r in self.runners)
        if missing > 0 and now >= self._respawn_at:
            for _ in range(missing):
                observe(self.spawn())

    def bury(self, runner: RunnerProcess) -> int:
        """Forget a runner whose channel has closed. Returns its exit status (negative: the signal)."""
        self.runners.remove(runner)
        if runner.wait(0.5) is None:
            runner.kill()
        status = runner.wait()
        runner.kill()  # what its handlers started and left behind
        runner.channel.close()
        runner.shared.close()
        # Only what cannot even start is held back: a poisonous job must not slow the restarts its
        # neighbours wait for.
        self._deaths = 0 if runner.ready or runner.retiring else self._deaths + 1
        self._respawn_at = time.monotonic() + random.uniform(
            0.0, min(10.0, 0.1 * 2.0 ** min(self._deaths, 8) - 0.1)
        )
        return status or 0

    def enforce_deadlines(self) -> None:
        """Retire runners with an attempt that outlived its timeout, then kill them."""
        now, now_ns = time.monotonic(), time.monotonic_ns()
        for runner in self.runners:
            is_idle = (
                runner.retiring and not runner.held and now - runner.idle_since > RETIRE_SECONDS
            )
            if runner.kill_at <= now or is_idle:
                runner.kill()
                continue
            for running in runner.shared.running():
                held = runner.held.get(running.id)
                if (
                    held is None
                    or held.deliveries != running.deliveries
                    or running.id in runner.killed_for
                ):
                    continue
                known = self.kind(held.kind)
                limit = known.timeout if known else float("inf")
                # A slot may be read while it is written: what is so is so when one looks again.
                if (
                    now_ns - running.since_ns
                ) / 1e9 > limit + KILL_GRACE and running in runner.shared.running():
                    runner.killed_for.add(running.id)
                    runner.kill_at = min(
                        runner.kill_at, now + (0.0 if len(runner.held) == 1 else NEIGHBOUR_GRACE)
                    )
                    runner.stop()

    def enforce_memory(self) -> None:
        """Replace runners that grew past the limit, once their jobs are done."""
        for runner in self.runners:
            if self._memory_limit and not runner.retiring and runner.memory() > self._memory_limit:
                runner.stop()

    def sort_out(self, runner: RunnerProcess) -> Remains:
        """Say of each job a dead runner held how far it had come."""
        taken, completed = runner.shared.taken, runner.shared.completed()
        on_slots = {(r.id, r.deliveries) for r in runner.shared.running()} - completed
        remains = Remains()
        for held in runner.held.values():
            key = (held.id, held.deliveries)
            if key in completed:
                remains.completed.append(held)
            elif key in on_slots:
                remains.running.append(held)
            elif held.position <= taken:
                remains.failed.append(held)
            else:
                remains.waiting.append(held)
        return remains

    def stop(self) -> None:
        """Ask all of them to end."""
        for runner in self.runners:
            runner.stop()

    def see_out(self, patience: float) -> None:
        """Let runners that were stopped end by themselves: they may have spans to export."""
        give_up_at = time.monotonic() + patience
        for runner in self.runners:
            runner.wait(give_up_at - time.monotonic())

    def kill(self) -> None:
        """End all of them now. Any thread may."""
        for runner in list(self.runners):
            runner.give_up()
