"""The supervisor: claims jobs, hands them to runners, settles what comes back. It never runs user
code.

One thread, one loop, one connection: every turn settles what has ended and claims what there is
room for, in one round trip and one commit. While that is under way the runners work on what they
have, so batches grow by themselves under load and are one job long when there is only one.
"""

import contextlib
import gc
import logging
import os
import random
import selectors
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

import msgspec
import psycopg

from redrive.database.connect import Link, Trouble, Watchdog, trouble
from redrive.rules.failure import made_up
from redrive.rules.model import Category
from redrive.rules.settlement import DeadLetter, NotComplete, Outcome, Release
from redrive.worker import store
from redrive.worker.protocol import (
    Died,
    Done,
    Ended,
    Hello,
    Observed,
    OpenBreakers,
    Report,
    SideEffect,
    Unstarted,
    Up,
    decode_up,
    has_expired,
    report_of,
)
from redrive.worker.supervisor.breakers import Breakers
from redrive.worker.supervisor.capacity import Capacity
from redrive.worker.supervisor.crash import Crash, OomWatch, loss
from redrive.worker.supervisor.dispatch import Dispatch
from redrive.worker.supervisor.drain import Drain
from redrive.worker.supervisor.heartbeat import Heartbeat
from redrive.worker.supervisor.identity import Identity
from redrive.worker.supervisor.lanes import LaneBook
from redrive.worker.supervisor.listener import Listener
from redrive.worker.supervisor.pool import Batch, Held, RunnerPool, RunnerProcess
from redrive.worker.supervisor.settlements import Endings, Try
from redrive.worker.supervisor.telemetry import Telemetry

logger = logging.getLogger("redrive.worker")

LINGER_SECONDS = 0.002
"""How long an ending may wait for company, while more is under way."""

BUSY_SECONDS, IDLE_SECONDS = 0.1, 0.5
"""Between two rounds of housekeeping: an idle worker should cost next to nothing."""

BREAKER_SECONDS = 0.05
"""How soon after one report of what was seen of dependencies the next may follow."""

TELL_AGAIN_SECONDS = 0.1
"""Until a side effect is reported again whose job its handler holds in a transaction of its own."""

SOON_SECONDS = 60.0
"""`until_empty`: a job due within this time is waited for."""

UNSTORABLE_SECONDS = 60.0
"""When a job runs again whose ending the database refuses in every form."""

SEE_OUT_SECONDS = 1.2
"""How long runners that have nothing left to do may take to export their last spans."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker runs. Durations in seconds; `queues` None = all; `where` is kept with every
    failure.
    """

    url: str
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
    memory_limit: int = 0
    where: Mapping[str, str] = field(default_factory=dict[str, str])


