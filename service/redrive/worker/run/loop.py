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
from collections import deque
from collections.abc import Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from itertools import repeat
from typing import Any, assert_never, cast

from redrive.encryption import Keyring
from redrive.handlers import Handler, Handlers, decode_object
from redrive.observability.tracing import Tracing
from redrive.rules.attempts.failure import class_name
from redrive.rules.attempts.settlement import DeadLetter, NotComplete, Release
from redrive.signals import seconds
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
from redrive.worker.run.leftovers import Started
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

if sys.version_info >= (3, 12):

    def begin(
        work: Coroutine[Any, Any, None],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
    ) -> None:
        """Run an attempt in a task of its own, at once until it waits.

        The event loop has nothing to do for a task that never waits.
        """
        asyncio.Task(work, loop=loop, context=context, eager_start=True)

else:

    class AttemptRun(asyncio.Task[None]):
        """Task of one attempt. It cannot be cancelled before the attempt has begun."""

        def cancel(self, msg: Any | None = None) -> bool:
            """Cancel the handler. Returns False if there is nothing to cancel."""
            work = cast("Coroutine[Any, Any, None]", self.get_coro())
            return getcoroutinestate(work) != CORO_CREATED and super().cancel(msg)

    def begin(
        work: Coroutine[Any, Any, None],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
    ) -> None:
        """Run an attempt in a task of its own, in the next turn of the loop."""
        AttemptRun(work, loop=loop, context=context)


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
        self._is_filling = self._is_halted = False
        self._times_left = self._coming = self._started_ns = 0

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say hello, then work until the end, whatever handlers do to the loop."""
        self._loop = loop
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
                self._fill()

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

    def _fill(self) -> None:
        """Make a task for each listed job, while slots are free.

        A task that ends while it is made frees its slot for the next one. From time to
        time, the event loop has its turn before the next one.
        """
        if self._is_filling:
            return

        self._is_filling = True
        began = 0
        is_turn_over = False
        try:
            while self._free and len(self._list) > self._coming:
                if self._is_halted or is_turn_over:
                    break
                self._coming += 1
                begin(self._run(self._free.pop()), self._loop, self._context.copy())

                began = began or self._started_ns
                is_turn_over = self._started_ns - began > TURN_NS
        finally:
            self._is_filling = is_turn_over

        if is_turn_over:
            self._loop.call_soon(self._go_on_filling)

    def _go_on_filling(self) -> None:
        """Go on in the next turn of the event loop."""
        self._is_filling = False
        self._fill()

    async def _run(self, slot: int) -> None:
        """Run the first listed job in this task, then make way for the next one.

        The job is taken only now: a handler whose turn comes first may block the loop.
        """
        self._coming -= 1
        attempt = self._start(slot)

        if attempt is not None:
            started = self._leftovers.begin()
            try:
                if self._tracing is None or self._tracing.is_overrun:
                    settlement = await attempt.run()
                else:
                    settlement = await run_traced(attempt, self._tracing)
                self._clear_up(attempt, started)
                self._end(slot, attempt, settlement)
            except BaseException as error:
                # The job counts as running until its timeout.
                self._leave(
                    f"it could not record the end of a job: {class_name(error)}"
                )
                raise

        self._free.append(slot)
        if attempt is not None and self._list:
            self._fill()
        if self._stopping:
            self._end_if_done()

    def _start(self, slot: int) -> Attempt | None:
        """Take the first listed job. Returns None if the list is empty, or no job may start."""
        if not self._list:
            return None

        batch, work = self._list[0]
        started = self._started_ns = clock.monotonic_ns()
        # Do this first, so that a job that kills this process is known.
        if not self._shared.start(slot, work.id, work.deliveries, started):
            self._is_halted = True
            return None

        self._list.popleft()
        attempt = Attempt(self._services, batch, work, started)
        attempt.task = asyncio.current_task()  # pyright: ignore[reportAttributeAccessIssue] # it runs in one

        if self._unwanted and (work.id, work.deliveries) in self._unwanted:
            self._unwanted.discard((work.id, work.deliveries))
            attempt.is_cancelled = True

        self._attempts[slot] = attempt
        return attempt

    def _clear_up(self, attempt: Attempt, started: Started) -> None:
        """End what a job has left behind; `started` are its tasks."""
        if self._leftovers.are_there(started):
            self._leftovers.end(attempt.work, started)
        if len(self._free) == self._shared.slots - 1:
            self._leftovers.restore_filters()

    def _end_if_done(self) -> None:
        """End the runner if all its jobs have ended, and their reports are sent."""
        if not self._stopping or len(self._free) < self._shared.slots:
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
            self._reports.completed(attempt, more=bool(self._list))
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
        timeout=seconds(policy.timeout),
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
