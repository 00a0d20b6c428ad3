"""Runner: takes jobs from the supervisor, and reports how their attempts ended.

It knows nothing of Postgres, and keeps no state that matters. Each attempt has a task
and a context of its own, so nothing of a job reaches the next one. Jobs are taken off
one list in the order in which they came. So `SharedState.taken` tells the supervisor
which have started.

Nothing of the runner itself is a task: a handler may cancel all tasks of its loop.
"""

import asyncio
import contextlib
import contextvars
import sys
from asyncio import Task, current_task
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import repeat
from typing import Any, assert_never, cast

from redrive.encryption import Keyring
from redrive.handlers import Handler, Handlers, decode_object
from redrive.observability.tracing import Tracing
from redrive.rules.attempts.failure import class_name
from redrive.rules.attempts.settlement import DeadLetter, NotComplete, Release
from redrive.worker.channel import Channel
from redrive.worker.protocol import (
    CancelJob,
    CheckpointKept,
    Dependency,
    Died,
    Down,
    Hello,
    Jobs,
    Kind,
    Leaving,
    OpenBreakers,
    Stop,
    Suspended,
    Unstarted,
    Up,
    Work,
    decode_down,
)
from redrive.worker.run.attempt import Attempt
from redrive.worker.run.children import end_if_child, watch_forks
from redrive.worker.run.deadlines import Clock
from redrive.worker.run.notes import PROGRESS_SECONDS
from redrive.worker.run.own import clock, end_process
from redrive.worker.run.reports import Reports
from redrive.worker.run.sampler import Sampler
from redrive.worker.run.services import Services
from redrive.worker.run.traced import run_traced
from redrive.worker.shared_state import SharedState

MOST_TIMES_LEFT = 20
"""How often the event loop may be left before the process ends."""

TURN_NS = 2_000_000
"""How long jobs may start one after the other before the event loop has its turn."""

Begin = Callable[[Coroutine[Any, Any, None], contextvars.Context], object]


def beginner(loop: asyncio.AbstractEventLoop) -> Begin:
    """Return a function that runs an attempt in a task of its own, in a context.

    The task runs at once until it waits. So nobody can cancel it before the attempt has
    begun, and the event loop has nothing to do for a task that never waits.
    """
    if sys.version_info >= (3, 12):
        return lambda work, context: Task(
            work, loop=loop, context=context, name="job", eager_start=True
        )

    ready: Any = getattr(loop, "_ready", None)

    def begin(work: Coroutine[Any, Any, None], context: contextvars.Context) -> None:
        Task(work, loop=loop, context=context, name="job")
        # The first step of the task is last in the loop's queue. A loop in C has no
        # such queue, so its tasks begin in its next turn.
        if ready and ready[-1]._context is context:  # noqa: SLF001 # no eager tasks yet
            ready.pop()._run()  # noqa: SLF001

    return begin


