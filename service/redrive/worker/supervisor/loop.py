"""The supervisor: claims jobs, hands them to runners, settles what comes back.

It never runs user code. One thread, one loop, one connection. Every turn hears what
runners say, then settles and claims in one call; a worker that keeps up claims first,
and hands out what it got while the database settles. While there is a backlog the
database is asked for the next jobs before the last ones are handed out, and works while
they are. Each part keeps its own clock; the loop waits for the first that is due. What
must not wait for a round trip is not done here: the heartbeat, the chores and the
    deadlines of running jobs have threads of their own.
"""

import gc
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import FrameType

import psycopg

from redrive.database.address import Address
from redrive.database.link import GuestLink, Link, Watchdog
from redrive.rules.attempts.settlement import Release
from redrive.worker.protocol import Hello, Sampled
from redrive.worker.store import Registration
from redrive.worker.supervisor.claiming.exchange import Exchange
from redrive.worker.supervisor.claiming.identity import Identity
from redrive.worker.supervisor.claiming.lanes import LaneBook
from redrive.worker.supervisor.claiming.queues import QueueCheck
from redrive.worker.supervisor.claiming.until_empty import EmptyCheck
from redrive.worker.supervisor.drain import Drain
from redrive.worker.supervisor.held import Held
from redrive.worker.supervisor.kinds import KnownKinds
from redrive.worker.supervisor.polling import PATIENCE_MS, Polling
from redrive.worker.supervisor.runners.breakers import Breakers
from redrive.worker.supervisor.runners.capacity import Capacity
from redrive.worker.supervisor.runners.crash import Crashes
from redrive.worker.supervisor.runners.dispatch import Dispatch
from redrive.worker.supervisor.runners.environment import EVERYTHING
from redrive.worker.supervisor.runners.inbox import Inbox
from redrive.worker.supervisor.runners.pool import RunnerOptions, RunnerPool
from redrive.worker.supervisor.runners.reload import CodeWatch
from redrive.worker.supervisor.runners.runner_process import RunnerProcess
from redrive.worker.supervisor.runners.selector import RunnerSelector
from redrive.worker.supervisor.telemetry import Telemetry
from redrive.worker.supervisor.upkeep.heartbeat import Heartbeat
from redrive.worker.supervisor.upkeep.listener import Listener
from redrive.worker.supervisor.upkeep.maintenance import Maintenance
from redrive.worker.supervisor.upkeep.progress import ProgressBook
from redrive.worker.supervisor.upkeep.schedules import Schedules
from redrive.worker.supervisor.upkeep.standstill import Standstill

logger = logging.getLogger("redrive.worker")

LINGER_SECONDS = 0.002
"""How long a settlement may wait for company, while more is under way."""

BUSY_SECONDS, IDLE_SECONDS = 0.1, 0.5
"""Between two rounds of housekeeping: an idle worker should cost next to nothing."""

READY_SECONDS = 0.003
"""Who rests for longer gets ready for the next claim first."""

LOCK_TIMEOUT = "100ms"
"""Nothing that the loop does waits longer for what somebody else has locked; see
`Apart`.
"""

MAINTENANCE_SETTINGS = {
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "synchronous_commit": "off",
}
"""A chore comes round again in seconds: none is worth a long wait, or one for the
disk.
"""

MAX_SAMPLES = 100
"""Of jobs that succeeded, until they are offered; later ones replace those that wait
too long.
"""

SUSPENDED_TTLS = 5.0
"""How many heartbeat TTLs a job may be suspended for before its process is killed."""

