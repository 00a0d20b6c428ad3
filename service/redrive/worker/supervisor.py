"""The supervisor: claims jobs, hands them to runners, and settles them when they end.

It never runs user code. It has one thread, one loop and one connection. Every turn
hears what runners say, then settles and claims. Each part keeps its own clock, and the
loop waits for the first of them. Work that must not wait for a round trip has threads
of its own: the heartbeat, the chores, and the deadlines of running jobs.
"""

import gc
import logging
import signal
import time

import psycopg

from redrive.worker.crash import Crashes
from redrive.worker.database_side import DatabaseSide
from redrive.worker.drain import Drain
from redrive.worker.held import ClaimedJob
from redrive.worker.inbox import Inbox
from redrive.worker.job_flow import JobFlow
from redrive.worker.life import Life
from redrive.worker.options import WorkerOptions
from redrive.worker.processes.reload import CodeWatch
from redrive.worker.runner_care import RunnerCare
from redrive.worker.runner_side import RunnerSide
from redrive.worker.telemetry import Telemetry

logger = logging.getLogger("redrive.worker")

BUSY_SECONDS, IDLE_SECONDS = 0.1, 0.5
"""Time between two rounds of housekeeping: an idle worker should cost little."""

LOOP_STALE_SECONDS = 30.0
"""Time for which the loop, or the thread of the heartbeat, may stand still."""

LATE_HEARTBEAT = "no heartbeat was confirmed within its ttl"

Checks = dict[str, str | None]
"""Fault of each part; None = the part works."""

READY_SECONDS = 0.003
"""If the loop will sleep for longer than this, it first prepares its next claim."""

SEE_OUT_SECONDS = 1.2
"""How long idle runners may take to export their last spans at shutdown."""


class Supervisor:
    """One worker. `run` returns the exit status.

    It has a database side, a runner side, and a life. `JobFlow` brings jobs to the
    runners, and `RunnerCare` brings what runners say to the database.
    """

    def __init__(self, options: WorkerOptions, telemetry: Telemetry) -> None:
        self._options = options
        self._telemetry = telemetry
        self._ticked_at = time.monotonic()
        self._housekeeping_at = 0.0

        drain = self._drain = Drain(options.drain)
        runners = self.runners = RunnerSide(options)
        database = self.database = DatabaseSide(
            options, telemetry, runners, drain, self._refused
        )

        inbox = Inbox(runners, database, drain)
        self._crashes = Crashes(
            runners, inbox, database.exchange, drain, telemetry, options.where
        )
        self._life = Life(database, runners, inbox, drain, telemetry)
        self._job_flow = JobFlow(database, runners, inbox, drain, telemetry)
        self._code = (
            CodeWatch(options.handlers, runners.selector.wake)
            if options.reload
            else None
        )
        self._runner_care = RunnerCare(
            database,
            runners,
            inbox,
            self._crashes,
            self._life,
            drain,
            telemetry,
            self._code,
        )

    def _refused(self, held: ClaimedJob, error: psycopg.Error) -> None:
        self._crashes.refused(held, error)

    def live(self, now: float) -> Checks:
        """Return the checks of liveness.

        They fail only on faults that a restart mends, never because of the database.
        Any thread may call this and `ready`. `now` is monotonic.
        """
        seconds = now - self._ticked_at
        is_stuck = seconds > LOOP_STALE_SECONDS
        return {"loop": f"stood still for {seconds:.0f} s" if is_stuck else None}

    def ready(self, now: float) -> Checks:
        """Return the checks of readiness, by part."""
        database, pool = self.database, self.runners.pool
        heartbeat = database.heartbeat
        is_confirmed = heartbeat.silent_seconds(now) < self._options.ttl
        is_beating = now - heartbeat.ticked_at < LOOP_STALE_SECONDS
        has_ready = pool.is_any_ready()

        return self.live(now) | {
            "database": database.link.trouble(),
            "exchange": database.standstill.fault(now) or database.slowness.remark(),
            "runners": pool.fault(now) or (None if has_ready else "no runner is ready"),
            "heartbeat": None if is_confirmed else LATE_HEARTBEAT,
            "heartbeat thread": None if is_beating else "stood still",
            "maintenance": database.maintenance.fault(now),
            "draining": "the worker is stopping" if self._drain.is_on else None,
        }

    # ------------------------------------------------------------------ the loop

    def run(self) -> int:
        """Work until stopped. Returns 0, or another status if no runner can start."""
        self._start()
        pool = self.runners.pool
        try:
            while self._drain.exit_status is None:
                self._turn()

            pool.see_out(SEE_OUT_SECONDS if self._telemetry.tracing else 0.0)
        finally:
            # Whatever has ended the loop, no runner may outlive it.
            pool.kill()
            self.database.stop()
            self._telemetry.end_log.say_held_back(float("inf"))

        return self._drain.exit_status

    def _start(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

        self._life.watchdog().start()
        self.runners.pool.replenish()
        self.database.start()
        if self._code is not None:
            self._code.start()

        gc.freeze()  # what was imported stays: no collection need look at it again

    def _turn(self) -> None:
        self._wait()
        now = self._ticked_at = time.monotonic()

        if self._drain.begins():
            self._life.begin_to_end()
        if now >= self._housekeeping_at:
            self._housekeep(now)

        self._job_flow.proceed(now)
        if self._drain.is_on:
            self._end(now)
        elif self._options.until_empty and self.database.has_nothing_left(now):
            self._stop()

    def _wait(self) -> None:
        due_at = self._job_flow.due_at(self._housekeeping_at)
        seconds = max(0.0, due_at - time.monotonic())
        if seconds > READY_SECONDS and not self._is_busy():
            self.database.exchange.claims.get_ready()

        self._runner_care.wait(seconds)

    def _housekeep(self, now: float) -> None:
        seconds = BUSY_SECONDS if self._is_busy() else IDLE_SECONDS
        self._housekeeping_at = now + seconds

        self._runner_care.look_after(now)
        self.database.look_after(now)
        self.runners.dispatch.hand_out_waiting(now)
        self._life.review(now)
        self._telemetry.end_log.say_held_back(now)
        self._telemetry.gauges(
            self.runners.pool.inflight(),
            self.runners.kinds.timeout,
            self._options.all_slots,
            is_draining=self._drain.is_on,
        )

    def _is_busy(self) -> bool:
        """Return True if anything needs a clock."""
        if self.runners.is_busy or self._drain.is_on:
            return True

        return bool(self.database.identity.left)

    def _end(self, now: float) -> None:
        """End once everything is settled. When time is up, give the rest back."""
        if not self.runners.pool.held():
            self._life.end(now)
        elif self._drain.is_over(now):
            self._runner_care.kill()

    def _stop(self, *_: object) -> None:
        """Begin to drain: a signal has come, or no job is left."""
        self._drain.signal()
        self.runners.selector.wake()
