"""One runner process, as the supervisor sees it: its jobs, its deadline, its end.

Every job handed out is in exactly one runner's `held` until its settlement is known.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from redrive.worker.channel import Channel
from redrive.worker.protocol import (
    CancelJob,
    Down,
    Jobs,
    Stop,
    Suspended,
    Up,
    decode_up,
)
from redrive.worker.shared_state import Running, SharedState
from redrive.worker.supervisor.held import Held
from redrive.worker.supervisor.runners.speed import Speed

FRAME_CHARACTERS = 1 << 18
"""Of payloads in one frame: a runner starts the first jobs while the others are on
their way.
"""

KILL_AFTER_SECONDS = 1.0
"""Past its timeout: what an attempt gets to react to its cancellation before the
kill.
"""

CANCEL_SECONDS = 10.0
"""What an attempt gets to end, once it is no longer wanted, before the kill."""

NEIGHBOUR_SECONDS = 0.5
"""What the other jobs of a runner get to finish before it is killed for one that
hangs.
"""

RETIRE_SECONDS = 5.0
"""What a stopped runner without jobs gets to end; a task may refuse to be cancelled."""

REAP_SECONDS = 0.002
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in which `ru_maxrss` counts."""


@dataclass(slots=True)
class Remains:
    """Remains of a dead runner.

    `running` when it died, `completed` or `failed` but not reported, `waiting`: never
        started.
    """

    running: list[Held] = field(default_factory=list[Held])
    completed: list[Held] = field(default_factory=list[Held])
    failed: list[Held] = field(default_factory=list[Held])
    waiting: list[Held] = field(default_factory=list[Held])