SEE_OUT_SECONDS = 1.2
"""How long runners that have nothing left to do may take to export their last spans."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker.

    Durations in seconds, `memory_limit` in bytes; `queues` None = all; `where` is kept
    with every failure; `environment` names the variables that runners get; `samples`:
    whether they sample jobs that succeed.
    """

    database: Address
    handlers: str
    name: str
    targets: str = ""
    version: str = ""
    queues: tuple[str, ...] | None = None
    slots: int = 16
    runners: int = 1
    ttl: float = 30.0
    drain: float = 30.0
    until_empty: bool = False
    reload: bool = False
    memory_limit: int = 0
    where: Mapping[str, str] = field(default_factory=dict[str, str])
    environment: Sequence[str] = EVERYTHING
    samples: bool = True

    def of_runners(self) -> RunnerOptions:
        """Return the options of its runners."""
        return RunnerOptions(
            self.handlers,
            self.targets,
            self.runners,
            self.slots,
            self.memory_limit,
            self.where,
            self.environment,
            self.reload,
            self.samples,
        )


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a worker, in seconds since something last happened."""

    loop_seconds: float
    heartbeat_thread_seconds: float
    beat_seconds: float
    """Since the last beat that the database confirmed."""
    beat_in_time: bool
    database_failures: int
    """Calls that failed in a row."""
    database_fault: str | None
    """Why it cannot log in there, where that is what failed."""
    exchange: str | None
    """What is wrong with the exchange, while jobs are due."""
    has_ready_runner: bool
    is_draining: bool
    maintenance: str | None
    """What is wrong with the chores that this worker does."""


class Supervisor:
    """One worker. `run` returns the exit status."""

    def __init__(self, options: WorkerOptions, telemetry: Telemetry) -> None:
        self._options = options
        self._telemetry = telemetry
        self._exit_status: int | None = None
        self._ticked_at = time.monotonic()
        self._housekeeping_at = 0.0

        self._selector = RunnerSelector()
        self._drain = Drain(options.drain)
        self._kinds = KnownKinds()
        self._pool = RunnerPool(options.of_runners(), self._kinds, self._selector.watch)
        capacity = Capacity(options.slots)
        self._dispatch = Dispatch(self._pool, capacity, self._kinds)
        self._breakers = Breakers()

        self._polling = Polling(self._ticked_at)
        self._connect()
        self._inbox = Inbox(
            capacity,
            self._dispatch,
            self._breakers,
            self._exchange,
            self._drain,
            self._progress_book,
            self._samples,
        )
        self._crashes = Crashes(
            self._pool,
            self._kinds,
            self._inbox,
            self._exchange,
            self._drain,
            telemetry,
            options.where,
        )

    def _connect(self) -> None:
        """Build what talks to the database, each with the link that its thread has to
        itself.
        """
        options, telemetry = self._options, self._telemetry
        self._link = Link(options.database, "redrive worker", lock_timeout=LOCK_TIMEOUT)
        self._connect_threads()
        self._identity = Identity(self._registration, self._heartbeat)
        lanes = LaneBook(options.queues)
        self._exchange = Exchange(
            self._link,
            self._identity,
            lanes,
            self._polling,
            telemetry,
            self._refused,
        )
        self._empty_check = EmptyCheck(self._link, options.queues, telemetry)
        self._queue_check = QueueCheck(self._link, options.queues, telemetry)
        self._code = (
            CodeWatch(options.handlers, self._selector.wake) if options.reload else None
        )

    def _connect_threads(self) -> None:
        """Build what runs beside the loop, and what is handed over to it."""
        database, ttl = self._options.database, self._options.ttl
        self._unwanted: deque[int] = deque()  # jobs to be cancelled
        self._progress_book = ProgressBook()
        self._samples: deque[Sampled] = deque(maxlen=MAX_SAMPLES)  # to be kept
        self._schedules = Schedules(self._options.where.get("version", ""))
        self._standstill = Standstill(
            ttl, self._options.queues, self._kinds.names, self.exchange_age
        )
        heartbeat_link = Link(database, "redrive heartbeat", synchronous_commit="off")
        maintenance_link = GuestLink(
            self._link, "redrive maintenance", **MAINTENANCE_SETTINGS
        )
        self._heartbeat = Heartbeat(
            heartbeat_link,
            ttl,
            self._silenced,
            self._selector.wake,
            self._notified,
            self._telemetry.beat_failed,
            self._pool.held,
            self._progress,
            Listener(self._options.queues),
            self._standstill,
        )
        self._maintenance = Maintenance(
            maintenance_link,
            ttl,
            self._telemetry,
            self._heartbeat.identities,
            self._unwanted.extend,
            self._progress_book,
            self._schedules,
            self._samples,
        )
        self._watchdog = Watchdog(
            *(self._link, heartbeat_link, maintenance_link),
            checks=(
                self._heartbeat.check_silence,
                self._keep_suspended,
                self._enforce_deadlines,
                self._exit_when_overdue,
            ),
        )

    def _registration(self) -> Registration:
        """Return the registration of this worker; it is needed only once a runner is
        ready.
        """
        options = self._options
        return Registration(
            options.name,
            options.version,
            options.ttl,
            self._kinds.names(),
            options.queues,
            self._kinds.depends_on(),
            self._kinds.holds(),
            self._kinds.limits(),
            self._kinds.approvals(),
            self._kinds.heals(),
        )

    def _refused(self, held: Held, error: psycopg.Error) -> None:
        self._crashes.refused(held, error)

    def _progress(self, worker: int) -> str:
        """Return the progress of an identity's jobs. Any thread may call it."""
        asked = time.monotonic() - self._exchange.asked_at
        return self._pool.progress(worker, asked, is_draining=self._drain.is_on)

    def runner_memory(self) -> int:
        """Resident memory of all runners, in bytes. Any thread may ask."""
        return sum(runner.memory() for runner in list(self._pool.runners))

    def exchange_age(self, now: float) -> float:
        """For how many seconds no exchange has succeeded that was needed. Any thread
        may ask.
        """
        return max(0.0, now - self._exchange.answered_at)

    def health(self, now: float) -> Health:
        """Return the health of this worker. Any thread may call it."""
        beat_seconds = self._heartbeat.silent_seconds(now)
        return Health(
            now - self._ticked_at,
            now - self._heartbeat.ticked_at,
            beat_seconds,
            beat_seconds < self._options.ttl,
            self._link.failures,
            self._link.fault,
            self._standstill.fault(now),
            self._pool.is_any_ready(),
            self._drain.is_on,
            self._maintenance.fault(now),
        )

    # ------------------------------------------------------------------ life

    def run(self) -> int:
        """Work until stopped. Returns 0, or another status when no runner can start."""
        self._start()
        try:
            while self._exit_status is None:
                self._turn()
            self._pool.see_out(SEE_OUT_SECONDS if self._telemetry.tracing else 0.0)
        finally:
            self._pool.kill()
            self._heartbeat.stop()
            self._maintenance.stop()
            self._telemetry.say_held_back(float("inf"))
        return self._exit_status

    def _start(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._watchdog.start()
        self._pool.replenish()
        self._heartbeat.start()
        self._maintenance.start()
        if self._code is not None:
            self._code.start()
        gc.freeze()  # what was imported stays: no collection need look at it again

    def _turn(self) -> None:
        seconds = max(0.0, self._due_at() - time.monotonic())
        if seconds > READY_SECONDS and not self._is_busy():
            self._exchange.get_ready()
        for runner in self._selector.wait(self._pool.runners, seconds):
            self._hear(runner)
        now = self._ticked_at = time.monotonic()
        if self._drain.begins():
            self._begin_drain()
        if now >= self._housekeeping_at:
            self._housekeep(now)
        if now >= self._exchange.available_at:
            self._talk(now)
        else:
            self._hand_out()
        if self._drain.is_on:
            self._finish(now)
        elif self._options.until_empty:
            self._stop_when_empty(now)

    def _due_at(self) -> float:
        """Return when something is due without a message; monotonic."""
        if self._dispatch.is_loaded:
            return 0.0
        due_at = self._housekeeping_at
        if self._exchange.is_settling:
            due_at = min(due_at, self._exchange.due_at(self._linger()))
        if self._room():
            due_at = min(
                due_at, max(self._polling.due_at(), self._exchange.available_at)
            )
        return due_at

    def _linger(self) -> float:
        return LINGER_SECONDS if self._pool.held() else 0.0

    def _room(self) -> int:
        """Jobs to claim when it is time to."""
        if self._drain.is_on or not self._identity.may_claim:
            return 0
        return self._dispatch.room(backlog=self._polling.expects_more)

    # ------------------------------------------------------------------ the database

    def _talk(self, now: float) -> None:
        if self._identity.me is not None and self._breakers.is_due(
            now, was_notified=self._polling.was_notified
        ):
            self._report_breakers(self._identity.me, now)
        if not self._drain.is_on:
            self._try_alone(now)
        room = self._room() if self._polling.is_due(now) else 0
        linger = self._linger()
        is_idle = not (
            self._dispatch.is_loaded or self._pool.held() or self._exchange.is_settling
        )
        claims_first = self._exchange.is_settling and room > 0 and self._keeps_up()
        if (
            claims_first
        ):  # what has come does not wait until what has ended is on the disk
            self._dispatch.load(self._exchange.claim(now, room))
            if time.monotonic() < self._exchange.available_at:
                return
            room, linger = 0, 0.0
        jobs = self._exchange.run(
            now,
            room=room,
            linger=linger,
            patience=PATIENCE_MS if is_idle else 0,
            meanwhile=self._use_wait
            if claims_first or self._polling.expects_more
            else None,
        )
        if not is_idle:
            # what was not done meanwhile; and what has ended makes room
            self._use_wait()
        is_backlog = (
            jobs and self._polling.expects_more and not self._exchange.looks_for_lanes
        )
        may_wait = is_backlog and not self._dispatch
        self._dispatch.load(jobs)
        if not (
            may_wait and self._room()
        ):  # else they are, while the next exchange is under way
            self._hand_out()
            self._exchange.look_for_lanes()

    def _keeps_up(self) -> bool:
        """Return True if only jobs that have just arrived wait for the loop."""
        return not (self._polling.expects_more or self._dispatch.is_loaded)

    def _use_wait(self) -> None:
        """Work while the database does: without the connection, and without what may
        need it.

        So a runner's first words and its end are heard later.
        """
        self._hand_out()
        for runner in self._pool.runners:
            if runner.takes_any:
                for message in runner.receive() or ():
                    self._inbox.heed(runner, message)

    def _hand_out(self) -> None:
        """Give jobs to runners, but give back what waits for a dependency: it takes no
        room.
        """
        claimed = jobs = self._dispatch.unload()
        if not jobs:
            return
        if self._breakers.is_any_open:
            jobs, releases = self._breakers.put_off(jobs)
            for held, release in releases:
                self._exchange.settle(held, release)
        for held, release in self._dispatch.claimed(jobs):
            self._exchange.settle(held, release)
        self._exchange.handed_out(claimed)

    def _try_alone(self, now: float) -> None:
        try:
            given_back = self._dispatch.try_alone(self._link, now)
        except psycopg.Error as error:
            self._telemetry.database_error("trial", error)
            return
        if given_back is not None:
            self._exchange.settle(*given_back)

    def _report_breakers(self, worker: int, now: float) -> None:
        try:
            settled = self._breakers.report(self._link, worker, now)
        except psycopg.Error as error:
            self._telemetry.database_error("breakers", error)
            return
        for held, report in settled:
            self._exchange.ended(held, report)
        self._tell_open_breakers()

    def _tell_open_breakers(self) -> None:
        news = self._breakers.news(time.monotonic())
        if news is not None:
            self._pool.tell_open_breakers(news)

    # ------------------------------------------------------------------ runners

    def _hear(self, runner: RunnerProcess) -> None:
        messages = runner.receive()
        if messages is None:
            self._runner_ended(runner)
            return
        for message in messages:
            hello = self._inbox.heed(runner, message)
            if hello is not None and self._pool.is_suspended:
                self._pool.suspend()
            # one whose code has changed since it was loaded is on its way out
            if hello is not None and self._pool.is_current(runner):
                self._greet(hello)
                self._pool.retire_outdated()

    def _greet(self, hello: Hello) -> None:
        """A runner is ready, and says what it can run."""
        kinds = {kind.kind: kind for kind in hello.kinds}
        has_other_schedules = self._schedules.learn(hello.schedules)
        if self._kinds.learn(kinds) or has_other_schedules:
            self._identity.leave()  # it is registered with others
        self._breakers.configure(
            hello.dependencies, {kind.kind: kind.depends_on for kind in hello.kinds}
        )
        self._tell_open_breakers()
        self._telemetry.ready(kinds)
        self._queue_check.look(each.queue for each in (*hello.kinds, *hello.schedules))
        self._polling.expect_more()

    def _runner_ended(self, runner: RunnerProcess) -> None:
        # it may have been ended for that, and then its jobs are not to be charged
        if self._identity.is_lost:
            self._declared_lost()
        self._selector.unwatch(runner)
        status = self._crashes.ended(runner)
        if status is not None:
            self._exit_status = status

    def _read_out(self, runner: RunnerProcess) -> None:
        """Take the last reports of a dead runner, then give back what it still held."""
        runner.wait()
        self._hear(runner)
        # the channel is still open, in the hands of a child that outlived it
        if runner in self._pool.runners:
            self._runner_ended(runner)

    # ------------------------------------------------------------------ housekeeping

    def _housekeep(self, now: float) -> None:
        self._housekeeping_at = now + (
            BUSY_SECONDS if self._is_busy() else IDLE_SECONDS
        )
        self._look_after_runners(now)
        if not self._exchange.is_needed(self._room()):
            self._exchange.not_needed(now)
        self._polling.others = self._heartbeat.others
        while self._unwanted:
            self._pool.cancel(self._unwanted.popleft())
        self._dispatch.hand_out_waiting(now)
        # Ask in this order: an answer that says "lost" is on record before the silence
        # ends.
        has_answer = not self._heartbeat.is_silent
        if self._identity.is_lost:
            self._declared_lost()
        if self._pool.is_suspended and has_answer:
            self._resume()
        self._retire_left(now)
        self._telemetry.say_held_back(now)
        slots = self._options.slots * self._options.runners
        self._telemetry.gauges(
            self._pool.inflight(),
            self._kinds.timeout,
            slots,
            is_draining=self._drain.is_on,
        )

    def _look_after_runners(self, now: float) -> None:
        self._pool.stop_condemned()
        self._pool.enforce_memory()
        for runner in self._pool.dead():
            self._read_out(runner)
        if self._code is not None and (changed := self._code.take()):
            logger.info("code changed", extra={"files": changed})
            self._pool.renew()
        if not self._drain.is_on:
            self._pool.replenish()
        self._pool.measure(now)
        self._crashes.tell()

    def _is_busy(self) -> bool:
        """Return True if anything needs a clock."""
        return bool(
            self._pool.held()
            or self._dispatch
            or self._identity.left
            or self._drain.is_on
        )

    def _declared_lost(self) -> None:
        """Others have our jobs: end what runs, come back as somebody new.

        What has ended is still settled: if a job is somebody else's by now the fence
            refuses it.
        """
        lost = self._identity.leave_lost()
        logger.warning("declared lost", extra={"workers": sorted(lost)})
        given_up = self._pool.give_up(lost)
        for runner in given_up:
            self._inbox.read_last(runner)
        crashed = {
            job.id
            for runner in given_up
            if not runner.blameless
            for job in runner.jobs()
        }
        self._identity.acquit(
            held
            for held in self._known()
            if held.worker in lost and held.id not in crashed
        )
        self._telemetry.declared_lost(self._pool.held())
        self._pool.forget(lost)
        self._dispatch.forget(lost)

    def _resume(self) -> None:
        """The database has answered: what runs still is ours, for what is not has been
        killed.
        """
        self._pool.resume()
        if self._heartbeat.is_silent:  # again, a moment ago
            self._pool.suspend()
        else:
            logger.info("resumed", extra={"jobs": self._pool.held()})

    def _known(self) -> Iterator[Held]:
        """The jobs that are in our hands, wherever they are."""
        return chain(
            self._pool.jobs(),
            self._dispatch,
            self._breakers.jobs(),
            self._exchange.jobs(),
        )

    def _retire_left(self, now: float) -> None:
        """Give back what identities left behind were claimed for without our knowing.

        One whose jobs we know of keeps these until they are settled.
        """
        if not self._identity.left or now < self._exchange.available_at:
            return
        try:
            self._identity.retire(self._link, self._known())
        except psycopg.Error as error:
            self._telemetry.database_error("retire", error)

    # ------------------------------------------------------------------ called by other
    # threads

    def _notified(self) -> None:
        if self._polling.notified(time.monotonic()) or self._breakers.is_used:
            self._selector.wake()

    def _silenced(self) -> None:
        """The heartbeat is not heard, so others may have our jobs, or may start them
        soon.

        The loop may be stuck in a call itself, so the handlers are suspended from here.
        """
        logger.warning("suspended: the database does not answer")
        self._pool.suspend()

    def _keep_suspended(self, now: float) -> None:
        self._pool.keep_suspended(now, SUSPENDED_TTLS * self._options.ttl)

    def _enforce_deadlines(self, now: float) -> None:
        """Here and not in the loop, which may be stuck in a call for longer than a job
        may last.
        """
        if self._pool.enforce_deadlines(now):
            self._selector.wake()

    def _exit_when_overdue(self, now: float) -> None:
        """Exit although something hangs: other workers rescue what is not settled."""
        if self._drain.is_overdue(now):
            self._pool.kill()
            os._exit(1)

    # ------------------------------------------------------------------ stopping

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        self._drain.signal()
        self._selector.wake()

    def _stop_when_empty(self, now: float) -> None:
        if self._pool.held() or self._exchange.is_settling or self._dispatch:
            return
        if self._polling.expects_more or not self._kinds or self._identity.me is None:
            return
        if self._empty_check.is_empty(now, self._kinds.names()):
            self._stop()

    def _begin_drain(self) -> None:
        held = self._pool.held()
        logger.info("draining", extra={"jobs": held, "seconds": self._drain.seconds})
        for job in self._dispatch.give_up():
            self._exchange.settle(job, Release("shutdown"))
        for job, report in self._breakers.give_up():
            self._exchange.ended(job, report)
        self._pool.stop()

    def _finish(self, now: float) -> None:
        """Drain: end once everything is settled, and give the rest back when time is
        up.
        """
        if self._pool.held() and self._drain.is_over(now):
            self._pool.kill()
            for runner in list(self._pool.runners):
                self._read_out(runner)
            return
        held_up = self._exchange.is_held_up and self._drain.is_over(now)
        if self._pool.held() or (self._exchange.is_settling and not held_up):
            return
        self._identity.leave()
        self._retire_left(now)
        if held_up:
            left = len(list(self._exchange.jobs()))
            logger.warning(
                "stopped before jobs that somebody has locked", extra={"jobs": left}
            )
            self._exit_status = self._exit_status or 1
        elif not self._identity.left:
            self._exit_status = self._exit_status or 0
            logger.info("stopped")