class Supervisor:
    """One worker. `run` returns the exit status."""

    def __init__(self, options: WorkerOptions, telemetry: Telemetry) -> None:
        self.options = options
        self.telemetry = telemetry
        self.link = Link(options.url, "redrive worker")
        self.pool = RunnerPool(
            options.handlers,
            options.targets,
            options.runners,
            options.slots,
            options.memory_limit,
            options.where,
        )
        self.lanes = LaneBook(options.queues)
        self.capacity = Capacity(options.slots)
        self.dispatch = Dispatch(self.pool, self.capacity, self._watch)
        self.breakers = Breakers()
        self.drain = Drain(options.drain)
        heartbeat_link = Link(options.url, "redrive heartbeat", synchronous_commit="off")
        listen_link = Link(options.url, "redrive listen")
        self.heartbeat = Heartbeat(
            heartbeat_link,
            options.ttl,
            self._silenced,
            telemetry.rescued,
            self._wake,
            self.pool.held,
        )
        self.listener = Listener(listen_link, self._notified)
        self.watchdog = Watchdog(
            self.link,
            heartbeat_link,
            listen_link,
            checks=(self.heartbeat.check_silence, self._exit_when_overdue),
        )

        self.identity = Identity(options.name, options.version, self.heartbeat)
        self.endings = Endings(telemetry)
        self.oom_watch = OomWatch()
        self.untold_deaths: deque[Died] = deque(maxlen=1000)
        self.told: list[tuple[int, SideEffect]] = []  # side effects that handlers reported
        self.tell_at = 0.0

        self.selector = selectors.DefaultSelector()
        self.wake_read, self.wake_write = os.pipe()
        for fd in (self.wake_read, self.wake_write):
            os.set_blocking(fd, False)
        self.selector.register(self.wake_read, selectors.EVENT_READ)
        self.was_notified = False
        self.poll_at = 0.0
        self.hold_off_until = 0.0
        self.active_at = time.monotonic()
        self.more_likely = True
        self.stopped = False
        self.exit_status = 0
        self.ticked_at = time.monotonic()
        self.housekeeping_at = 0.0
        self.empty_check_at = 0.0
        self.breakers_at = 0.0
        self.lanes_due_at = float("inf")

    # ------------------------------------------------------------------ life

    def run(self) -> int:
        """Work until stopped. Returns 0, or another status when no runner can start."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self.watchdog.start()
        self.pool.replenish(self._watch)
        self.listener.start()
        self.heartbeat.start()
        gc.freeze()  # what was imported stays: no collection need look at it again
        try:
            while not self.stopped:
                self._turn()
            self.pool.see_out(SEE_OUT_SECONDS if self.telemetry.tracing else 0.0)
        finally:
            self.pool.kill()
            self.heartbeat.stopping.set()
            self.listener.stopping.set()
        return self.exit_status

    def _turn(self) -> None:
        self._watch_blocked()
        for key, events in self.selector.select(self._wait()):
            if events & selectors.EVENT_WRITE:
                with contextlib.suppress(OSError):  # it is gone; its channel will say so
                    key.data.channel.flush()
            if not events & selectors.EVENT_READ:
                continue
            if key.fileobj == self.wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake_read, 4096)
            else:
                self._read(key.data)
        now = self.ticked_at = time.monotonic()
        if self.drain.is_asked and not self.drain.is_on:
            self._drain()
        if now >= self.housekeeping_at:
            self._housekeep(now)
        if now >= max(self.hold_off_until, self.link.retry_at):
            if (
                self.identity.me is not None
                and now >= self.breakers_at
                and self.breakers.is_due(now, was_notified=self.was_notified)
            ):
                self._report_breakers(now)
            self._exchange(now)
        if self.drain.is_on:
            self._finish(now)
        elif self.options.until_empty:
            self._stop_when_empty(now)

    def _wait(self) -> float:
        """Seconds until something is due by itself."""
        now = time.monotonic()
        due = [self.housekeeping_at]
        if self.endings:
            due.append(
                max(self.endings.due_at(self._linger()), self.hold_off_until, self.link.retry_at)
            )
        if self._can_claim():
            poll_at = now if self.more_likely or self.was_notified else self.poll_at
            due.append(max(poll_at, self.hold_off_until, self.link.retry_at))
        return max(0.0, min(due) - now)

    def _linger(self) -> float:
        return LINGER_SECONDS if self.pool.held() else 0.0

    # ------------------------------------------------------------------ runners

    def _watch(self, runner: RunnerProcess) -> None:
        self.selector.register(runner.channel.fileno(), selectors.EVENT_READ, runner)

    def _watch_blocked(self) -> None:
        """Hear of the runners whose channels are full when these take more."""
        for runner in self.pool.runners:
            events = selectors.EVENT_READ | (
                selectors.EVENT_WRITE if runner.channel.is_blocked else 0
            )
            if self.selector.get_key(runner.channel.fileno()).events != events:
                self.selector.modify(runner.channel.fileno(), events, runner)

    def _read(self, runner: RunnerProcess) -> None:
        frames = runner.channel.receive()
        if frames is None:
            self._runner_ended(runner)
            return
        for frame in frames:
            self._heed(runner, decode_up(frame))
        runner.idle_since = time.monotonic()

    def _heed(self, runner: RunnerProcess, message: Up) -> None:
        match message:
            case Done(rows=rows, example=example):
                self._completed(runner, rows, example)
            case Ended(reports=reports):
                for report in reports:
                    self._heed_report(runner, report)
            case SideEffect(id=job):
                if (held := runner.held.get(job)) is not None:
                    self.told.append((held.worker, message))
                    self.tell_at = 0.0
            case Unstarted(ids=ids):
                for job in ids:
                    if (held := runner.held.pop(job, None)) is not None:
                        self._take_back(held)
            case Observed(name=name, succeeded=succeeded):
                self.breakers.observed(name, succeeded=succeeded)
            case Hello(kinds=kinds, dependencies=dependencies):
                runner.ready = True
                self.pool.kinds = {kind.kind: kind for kind in kinds}
                self.breakers.configure(
                    dependencies, {kind.kind: kind.depends_on for kind in kinds}
                )
                self._tell_bar()
                self.telemetry.ready(self.pool.kinds)
                self.more_likely = True

    def _heed_report(self, runner: RunnerProcess, report: Report) -> None:
        held = runner.held.get(report.id)
        if held is None or held.deliveries != report.deliveries:
            return  # of an earlier claim: the job in hand is not it
        del runner.held[report.id]
        runner.ended(1)
        if self.drain.is_on or not self.breakers.holds_back(held, report):
            self._ended(held, report)

    def _completed(
        self,
        runner: RunnerProcess,
        rows: Sequence[tuple[int, int, float]],
        example: tuple[int, str] | None = None,
    ) -> None:
        held_by = runner.held
        finished: list[tuple[Held, float]] = []
        for job, deliveries, spent in rows:
            held = held_by.get(job)
            if held is not None and held.row[1] == deliveries:
                del held_by[job]
                finished.append((held, spent))
        runner.ended(len(finished))
        self.capacity.heed(runner, time.monotonic())
        if self.breakers.is_used:
            for held, _ in finished:
                self.breakers.saw(held.kind, succeeded=1)
        self.endings.completed(finished, example)

    def _ended(self, held: Held, report: Report) -> None:
        if report.outcome in {Outcome.RETRY, Outcome.RELEASE} and report.run_at is None:
            self.poll_at = min(self.poll_at, time.monotonic() + report.delay + 0.001)
        self.endings.ended(held, report)

    def _settle(self, held: Held, settlement: NotComplete) -> None:
        self._ended(held, report_of(held.id, held.deliveries, settlement))

    def _runner_ended(self, runner: RunnerProcess) -> None:
        # it may have been ended for that, and then its jobs are not to be charged
        if self.heartbeat.lost:
            self._declared_lost()
        self.selector.unregister(runner.channel.fileno())
        remains = self.pool.sort_out(runner)
        status = self.pool.bury(runner)
        # killed is another matter: it may start yet
        if not self.pool.kinds and not runner.alone and status >= 0:
            logger.error(
                "a runner ended before it could say what it runs", extra={"status": status}
            )
            # it could not even load the handlers, and has said why
            self.exit_status = status if status > 0 else 1
            self.stopped = True
            return
        self.telemetry.runner_ended(runner, status, len(remains.running))
        self._completed(runner, [(held.id, held.deliveries, 0.0) for held in remains.completed])
        for held in remains.waiting:
            self._take_back(held)
        death = Crash(status, runner.peak_memory, self.oom_watch.since())
        out_of_grace = self.drain.is_on and self.drain.is_over(time.monotonic())
        for held in (*remains.running, *remains.failed):
            if out_of_grace:
                self._settle(held, Release("shutdown"))
            else:
                running = len(remains.running) if held in remains.running else 0
                self._lost(held, runner, death, running)

    def _take_back(self, held: Held) -> None:
        """A job that never started is still ours: another runner gets it, unless we are stopping."""
        if self.drain.is_on:
            self._settle(held, Release("shutdown"))
        else:
            self.dispatch.take_back(held)

    def _lost(self, held: Held, runner: RunnerProcess, death: Crash, running: int) -> None:
        settlement = loss(
            held, runner, death, running, self.pool.kind(held.kind), self.options.where
        )
        self._settle(held, settlement)
        if isinstance(settlement, DeadLetter):
            report = report_of(held.id, held.deliveries, settlement)
            self.untold_deaths.append(Died(held.id, held.kind, held.row[2], report))

    def _tell_deaths(self) -> None:
        """Let the registry's `on_dead` hear of deaths that no runner saw, as soon as one is there
        to listen.
        """
        listener = next((r for r in self.pool.runners if r.ready and not r.retiring), None)
        while listener is not None and self.untold_deaths:
            with contextlib.suppress(OSError):
                listener.channel.send(self.untold_deaths.popleft())

    # ------------------------------------------------------------------ the database

    def _can_claim(self) -> bool:
        if self.drain.is_on or self.dispatch.is_full or not self.pool.kinds:
            return False
        return self.capacity.is_worth_a_claim(self.pool.runners, backlog=self.more_likely)

    def _wants_to_claim(self, now: float) -> bool:
        return (self.more_likely or self.was_notified or now >= self.poll_at) and self._can_claim()

    def _exchange(self, now: float) -> None:
        """One round trip: settle what has ended, claim what there is room for."""
        claims = self._wants_to_claim(now)
        settles = bool(self.endings) and (claims or now >= self.endings.due_at(self._linger()))
        if not claims and not settles and (not self.told or now < self.tell_at):
            return
        taken = self.endings.take()
        told, self.told = self.told, []
        request: store.ClaimRequest | None = None
        looks = False
        try:
            with self.link.use() as conn:
                me = self.identity.take(conn)
                if claims:
                    looks = self.lanes.is_stale(now, was_notified=self.was_notified)
                    if looks and not self.lanes.known:
                        self._look_for_lanes(conn)
                        looks = False
                    request = self.lanes.request(me, self.capacity.free(self.pool.runners), now)
                if claims and request is None:
                    self._poll_later(now)
                    if self.was_notified:  # of a lane that could not be looked for yet
                        self.poll_at = min(self.poll_at, max(now, self.lanes.may_look_at))
                self.was_notified = False
                if request is None and not taken and not told:
                    return
                if told:
                    again = store.side_effects(conn, told)
                    self.told, told = [one for one in told if one[1].id in again], []
                    self.tell_at = now + TELL_AGAIN_SECONDS
                began = time.monotonic()
                completed, settled, rows = store.exchange(conn, *taken.columns(), request)
                cost = time.monotonic() - began
        except psycopg.Error as error:
            self.telemetry.database_error("exchange", error)
            self._failed(error, taken, told)
            return
        self.telemetry.settled(taken.held(), cost)
        self.endings.done(taken, completed, settled)
        if request is not None:
            self.lanes.learn(request, rows, cost)
            self._claimed_rows(request, rows, cost)
            self.more_likely = len(rows) == request.want
            if not self.more_likely:
                self._poll_later(time.monotonic())
        if looks:
            self._look_again()

    def _failed(self, error: psycopg.Error, taken: Try, told: list[tuple[int, SideEffect]]) -> None:
        """An exchange came to nothing: keep what it was to write.

        When the connection was lost the identity is left behind: jobs may have been claimed for it
        unseen; and a server that crashed may have forgotten claims of it that were committed
        relaxed, and give us the same jobs again under the same fence.
        """
        match trouble(error):
            case Trouble.DATA if taken.reports or told:
                self.endings.put_back(Try(taken.completions, []))
                self._settle_singly(taken.reports)
            case Trouble.AGAIN:
                self.told = told + self.told
                self.endings.put_back(taken)
                self.hold_off_until = time.monotonic() + 0.01 + 0.1 * random.random()
                self.poll_at = 0.0
            case Trouble.LOST:
                self.told = told + self.told
                self.endings.put_back(taken, may_be_done=True)
                self.identity.leave()
                self.poll_at = 0.0
            case _:
                raise error

    def _report_breakers(self, now: float) -> None:
        self.breakers_at = now + BREAKER_SECONDS
        try:
            settled = self.breakers.report(self.link, self.identity.me or 0, now)
        except psycopg.Error as error:
            self.telemetry.database_error("breakers", error)
            return
        for held, report in settled:
            self._ended(held, report)
        self._tell_bar()

    def _tell_bar(self) -> None:
        """Tell the runners which dependencies are barred, when that has changed."""
        bar = self.breakers.bar()
        if bar is None:
            return
        # one probe in the whole fleet
        prober = next((r for r in self.pool.runners if r.takes_any), None)
        for runner in self.pool.runners:
            with contextlib.suppress(OSError):
                runner.channel.send(bar if runner is prober else OpenBreakers(bar.names, {}))

    def _look_for_lanes(self, conn: store.Connection) -> set[store.Lane]:
        """Ask where jobs are. Returns the lanes that were not known."""
        began, before = time.monotonic(), self.lanes.known
        found = store.lanes(conn, self.options.queues)
        due_in = self.lanes.replace(found, began, time.monotonic())
        self.lanes_due_at = float("inf") if due_in is None else began + due_in
        return self.lanes.known - before

    def _look_again(self) -> None:
        """See whether there are new lanes, after the jobs of those that were known are on their
        way.
        """
        try:
            with self.link.use() as conn:
                self.more_likely |= bool(self._look_for_lanes(conn))
        except psycopg.Error as error:
            self.telemetry.database_error("lanes", error)
            self._failed(error, Try([], []), [])

    def _poll_later(self, now: float) -> None:
        """Poll soon after activity and rarely when idle: about a fifth of the time since something
        happened.
        """
        self.more_likely = False
        interval = min(1.0, max(0.005, (now - self.active_at) * 0.2))
        self.poll_at = now + interval * (0.8 + 0.4 * random.random())
        if self.lanes_due_at > now:
            self.poll_at = min(self.poll_at, self.lanes_due_at + 0.001)

    def _claimed_rows(
        self, request: store.ClaimRequest, rows: list[store.Row], cost: float
    ) -> None:
        self.telemetry.claimed(request, rows, cost)
        if not rows:
            return
        self.active_at = time.monotonic()
        batch = Batch(request.worker, [lane.queue for lane in request.lanes])
        if self.breakers.is_barring:
            rows = self._put_off(batch, rows)
        self.dispatch.claimed(batch, rows)

    def _put_off(self, batch: Batch, rows: list[store.Row]) -> list[store.Row]:
        """Give back what waits for a dependency: it takes no room. Returns the others, and what
        waits no longer.
        """
        others: list[store.Row] = []
        for row in rows:
            release = None if has_expired(row[5]) else self.breakers.put_off(row[3])
            if release is None:
                others.append(row)
            else:
                self._settle(Held(row, batch), release)
        return others

    def _settle_singly(self, reports: list[tuple[Report, Held]]) -> None:
        """A record in the batch is not acceptable to the database: find it, and say a constant in
        its place.
        """
        for report, held in reports:
            constant = made_up(
                "UnstorableError", "the failure could not be stored", Category.OTHER, held.kind
            )
            bare = msgspec.structs.replace(
                report,
                failure=None
                if report.failure is None
                else msgspec.json.encode(constant.record()).decode(),
            )
            # The last one holds nothing that came from a handler: whatever was refused, the job
            # must not stay claimed.
            plain = Report(
                report.id,
                report.deliveries,
                Outcome.RELEASE,
                UNSTORABLE_SECONDS,
                reason="unstorable",
                may_be_gone=report.may_be_gone,
            )
            for version in (report, bare, plain):
                attempt = Try([], [(version, held)])
                try:
                    with self.link.use() as conn:
                        _, settled, _ = store.exchange(conn, *attempt.columns(), None)
                    self.endings.done(attempt, None, settled)
                    break
                except psycopg.Error as error:
                    self.telemetry.database_error("settle", error)
                    if trouble(error) is not Trouble.DATA:
                        self.endings.put_back(attempt, may_be_done=True)
                        break

    # ------------------------------------------------------------------ housekeeping

    def _housekeep(self, now: float) -> None:
        self.housekeeping_at = now + (BUSY_SECONDS if self._is_busy() else IDLE_SECONDS)
        self.pool.enforce_deadlines()
        self.pool.enforce_memory()
        for runner in [r for r in self.pool.runners if r.is_dead]:
            self._read_out(runner)
        if not self.drain.is_on:
            self.pool.replenish(self._watch)
        for runner in self.pool.runners:
            self.capacity.measure(runner, now)
        self._tell_deaths()
        self.dispatch.tend(now)
        if self.heartbeat.lost:
            self._declared_lost()
        self._retire_left(now)
        self.telemetry.gauges(self)

    def _is_busy(self) -> bool:
        """Whether there is anything that a clock must be kept for."""
        return bool(self.pool.held() or self.dispatch or self.identity.left or self.drain.is_on)

    def _declared_lost(self) -> None:
        """Others may have our jobs already: end what runs, come back as somebody new.

        What has ended is still settled: if the jobs are others' by now the fence refuses it, and if
        it was only the database that was away, no work is done twice.
        """
        lost = self.identity.leave_lost()
        logger.warning("declared lost", extra={"workers": sorted(lost)})
        self.telemetry.declared_lost(self.pool.held())
        for runner in self.pool.runners:
            theirs = [held.id for held in runner.held.values() if held.worker in lost]
            for job in theirs:
                del runner.held[job]
            if theirs:
                runner.give_up()
        self.dispatch.forget(lost)

    def _retire_left(self, now: float) -> None:
        """Give back what an identity was claimed for without our knowing, once what we know of it
        is settled.
        """
        if not self.identity.left or now < max(self.hold_off_until, self.link.retry_at):
            return
        known = {h.worker for r in self.pool.runners for h in r.held.values()}
        known |= self.endings.workers()
        known |= {held.worker for held in (*self.dispatch, *self.breakers.holding())}
        try:
            self.identity.retire(self.link, known)
        except psycopg.Error as error:
            self.telemetry.database_error("retire", error)

    # ------------------------------------------------------------------ stopping

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.drain.signal()
        self._wake()

    def _exit_when_overdue(self, now: float) -> None:
        """Whatever hangs, the process ends: what is not settled by then is rescued by others."""
        if self.drain.is_overdue(now):
            self.pool.kill()
            os._exit(1)

    def _notified(self) -> None:
        self.was_notified = True
        self.active_at = time.monotonic()
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self.wake_write, b"w")

    def _silenced(self) -> None:
        """Called by the heartbeat. The loop may be stuck in a call itself, so the handlers are ended
        from here.
        """
        self.pool.kill()
        self._wake()

    def _drain(self) -> None:
        self.drain.is_on = True
        logger.info("draining", extra={"jobs": self.pool.held(), "seconds": self.drain.seconds})
        for held in self.dispatch.give_up():
            self._settle(held, Release("shutdown"))
        for held, report in self.breakers.give_up_holding():
            self._ended(held, report)
        self.pool.stop()

    def _finish(self, now: float) -> None:
        """While draining: end when everything is settled; at the end of the grace, give the rest
        back.
        """
        if self.pool.held() and self.drain.is_over(now):
            self.pool.kill()
            for runner in list(self.pool.runners):
                self._read_out(runner)
            return
        if self.pool.held() or self.endings:
            return
        self.identity.leave()
        self._retire_left(now)
        if not self.identity.left:
            self.stopped = True
            logger.info("stopped")

    def _read_out(self, runner: RunnerProcess) -> None:
        """Take the last reports of a dead runner, then give back what it still held."""
        runner.wait()
        self._read(runner)
        # the channel is still open, in the hands of a child that outlived it
        if runner in self.pool.runners:
            self._runner_ended(runner)

    def _stop_when_empty(self, now: float) -> None:
        idle = not (self.pool.held() or self.endings or self.dispatch or self.more_likely)
        if not idle or now < self.empty_check_at or not self.pool.kinds or self.identity.me is None:
            return
        self.empty_check_at = now + 0.2
        try:
            with self.link.use() as conn:
                pending = store.is_pending(
                    conn, self.options.queues, list(self.pool.kinds), SOON_SECONDS
                )
        except psycopg.Error as error:
            self.telemetry.database_error("pending", error)
            return
        if not pending:
            self._on_signal(signal.SIGTERM, None)