class Runner:
    """Runs jobs from one channel until it is told to stop or the supervisor is gone."""

    def __init__(  # noqa: PLR0913 # what it works with
        self,
        channel: Channel,
        shared: SharedState,
        handlers: Handlers,
        where: dict[str, str],
        tracing: Tracing | None = None,
        keyring: Keyring | None = None,
        *,
        samples: bool = True,
        source_lines: int = 0,
    ) -> None:
        self._channel = channel
        self._shared = shared
        self._reports = Reports(channel, Sampler(channel.send) if samples else None)
        self._tracing = tracing
        self._services = Services(
            handlers=handlers,
            send=self._send_soon,
            where=where,
            keyring=keyring,
            source_lines=source_lines,
        )

        self._list: deque[tuple[Jobs, Work]] = deque()
        self._free = list(range(shared.slots))
        self._attempts: list[Attempt | None] = [None] * shared.slots
        self._unwanted: set[tuple[int, int]] = set()
        self._context = self._services.context
        self._leftovers = self._services.leftovers
        self._stopping = self._is_over = self._is_leaving = False
        self._is_starting = self._is_turn_due = False
        self._times_left = 0

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say hello, then work until the end, whatever handlers do to the loop."""
        self._loop = loop
        self._begin = beginner(loop)
        self._leftovers.watch(loop)
        watch_forks(self._let_go)
        loop.add_reader(self._channel.fileno(), self._read)
        self._channel.send(_hello(self._services.handlers))

        Clock(loop, self._attempts, self._shared.beat).start()
        self._pass_on_notes()

        while not self._is_over:
            why = "stopped"
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001 # a SystemExit of a task ends the loop, not its jobs
                why = class_name(error)

            if not self._is_over:
                self._go_on(why)

    def _go_on(self, why: str) -> None:
        """Let the running jobs end after something has ended the event loop."""
        self._times_left += 1
        if self._loop.is_closed() or self._times_left > MOST_TIMES_LEFT:
            end_process(1)
        self._leave(f"its event loop was left: {why}")

    def _leave(self, why: str) -> None:
        """Start nothing more, and have another runner take the place of this one."""
        self._shared.halt()
        if not self._is_leaving:
            self._is_leaving = True
            self._send_soon(Leaving(why))

    def _let_go(self) -> None:
        """Close what belongs to this runner, in a child that a handler has forked.

        If the handler is async, the child ends where it would wait: what comes after
        is the turn of the parent's jobs.
        """
        with contextlib.suppress(OSError):  # a handler has closed it
            self._channel.close()
            self._shared.close()

        # Listed jobs and reports are the parent's.
        self._list.clear()
        self._reports = Reports(self._channel)
        self._loop.call_soon(end_if_child)
        with contextlib.suppress(AttributeError):  # uvloop has no such queue
            cast("Any", self._loop)._ready.rotate(1)  # noqa: SLF001 # there is no other way

    def _pass_on_notes(self) -> None:
        self._services.notes.send_progress()
        self._loop.call_later(PROGRESS_SECONDS, self._pass_on_notes)

    def _send_soon(self, message: Up) -> None:
        """Send a message from whatever thread a handler runs in."""
        self._loop.call_soon_threadsafe(self._channel.send, message)

    def _read(self) -> None:
        frames = self._channel.receive()
        if frames is None:
            # The supervisor is gone, so the running jobs are no longer ours.
            end_process(0)
        for frame in frames:
            self._obey(decode_down(frame))

    def _obey(self, message: Down) -> None:
        match message:
            case Jobs(rows=rows):
                self._list.extend(zip(repeat(message), rows))
                if not self._is_turn_due:
                    self._turn()

            case Stop():
                self._stop()
            case CancelJob():
                self._cancel(message)
            case OpenBreakers():
                self._services.dependencies.learn(message)
            case Died():
                self._hear_of_death(message)
            case CheckpointKept():
                self._services.notes.answered(message)
            case Suspended(seconds=stopped):
                self._postpone_timeouts(stopped)
            case _:
                assert_never(message)

    def _postpone_timeouts(self, seconds: float) -> None:
        for attempt in self._attempts:
            if attempt is not None:
                attempt.over_at += seconds

    def _cancel(self, message: CancelJob) -> None:
        """End a job's attempt, or let it end as soon as it starts.

        The job keeps its place on the list: the supervisor counts started jobs by
        places.
        """
        key = message.id, message.deliveries
        for attempt in self._attempts:
            if attempt is not None and attempt.key == key:
                attempt.cancel()
                return

        if key in ((work.id, work.deliveries) for _, work in self._list):
            self._unwanted.add(key)

    def _hear_of_death(self, died: Died) -> None:
        report = died.report
        if report.failure is not None:
            failure = decode_object(report.failure)
            self._services.hooks.died(
                died.id, died.kind, died.attempt, report.reason or "", failure
            )

    def _stop(self) -> None:
        self._stopping = True

        self._channel.send(Unstarted([work.id for _, work in self._list]))
        self._list.clear()
        self._end_if_done()

    def _turn(self) -> None:
        """Start listed jobs while slots are free, and report the jobs that have ended.

        A job that ends while it is started frees its slot for the next one. From time
        to time, the event loop has its turn before the next one.
        """
        self._is_turn_due = False
        if self._is_starting:
            return

        # Do this first: a job that starts may block the event loop, or end the process.
        self._reports.send(more=bool(self._list))
        self._is_starting = True
        over_at = 0
        try:
            while self._list and self._free:
                now = clock.monotonic_ns()
                over_at = over_at or now + TURN_NS
                if now > over_at:
                    self._turn_soon()
                    break
                if not self._start(now):
                    break
        finally:
            self._is_starting = False
            self._reports.send(more=bool(self._list))

        if self._stopping:
            self._end_if_done()

    def _turn_soon(self) -> None:
        """Go on in the next turn of the event loop."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn, context=self._context)

    def _start(self, now: int) -> bool:
        """Start the first listed job in a free slot. Returns False if no job may start."""
        batch, work = self._list[0]
        slot = self._free[-1]
        # Do this first, so that a job that kills this process is known.
        if not self._shared.start(slot, work.id, work.deliveries, now):
            return False

        self._list.popleft()
        self._free.pop()
        attempt = self._attempts[slot] = Attempt(self._services, batch, work, now)
        if self._unwanted and attempt.key in self._unwanted:
            self._unwanted.discard(attempt.key)
            attempt.is_cancelled = True

        self._begin(self._run(slot, attempt), self._context.copy())
        return True

    async def _run(self, slot: int, attempt: Attempt) -> None:
        """Run an attempt in this task, then make way for the next one."""
        attempt.task = current_task(self._loop)  # pyright: ignore[reportAttributeAccessIssue] # it runs in one
        started = self._leftovers.begin()
        try:
            if self._tracing is None or self._tracing.is_overrun:
                settlement = await attempt.run()
            else:
                settlement = await run_traced(attempt, self._tracing)

            is_alone = len(self._free) == self._shared.slots - 1
            self._leftovers.end(attempt.work, started, is_alone=is_alone)
            self._end(slot, attempt, settlement)
        except BaseException as error:
            # The job counts as running until its timeout.
            self._leave(f"it could not record the end of a job: {class_name(error)}")
            raise

        self._free.append(slot)
        if not self._is_starting:
            self._turn_soon()

    def _end_if_done(self) -> None:
        """End the runner if all its jobs have ended, and their reports are sent."""
        if len(self._free) < self._shared.slots:
            return

        self._reports.flush()
        if self._channel.is_blocked:
            self._loop.call_later(0.005, self._end_if_done)
        else:
            self._is_over = True
            self._loop.stop()

    def _end(self, slot: int, attempt: Attempt, settlement: NotComplete | None) -> None:
        work = attempt.work
        self._attempts[slot] = None
        if attempt.is_noting:
            self._services.notes.forget(attempt.key)

        if settlement is None:
            # Send this before the job counts as completed: then the runner may die.
            if attempt.returned is not None:
                self._channel.send(attempt.returned)

            self._shared.complete(slot, work.id, work.deliveries)
            self._reports.completed(attempt)
            return

        self._shared.clear(slot)
        self._reports.ended(attempt, settlement)
        if isinstance(settlement, Release) and settlement.why == "no_thread":
            self._leave("it can start no thread")

        # If the handler completed the job, it is probably gone and did not die.
        if isinstance(settlement, DeadLetter) and not attempt.completed_by_handler:
            self._died(work, settlement)

    def _died(self, work: Work, settlement: DeadLetter) -> None:
        reason = str(settlement.reason)
        self._services.hooks.died(
            work.id, work.kind, work.attempt, reason, settlement.failure.record()
        )


def _hello(handlers: Handlers) -> Hello:
    dependencies = [
        Dependency(name, breaker.threshold, breaker.window, breaker.cooldown)
        for name, breaker in handlers.breakers.items()
    ]
    kinds = [_kind(handler) for handler in handlers]
    return Hello(
        kinds=kinds,
        dependencies=dependencies,
        schedules=list(handlers.schedules.values()),
    )


def _kind(handler: Handler) -> Kind:
    policy = handler.policy
    return Kind(
        kind=handler.kind,
        timeout=handler.timeout,
        policy=policy.without_rules(),
        depends_on=handler.depends_on,
        queue=handler.queue,
        holds_key=handler.on_death == "hold",
        limits=handler.limits,
        approval=handler.approval,
        heal=handler.heal,
        secret=tuple(sorted(handler.secret)),
        redrive_rate=handler.redrive_rate,
        repeatable=handler.repeatable,
    )
