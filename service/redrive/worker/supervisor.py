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
from collections import deque

import psycopg

from redrive.database.connections.link import GuestLink, Link, Watchdog
from redrive.worker.claim.identity import Identity
from redrive.worker.claim.lanes import LaneBook
from redrive.worker.claim.queues import QueueCheck
from redrive.worker.claim.until_empty import EmptyCheck
from redrive.worker.drain import Drain
from redrive.worker.guards import Guards
from redrive.worker.health import Health
from redrive.worker.held import ClaimedJob
from redrive.worker.job_flow import JobFlow
from redrive.worker.kinds import KnownKinds
from redrive.worker.options import WorkerOptions
from redrive.worker.ownership import Ownership
from redrive.worker.polling import Polling
from redrive.worker.processes.breakers import Breakers
from redrive.worker.processes.capacity import Capacity
from redrive.worker.processes.crash import Crashes
from redrive.worker.processes.crash_limits import RunnerLimits
from redrive.worker.processes.dispatch import Dispatch
from redrive.worker.processes.inbox import Inbox
from redrive.worker.processes.pool import RunnerPool
from redrive.worker.processes.reload import CodeWatch
from redrive.worker.processes.selector import RunnerSelector
from redrive.worker.processes.suspension import Suspension
from redrive.worker.protocol import Sampled
from redrive.worker.runner_care import RunnerCare
from redrive.worker.settle.exchange import Exchange
from redrive.worker.shutdown import Shutdown
from redrive.worker.store import Registration
from redrive.worker.telemetry import Telemetry
from redrive.worker.upkeep.heartbeat import Heartbeat
from redrive.worker.upkeep.listener import Listener
from redrive.worker.upkeep.maintenance import Maintenance
from redrive.worker.upkeep.progress import ProgressBook
from redrive.worker.upkeep.schedules import Schedules
from redrive.worker.upkeep.slowness import Slowness
from redrive.worker.upkeep.standstill import Standstill
from redrive.worker.welcome import Welcome

logger = logging.getLogger("redrive.worker")

BUSY_SECONDS, IDLE_SECONDS = 0.1, 0.5
"""Time between two rounds of housekeeping: an idle worker should cost little."""

READY_SECONDS = 0.003
"""If the loop will sleep for longer than this, it first prepares its next claim."""

LOCK_TIMEOUT = "100ms"
"""Longest wait of the loop for a lock that another session holds; see `Apart`."""

MAINTENANCE_SETTINGS = {
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "synchronous_commit": "off",
}
"""Settings for chores: they run again in seconds, so none is worth a long wait."""

MAX_SAMPLES = 100
"""Sampled jobs that wait to be offered; later ones replace the oldest."""

LAST_WORDS_SECONDS = 0.5
"""How long maintenance may take to send its last figures at shutdown."""

SEE_OUT_SECONDS = 1.2
"""How long idle runners may take to export their last spans at shutdown."""