@dataclass(slots=True, eq=False)
class RunnerProcess:
    """One runner.

    `alone`: it gets one suspect at a time and nothing else. `killed_for`: the jobs that
        outlived
    their timeouts. `cancelled`: its jobs (id, deliveries) that are no longer wanted,
    and the monotonic second at which it was told. `blameless`: it was killed through no
    fault of its jobs. `peak_memory`: bytes, once it is dead. `generation`: of the code
    it runs.
    """

    process: subprocess.Popen[bytes]
    channel: Channel
    shared: SharedState
    alone: bool
    started_at: float
    generation: int = 0
    held: dict[int, Held] = field(default_factory=dict[int, Held])
    speed: Speed = field(default_factory=Speed)
    sent: int = 0
    ready: bool = False
    retiring: bool = False
    kill_at: float = float("inf")
    killed_for: set[int] = field(default_factory=set[int])
    cancelled: dict[tuple[int, int], float] = field(
        default_factory=dict[tuple[int, int], float]
    )
    blameless: bool = False
    idle_since: float = 0.0
    peak_memory: int = 0

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        return self.process.pid

    @property
    def load(self) -> int:
        """Jobs in its hands."""
        return len(self.held)

    def jobs(self) -> Iterable[Held]:
        """The jobs in its hands."""
        return self.held.values()

    @property
    def takes_any(self) -> bool:
        """True if it takes jobs as they come."""
        return self.ready and not self.retiring and not self.alone

    @property
    def takes_suspects(self) -> bool:
        """True if it can take a suspect now."""
        return self.alone and self.ready and not self.retiring and not self.held

    # ------------------------------------------------------------------ its channel

    def fileno(self) -> int:
        """For selectors."""
        return self.channel.fileno()

    @property
    def is_blocked(self) -> bool:
        """True if something waits for it to read."""
        return self.channel.is_blocked

    def tell(self, message: Down) -> None:
        """Send a message; a runner that is gone does not mind, its channel will say
        so.
        """
        with contextlib.suppress(OSError):
            self.channel.send(message)

    def flush(self) -> None:
        """Send what its channel takes."""
        with contextlib.suppress(OSError):
            self.channel.flush()

    def receive(self) -> Iterator[Up] | None:
        """Return its messages since the last call; None once its channel has closed."""
        frames = self.channel.receive()
        if frames is None:
            return None
        self.idle_since = time.monotonic()
        return map(decode_up, frames)

    def greeted(self) -> None:
        """Note that it has loaded its handlers."""
        self.ready = True

    # ------------------------------------------------------------------ its jobs

    def hand(self, jobs: Sequence[Held]) -> None:
        """Send jobs, at least one, all of one claim.

        When the runner is gone they are held all the same: its end sorts them out.
        """
        if not self.held:
            self.speed.begin(time.monotonic())
        for position, held in enumerate(jobs, self.sent + 1):
            held.position = position
            self.held[held.id] = held
        self.sent += len(jobs)
        for frame in _in_frames(jobs):
            self.tell(frame)

    def find(self, job: int, deliveries: int | None = None) -> Held | None:
        """A job in its hands; under this delivery, where it is said."""
        held = self.held.get(job)
        return held if held is None or deliveries in {None, held.deliveries} else None

    def take_completed(
        self, rows: Iterable[tuple[int, int, float]]
    ) -> list[tuple[Held, float]]:
        """Let go of jobs that it completed: (id, deliveries, seconds), as in `Done`.

        Returns those that were in its hands under this delivery, with the seconds each
        took.
        """
        found: list[tuple[Held, float]] = []
        for job, deliveries, seconds in rows:
            held = self.held.get(job)
            if held is not None and held.deliveries == deliveries:
                del self.held[job]
                found.append((held, seconds))
        self._ended(len(found))
        return found

    def take_ended(self, job: int, deliveries: int) -> Held | None:
        """Let go of a job whose attempt ended; None when the one in hand is of another
        claim.
        """
        held = self.held.get(job)
        if held is None or held.deliveries != deliveries:
            return None
        del self.held[job]
        self._ended(1)
        return held

    def cancel(self, job: int) -> None:
        """Let it know that a job in its hands is no longer wanted; again is as good as
        once.
        """
        held = self.held.get(job)
        if held is None or (job, held.deliveries) in self.cancelled:
            return
        # those that are over; replaced as a whole, for another thread reads it
        still = {key: at for key, at in self.cancelled.items() if key[0] in self.held}
        self.cancelled = still | {(job, held.deliveries): time.monotonic()}
        self.tell(CancelJob(job, held.deliveries))

    def take_unstarted(self, jobs: Iterable[int]) -> list[Held]:
        """Let go of jobs that it never started."""
        return [held for job in jobs if (held := self.held.pop(job, None)) is not None]

    def forget(self, workers: AbstractSet[int]) -> None:
        """Drop the jobs of these identities."""
        for job in [held.id for held in self.held.values() if held.worker in workers]:
            del self.held[job]

    def _ended(self, count: int) -> None:
        self.speed.ended += count
        if not self.held:
            self.speed.pause(time.monotonic())

    def measure(self, now: float) -> None:
        """Take its speed."""
        self.speed.measure(now, is_busy=bool(self.held))

    def progress(self, worker: int) -> tuple[dict[str, float], list[int]]:
        """Return the running jobs of an identity with their seconds, and the waiting
        ones.

        Any thread may ask. What begins between the two looks is in neither, and may
        have begun.
        """
        held = {job.id: job for job in list(self.held.values()) if job.worker == worker}
        now_ns = time.monotonic_ns()
        try:
            running = {
                str(one.id): round((now_ns - one.since_ns) / 1e9, 1)
                for one in self.shared.running()
                if one.id in held
            }
            taken = self.shared.taken
        except ValueError:  # it has just ended, and its shared memory is gone
            return {}, []
        return running, [job.id for job in held.values() if job.position > taken]

    def sort_out(self) -> Remains:
        """Once it is dead: say of each job it held how far it had come."""
        taken, completed = self.shared.taken, self.shared.completed()
        on_slots = {(r.id, r.deliveries) for r in self.shared.running()} - completed
        remains = Remains()
        for held in self.held.values():
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

    # ------------------------------------------------------------------ its deadline

    def overdue(
        self,
        timeout_of: Callable[[str], float],
        now_ns: int,
        suspended: Callable[[int], float] = lambda _: 0.0,
    ) -> Iterator[int]:
        """The jobs that have outlived their timeouts and react to no cancellation.

        `suspended`: for how many seconds since an instant nothing ran.
        """
        for running in self._running():
            held = self.held.get(running.id)
            if (
                held is None
                or held.deliveries != running.deliveries
                or held.id in self.killed_for
            ):
                continue
            seconds = (now_ns - running.since_ns) / 1e9 - suspended(running.since_ns)
            is_late = seconds > timeout_of(held.kind) + KILL_AFTER_SECONDS
            told_at = self.cancelled.get((held.id, held.deliveries))
            # it has known since it was told, or since it began
            if told_at is not None and seconds > CANCEL_SECONDS:
                is_late = is_late or now_ns / 1e9 > told_at + CANCEL_SECONDS
            # A slot may be read while it is written: what is so is so when one looks
            # again.
            if is_late and running in self._running():
                yield held.id

    def _running(self) -> list[Running]:
        """Return the running jobs; empty once the loop has closed it, which other
        threads see late.
        """
        try:
            return self.shared.running()
        except ValueError:  # its memory is given back
            return []

    def condemn(self, job: int, now: float) -> None:
        """Sentence it for a job that hangs: to death, once its neighbours had time to
        finish.
        """
        self.kill_at = min(
            self.kill_at, now + (0.0 if self.load == 1 else NEIGHBOUR_SECONDS)
        )
        self.killed_for.add(job)

    def must_die(self, now: float) -> bool:
        """Return True if it must be killed, for a job that hangs or because it does not
        end.
        """
        lingers = (
            self.retiring and not self.held and now - self.idle_since > RETIRE_SECONDS
        )
        return self.kill_at <= now or lingers

    def memory(self) -> int:
        """Return its resident memory in bytes; 0 if the system does not tell."""
        try:
            statm = Path(f"/proc/{self.pid}/statm").read_bytes()
            return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    # ------------------------------------------------------------------ its end

    def stop(self) -> None:
        """Ask it to start nothing more and to end when the rest is done."""
        self.retiring = True
        self.idle_since = time.monotonic()
        self.tell(Stop())

    def kill(self) -> None:
        """End it now, with whatever processes its handlers started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self.process.kill()

    def suspend(self) -> None:
        """Stop it, with whatever processes its handlers started, until it is resumed or
        killed.
        """
        self._signal(signal.SIGSTOP)

    def resume(self, seconds: float) -> None:
        """Let it go on after `seconds`, which do not count towards any timeout."""
        self.tell(Suspended(seconds))
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.returncode is None:
                os.killpg(self.pid, number)

    def kill_living(self) -> None:
        """End it unless it has ended: by then its number may be another's."""
        if self.process.returncode is None:
            self.kill()

    def give_up(self) -> None:
        """End it now, through no fault of its jobs; unless it has ended by itself."""
        self.blameless = self.blameless or not self._has_ended
        self.kill()

    @property
    def is_dead(self) -> bool:
        """True if its process has ended.

        Its channel need not say so: a child of a handler may hold it open.
        """
        self._reap()
        return self.process.returncode is not None

    @property
    def _has_ended(self) -> bool:
        """Return `is_dead` for any thread, without collecting the exit status."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return False
        try:
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, how) is not None
        except ChildProcessError:  # it has been asked for
            return True

    def wait(self, patience: float = float("inf")) -> int | None:
        """Return its exit status, negative for a signal; None if it still runs after
        `patience` seconds.
        """
        give_up_at = time.monotonic() + patience
        while not self.is_dead and time.monotonic() < give_up_at:
            time.sleep(REAP_SECONDS)
        return self.process.returncode

    def _reap(self) -> None:
        """Ask for its end ourselves: `Popen` throws away what the system says of its
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

    def cause_of_death(self, status: int) -> str | None:
        """`deadline`, `signal` or `exit`; None when it ended as it was asked to."""
        if self.killed_for:
            return "deadline"
        if status < 0:
            return "signal"
        return None if self.retiring and status == 0 else "exit"

    def close(self) -> None:
        """Give back what was shared with it."""
        self.channel.close()
        self.shared.close()


def _in_frames(jobs: Sequence[Held]) -> Iterator[Jobs]:
    """Cut jobs into runs of about FRAME_CHARACTERS of payload each, equal in number."""
    batch = jobs[0].batch
    frames = sum([len(held.payload) for held in jobs]) // FRAME_CHARACTERS + 1
    step = -(-len(jobs) // frames) or 1
    for at in range(0, len(jobs), step):
        works = [held.work() for held in jobs[at : at + step]]
        yield Jobs(batch.worker, batch.queues, works)
