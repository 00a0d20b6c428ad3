"""One runner process, as the supervisor sees it: its jobs, its deadlines, its end."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from redrive.worker.channel import Channel
from redrive.worker.held import ClaimedJob
from redrive.worker.processes.held_jobs import HeldJobs
from redrive.worker.processes.os_process import OsProcess
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

FRAME_CHARACTERS = 1 << 18
"""Payload characters in one frame: a runner starts its first jobs before it has all."""

KILL_AFTER_SECONDS = 1.0
"""Time after its timeout for an attempt to react to its cancellation."""

CANCEL_SECONDS = 10.0
"""Time for an attempt to end, once its job is no longer wanted."""

NEIGHBOUR_SECONDS = 0.5
"""Time for the other jobs of a runner to finish before it is killed for one job."""

RETIRE_SECONDS = 5.0
"""Time for a stopped runner without jobs to end: a task may refuse a cancellation."""

SILENT_SECONDS, LONG_SILENT_SECONDS = 3.0, 30.0
"""Time without a beat after which a runner is replaced: if jobs wait in it, and if not.

An async handler that computes for long stops the beats, too.
"""

LONGEST_LOOK = 1.0
"""Most seconds that count between two looks: both processes may have been frozen."""

HALT_SECONDS = 0.05
"""Time for a runner to see that it was halted, before its waiting jobs are taken."""


@dataclass(slots=True, eq=False)
class RunnerProcess:
    """One runner.

    Attributes:
        alone: it gets one suspect at a time and nothing else.
        generation: of the code that it runs.
        killed_for: the jobs that outlived their timeouts.
        cancelled: its jobs (id, deliveries) that are no longer wanted, and the
            monotonic second at which it was told.
        blameless: it was killed through no fault of its jobs.
        silent: seconds for which its event loop has not worked.
        halted_at: when it was told to start nothing more; None = it was not.
    """

    process: OsProcess
    channel: Channel
    shared: SharedState
    alone: bool
    started_at: float
    generation: int = 0
    held: HeldJobs = field(default_factory=HeldJobs)
    ready: bool = False
    retiring: bool = False
    kill_at: float = float("inf")
    killed_for: set[int] = field(default_factory=set[int])
    cancelled: dict[tuple[int, int], float] = field(
        default_factory=dict[tuple[int, int], float]
    )
    blameless: bool = False
    idle_since: float = 0.0
    silent: float = 0.0
    halted_at: float | None = None
    _beats: int = 0
    _looked_at: float = float("inf")

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        return self.process.pid

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
        """Return the descriptor of its channel, for selectors."""
        return self.channel.fileno()

    @property
    def is_blocked(self) -> bool:
        """True if something waits for it to read."""
        return self.channel.is_blocked

    def tell(self, message: Down) -> None:
        """Send a message. If the runner is gone, its channel will say so."""
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

    # ------------------------------------------------------------------ its jobs

    def hand(self, jobs: Sequence[ClaimedJob]) -> None:
        """Send jobs, at least one, all of one claim.

        If the runner is gone, it holds them all the same: its end sorts them out.
        """
        self.held.add(jobs)
        for frame in _in_frames(jobs):
            self.tell(frame)

    def cancel(self, job: int) -> None:
        """Tell it once that a job is no longer wanted, if it holds the job."""
        held = self.held.find(job)
        if held is None or held.key in self.cancelled:
            return

        cancelled = self.cancelled.items()
        # Forget the jobs that have ended. Replace all at once: another thread reads it.
        still = {key: at for key, at in cancelled if key[0] in self.held}
        still[held.key] = time.monotonic()
        self.cancelled = still

        self.tell(CancelJob(*held.key))

    def progress(self, worker: int) -> tuple[dict[str, float], list[int]]:
        """Return an identity's running jobs with their seconds, and its waiting jobs.

        Any thread may call it. A job that starts meanwhile may be in neither.
        """
        # Look at a copy, because the loop adds and removes jobs meanwhile.
        own = {job.id for job in list(self.held) if job.worker == worker}
        now_ns = time.monotonic_ns()
        running = {
            str(one.id): round((now_ns - one.since_ns) / 1e9, 1)
            for one in self._running()
            if one.id in own
        }
        return running, [job.id for job in self._waiting() if job.id in own]

    # ------------------------------------------------------------------ its heartbeat

    def listen(self, now: float, *, is_suspended: bool) -> None:
        """Note for how long its event loop has not worked."""
        beats = self.shared.beats
        seconds = max(0.0, min(LONGEST_LOOK, now - self._looked_at))
        self._looked_at = now
        if beats != self._beats or is_suspended or not self.ready:
            self._beats = beats
            self.silent = 0.0
        else:
            self.silent += seconds

    @property
    def is_stuck(self) -> bool:
        """True if it is time to replace it: its event loop does not work.

        Any thread may ask.
        """
        if self.silent < SILENT_SECONDS or self.halted_at is not None:
            return False
        return self.silent > LONG_SILENT_SECONDS or bool(self._waiting())

    def _waiting(self) -> list[ClaimedJob]:
        """Return the jobs that have not started; empty as in `_running`."""
        # Look at a copy, because the loop adds and removes jobs meanwhile.
        jobs = list(self.held)
        try:
            taken = self.shared.taken
        except ValueError:  # it has just ended, and its shared memory is gone
            return []

        return [held for held in jobs if held.position > taken]

    def halt(self, now: float) -> None:
        """Let it start nothing more, although it may not read its messages."""
        self.shared.halt()
        self.halted_at = now
        if not self.retiring:
            self.stop()

    def take_waiting(self, now: float) -> list[ClaimedJob]:
        """Take out the jobs that a halted runner has not started, and never will."""
        if self.halted_at is None or now - self.halted_at < HALT_SECONDS:
            return []
        return self.held.take_unstarted(held.id for held in self._waiting())

    # ------------------------------------------------------------------ its deadlines

    def overdue(
        self,
        timeout_of: Callable[[str], float],
        now_ns: int,
        suspended: Callable[[int], float] = lambda _: 0.0,
    ) -> Iterator[int]:
        """Yield the jobs that have outlived their timeouts or their cancellation.

        `suspended`: returns for how many seconds since an instant nothing ran.
        """
        for running in self._running():
            held = self.held.find(running.id, running.deliveries)
            if held is None or held.id in self.killed_for:
                continue

            began_ns = running.since_ns
            seconds = (now_ns - began_ns) / 1e9 - suspended(began_ns)

            is_late = seconds > timeout_of(held.kind) + KILL_AFTER_SECONDS
            is_late = is_late or self._ignores_cancellation(held, seconds, now_ns)

            # A slot may be read while it is written, so look again.
            if is_late and running in self._running():
                yield held.id

    def _ignores_cancellation(
        self, held: ClaimedJob, seconds: float, now_ns: int
    ) -> bool:
        """Return True if an attempt that runs for `seconds` should have ended by now."""
        told_at = self.cancelled.get(held.key)
        if told_at is None:
            return False

        has_known = now_ns / 1e9 - told_at  # or since it began, if that was later
        return min(seconds, has_known) > CANCEL_SECONDS

    def _running(self) -> list[Running]:
        """Return the running jobs; empty if the loop has closed it meanwhile."""
        try:
            return self.shared.running()
        except ValueError:  # its memory is given back
            return []

    def condemn(self, job: int, now: float) -> None:
        """Have it killed for a job that hangs, once its other jobs had time to end."""
        seconds = 0.0 if len(self.held) == 1 else NEIGHBOUR_SECONDS

        self.kill_at = min(self.kill_at, now + seconds)
        self.killed_for.add(job)

    def must_die(self, now: float) -> bool:
        """Return True if a job hangs, or if it does not end although it was stopped."""
        if self.kill_at <= now:
            return True

        is_stopped = self.retiring and not self.held
        return is_stopped and now - self.idle_since > RETIRE_SECONDS

    # ------------------------------------------------------------------ its end

    def stop(self) -> None:
        """Ask it to start nothing more, and to end when the rest is done."""
        self.retiring = True
        self.idle_since = time.monotonic()
        self.tell(Stop())

    def resume(self, seconds: float) -> None:
        """Let it continue after `seconds`, which do not count towards any timeout."""
        self.tell(Suspended(seconds))
        self.process.resume()

    def give_up(self) -> None:
        """Kill it through no fault of its jobs, unless it has ended by itself."""
        # If it has ended by itself, its jobs may be to blame.
        self.blameless = self.blameless or not self.process.has_ended
        self.process.kill()

    def cause_of_death(self, status: int) -> str | None:
        """Return `deadline`, `signal` or `exit`; None if it ended when it was asked."""
        if self.killed_for:
            return "deadline"
        if status < 0:
            return "signal"
        return None if self.retiring and status == 0 else "exit"

    def close(self) -> None:
        """Give back what was shared with it."""
        self.channel.close()
        self.shared.close()


def _in_frames(jobs: Sequence[ClaimedJob]) -> Iterator[Jobs]:
    """Cut jobs into runs of about FRAME_CHARACTERS of payload each, equal in number."""
    batch = jobs[0].batch
    frames = sum([len(held.payload) for held in jobs]) // FRAME_CHARACTERS + 1
    # Round up. Otherwise, a small rest would be one more frame.
    step = -(-len(jobs) // frames)

    for at in range(0, len(jobs), step):
        part = jobs[at : at + step]
        yield Jobs(batch.worker, batch.queues, [held.work() for held in part])