class Supervisor:
    """One worker. `run` returns the exit status."""

    def __init__(self, options: WorkerOptions, telemetry: Telemetry) -> None:
        self._options = options
        self._telemetry = telemetry
        self._ticked_at = time.monotonic()
        self._housekeeping_at = 0.0
        self._build_shared()
        self._build_heartbeat()
        self._build_maintenance()
        self._build_exchange()
        self._build_runner_parts()
        self._build_ends()

    def _build_shared(self) -> None:
        """Build what most other parts use."""
        options = self._options
        self._selector = RunnerSelector()
        self._drain = Drain(options.drain)
        self._kinds = KnownKinds()
        self._pool = RunnerPool(options.of_runners(), self._selector.watch)
        self._suspension = Suspension(self._pool)
        self._limits = RunnerLimits(
            pool=self._pool,
            kinds=self._kinds,
            suspension=self._suspension,
            memory=options.memory_limit,
        )

        self._capacity = Capacity(options.slots)
        self._dispatch = Dispatch(self._pool, self._capacity, self._kinds)
        self._breakers = Breakers()
        self._polling = Polling(self._ticked_at)
        self._link = Link(options.database, "redrive worker", lock_timeout=LOCK_TIMEOUT)

        self._guards = Guards(
            ttl=options.ttl,
            pool=self._pool,
            limits=self._limits,
            suspension=self._suspension,
            selector=self._selector,
            polling=self._polling,
            breakers=self._breakers,
            drain=self._drain,
        )

    def _build_heartbeat(self) -> None:
        """Build the heartbeat, with a connection of its own."""
        options = self._options
        self._heartbeat_link = Link(
            options.database, "redrive heartbeat", synchronous_commit="off"
        )

        self._standstill = Standstill(
            options.ttl,
            options.queues,
            self._kinds.names,
            self.exchange_age,
            self._polling.waited_seconds,
        )

        self.slowness = Slowness()

        self._heartbeat = Heartbeat(
            self._heartbeat_link,
            options.ttl,
            self._guards.silenced,
            self._selector.wake,
            self._guards.notified,
            self._telemetry.beat_failed,
            self._pool.held,
            self._progress,
            Listener(options.queues),
            self._standstill,
            self.slowness,
            None
            if options.listen is None
            else Link(options.listen, "redrive listener"),
        )

    def _build_maintenance(self) -> None:
        """Build the thread that does chores, its inputs, and the watchdog."""
        self._unwanted: deque[int] = deque()  # jobs to cancel
        self._progress_book = ProgressBook()
        self._samples: deque[Sampled] = deque(maxlen=MAX_SAMPLES)
        self._schedules = Schedules(self._options.where.get("version", ""))

        link = GuestLink(self._link, "redrive maintenance", **MAINTENANCE_SETTINGS)
        self._maintenance = Maintenance(
            link,
            self._options.ttl,
            self._telemetry,
            self._heartbeat.identities,
            self._unwanted.extend,
            self._progress_book,
            self._schedules,
            self._samples,
            lambda: self._heartbeat.is_caretaker,
            lambda: bool(self._pool.held() or self._dispatch),
        )
        self._watchdog = self._build_watchdog(link)

    def _build_watchdog(self, maintenance_link: Link) -> Watchdog:
        checks = (
            self._heartbeat.check_silence,
            self._guards.keep_suspended,
            self._guards.enforce_deadlines,
            self._guards.exit_when_overdue,
        )
        links = [self._link, self._heartbeat_link, maintenance_link]
        if self._heartbeat.listen_link is not None:
            links.append(self._heartbeat.listen_link)

        return Watchdog(*links, checks=checks)

    def _build_exchange(self) -> None:
        """Build what the loop asks the database with."""
        queues = self._options.queues
        self._identity = Identity(self._registration, self._heartbeat)

        self._exchange = Exchange(
            link=self._link,
            identity=self._identity,
            lanes=LaneBook(queues),
            polling=self._polling,
            telemetry=self._telemetry,
            on_refused=self._refused,
            pace=self.slowness.pace,
        )

        self._empty_check = EmptyCheck(self._link, queues, self._telemetry)
        self._queue_check = QueueCheck(self._link, queues, self._telemetry)

    def _build_runner_parts(self) -> None:
        """Build what hears runners, and what gives them jobs."""
        self._inbox = Inbox(
            capacity=self._capacity,
            dispatch=self._dispatch,
            breakers=self._breakers,
            exchange=self._exchange,
            drain=self._drain,
            progress=self._progress_book,
            samples=self._samples,
        )

        self._crashes = Crashes(
            pool=self._pool,
            kinds=self._kinds,
            inbox=self._inbox,
            exchange=self._exchange,
            drain=self._drain,
            telemetry=self._telemetry,
            where=self._options.where,
        )

        self._job_flow = JobFlow(
            link=self._link,
            identity=self._identity,
            exchange=self._exchange,
            polling=self._polling,
            drain=self._drain,
            pool=self._pool,
            dispatch=self._dispatch,
            breakers=self._breakers,
            inbox=self._inbox,
            telemetry=self._telemetry,
        )

        self._welcome = Welcome(
            kinds=self._kinds,
            schedules=self._schedules,
            identity=self._identity,
            breakers=self._breakers,
            job_flow=self._job_flow,
            polling=self._polling,
            queue_check=self._queue_check,
            telemetry=self._telemetry,
        )

    def _build_ends(self) -> None:
        """Build what acts when identities, runners or this worker end."""
        options = self._options
        self._ownership = Ownership(
            link=self._link,
            identity=self._identity,
            heartbeat=self._heartbeat,
            exchange=self._exchange,
            pool=self._pool,
            suspension=self._suspension,
            dispatch=self._dispatch,
            breakers=self._breakers,
            inbox=self._inbox,
            telemetry=self._telemetry,
        )

        self._runner_care = RunnerCare(
            pool=self._pool,
            limits=self._limits,
            suspension=self._suspension,
            selector=self._selector,
            inbox=self._inbox,
            crashes=self._crashes,
            ownership=self._ownership,
            welcome=self._welcome,
            drain=self._drain,
            code=CodeWatch(options.handlers, self._selector.wake)
            if options.reload
            else None,
        )

        self._shutdown = Shutdown(
            drain=self._drain,
            pool=self._pool,
            dispatch=self._dispatch,
            breakers=self._breakers,
            exchange=self._exchange,
            identity=self._identity,
            ownership=self._ownership,
            runner_care=self._runner_care,
        )

    def _registration(self) -> Registration:
        """Return the registration of this worker, complete once a runner is ready."""
        options = self._options
        return Registration(
            name=options.name,
            version=options.version,
            ttl=options.ttl,
            kinds=self._kinds.names(),
            queues=options.queues,
            depends_on=self._kinds.depends_on(),
            holds=self._kinds.holds(),
            limits=self._kinds.limits(),
            approvals=self._kinds.approvals(),
            heals=self._kinds.heals(),
            redrives=self._kinds.redrives(),
        )

    def _refused(self, held: ClaimedJob, error: psycopg.Error) -> None:
        self._crashes.refused(held, error)

    # ------------------------------------------------------------------ figures

    def _progress(self, worker: int) -> str:
        """Return the progress of an identity's jobs. Any thread may call it."""
        asked = time.monotonic() - self._exchange.claims.asked_at
        return self._pool.progress(
            worker, asked, self.slowness.slow(), is_draining=self._drain.is_on
        )

    def runner_memory(self) -> int:
        """Return the resident memory of all runners, in bytes.

        Any thread may call it.
        """
        return sum(runner.process.memory() for runner in list(self._pool.runners))

    def exchange_age(self, now: float) -> float:
        """Return for how many seconds no necessary exchange has succeeded.

        Any thread may call it. `now` is monotonic.
        """
        return max(0.0, now - self._exchange.answered_at)

    def health(self, now: float) -> Health:
        """Return the health of this worker.

        Any thread may call it. `now` is monotonic.
        """
        beat_seconds = self._heartbeat.silent_seconds(now)
        return Health(
            loop_seconds=now - self._ticked_at,
            heartbeat_thread_seconds=now - self._heartbeat.ticked_at,
            beat_seconds=beat_seconds,
            beat_in_time=beat_seconds < self._options.ttl,
            database_failures=self._link.failures,
            database_fault=self._link.fault,
            exchange=self._standstill.fault(now) or self.slowness.remark(),
            has_ready_runner=self._pool.is_any_ready(),
            runners=self._pool.fault(now),
            is_draining=self._drain.is_on,
            maintenance=self._maintenance.fault(now),
        )

    # ------------------------------------------------------------------ the loop

    def run(self) -> int:
        """Work until stopped. Returns 0, or another status if no runner can start."""
        self._start()
        try:
            while self._drain.exit_status is None:
                self._turn()

            self._pool.see_out(SEE_OUT_SECONDS if self._telemetry.tracing else 0.0)
        finally:
            # Whatever has ended the loop, no runner may outlive it.
            self._pool.kill()
            self._heartbeat.stop()
            self._maintenance.stop(LAST_WORDS_SECONDS)
            self._telemetry.end_log.say_held_back(float("inf"))

        return self._drain.exit_status

    def _start(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

        self._watchdog.start()
        self._runner_care.start()
        self._heartbeat.start()
        self._maintenance.start()
        self._runner_care.watch_code()
        gc.freeze()  # what was imported stays: no collection need look at it again

    def _turn(self) -> None:
        self._wait()
        now = self._ticked_at = time.monotonic()

        if self._drain.begins():
            self._shutdown.begin()
        if now >= self._housekeeping_at:
            self._housekeep(now)

        self._job_flow.proceed(now)
        if self._drain.is_on:
            self._shutdown.proceed(now)
        elif self._options.until_empty:
            self._stop_when_empty(now)

    def _wait(self) -> None:
        due_at = self._job_flow.due_at(self._housekeeping_at)
        seconds = max(0.0, due_at - time.monotonic())
        if seconds > READY_SECONDS and not self._is_busy():
            self._exchange.claims.get_ready()

        self._runner_care.wait(seconds)

    def _housekeep(self, now: float) -> None:
        seconds = BUSY_SECONDS if self._is_busy() else IDLE_SECONDS

        self._housekeeping_at = now + seconds

        self._runner_care.look_after(now)
        if not self._exchange.is_needed(self._job_flow.free_slots()):
            self._exchange.not_needed(now)

        self._polling.others = self._heartbeat.others
        self._polling.longest = self._heartbeat.longest_poll
        self._polling.delay = self._heartbeat.delay
        self._capacity.turn_seconds = self._polling.turn_seconds

        # Maintenance adds unwanted jobs in a thread of its own.
        while self._unwanted:
            self._pool.cancel(self._unwanted.popleft())

        self._dispatch.hand_out_waiting(now)
        self._ownership.review(now)
        self._telemetry.end_log.say_held_back(now)
        self._telemetry.gauges(
            self._pool.inflight(),
            self._kinds.timeout,
            self._options.all_slots,
            is_draining=self._drain.is_on,
        )

    def _is_busy(self) -> bool:
        """Return True if anything needs a clock."""
        if self._pool.held() or self._dispatch:
            return True

        return bool(self._identity.left) or self._drain.is_on

    # ------------------------------------------------------------------ stopping

    def _on_signal(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        self._drain.signal()
        self._selector.wake()

    def _stop_when_empty(self, now: float) -> None:
        if self._pool.held() or self._exchange.is_settling or self._dispatch:
            return

        # Before a runner is ready and has claimed, nobody knows if there are jobs.
        if self._polling.expects_more or not self._kinds or self._identity.me is None:
            return
        if self._empty_check.is_empty(now, self._kinds.names()):
            self._stop()
