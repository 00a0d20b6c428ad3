"""Runner: takes jobs from the supervisor, and reports how their attempts ended.

It knows nothing of Postgres, and keeps no state that matters. Long-lived slots take
jobs off one list in the order in which they came. So `SharedState.taken` tells the
supervisor which have started.
"""

import asyncio
import os
import time
from collections import deque
from itertools import repeat
from typing import assert_never, cast

from redrive.encryption import Keyring
from redrive.handlers import Handler, Handlers, decode_object
from redrive.observability.tracing import Tracing
from redrive.rules.attempts.settlement import DeadLetter, NotComplete
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
    OpenBreakers,
    Stop,
    Suspended,
    Unstarted,
    Up,
    Work,
    decode_down,
)
from redrive.worker.runner.attempt import Attempt
from redrive.worker.runner.deadlines import cancel_overdue
from redrive.worker.runner.reports import Reports
from redrive.worker.runner.sampler import Sampler
from redrive.worker.runner.services import Services
from redrive.worker.runner.traced import run_traced
from redrive.worker.shared_state import SharedState

JOBS_BETWEEN_YIELDS = 64
NS_BETWEEN_YIELDS = 2_000_000
"""How often each slot yields: handlers that never wait would block the reading.

Sixteen slots of 64 jobs each are the jobs of a whole claim. If only jobs were counted,
the supervisor would learn of all of them at once. Then it would settle and claim while
the runner has nothing to do.
"""


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
    ) -> None:
        self._channel = channel
        self._shared = shared
        sampler = Sampler(channel.send) if samples else None
        self._reports = Reports(channel, sampler)
        self._tracing = tracing
        self._services = Services(
            handlers=handlers,
            slots=shared.slots,
            send=self._send_soon,
            where=where,
            keyring=keyring,
        )

        self._list: deque[tuple[Jobs, Work]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._attempts: list[Attempt | None] = [None] * shared.slots
        self._unwanted: set[tuple[int, int]] = set()
        self._came = asyncio.Event()
        self._stopping = False

    async def run(self) -> None:
        """Say hello, then work until the end."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._channel.fileno(), self._read)
        self._channel.send(_hello(self._services.handlers))

        overdue = cancel_overdue(self._attempts, self._until_busy)
        clock = asyncio.create_task(overdue)
        passing_on = asyncio.create_task(self._services.notes.pass_on())

        # The slots return after a Stop, once their jobs have ended.
        slots = [self._slot(slot) for slot in range(self._shared.slots)]
        await asyncio.gather(*slots)

        clock.cancel()
        passing_on.cancel()
        await self._send_rest()

    async def _send_rest(self) -> None:
        self._reports.flush()
        while self._channel.is_blocked:
            await asyncio.sleep(0.005)
            self._channel.flush()

    def _send_soon(self, message: Up) -> None:
        """Send a message from whatever thread a handler runs in."""
        self._loop.call_soon_threadsafe(self._channel.send, message)

    def _read(self) -> None:
        frames = self._channel.receive()
        if frames is None:
            # The supervisor is gone, so the running jobs are no longer ours.
            os._exit(0)
        for frame in frames:
            self._obey(decode_down(frame))

    def _obey(self, message: Down) -> None:
        match message:
            case Jobs(rows=rows):
                self._list.extend(zip(repeat(message), rows))
                self._wake(len(rows))
                self._came.set()  # after the jobs: else the clock runs first

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

        waiting = ((work.id, work.deliveries) for _, work in self._list)
        if key in waiting:
            self._unwanted.add(key)

    def _hear_of_death(self, died: Died) -> None:
        report = died.report
        if report.failure is not None:
            failure = decode_object(report.failure)
            self._services.hooks.died(
                died.id,
                died.kind,
                died.attempt,
                report.reason or "",
                failure,
            )

    def _stop(self) -> None:
        self._stopping = True

        unstarted = [work.id for _, work in self._list]
        self._channel.send(Unstarted(unstarted))
        self._list.clear()
        self._wake(len(self._idle))

    def _wake(self, count: int) -> None:
        """Wake up to `count` idle slots, so that they look at the list."""
        for _ in range(min(count, len(self._idle))):
            self._idle.popleft().set_result(None)

    async def _slot(self, slot: int) -> None:
        """Run one job after the other."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        since_yield = 0

        while True:
            if not self._list:
                # To wait for a job is to yield.
                since_yield = 0
                if not await self._more():
                    return

            attempt = self._start(slot, task)
            if self._tracing is None or self._tracing.is_overrun:
                settlement = await attempt.run()
            else:
                settlement = await run_traced(attempt, self._tracing)

            self._end(slot, attempt, settlement)
            since_yield += 1

            if (
                since_yield >= JOBS_BETWEEN_YIELDS
                or attempt.started_ns - self._reports.flushed_ns > NS_BETWEEN_YIELDS
            ):
                since_yield = 0
                await asyncio.sleep(0)

    async def _until_busy(self) -> None:
        """Wait until a job runs or is listed. A slot between two jobs runs none."""
        if not self._list and all(attempt is None for attempt in self._attempts):
            self._came.clear()
            await self._came.wait()

    async def _more(self) -> bool:
        """Wait for a job on the list. Returns False if none will come."""
        # Another slot may have taken the job that woke this one.
        while not self._list:
            if self._stopping:
                return False

            idle = self._loop.create_future()
            self._idle.append(idle)
            await idle

        return True

    def _start(self, slot: int, task: asyncio.Task[None]) -> Attempt:
        batch, work = self._list.popleft()
        started = time.monotonic_ns()
        # Do this first, so that a job that kills this process is known.
        self._shared.start(
            slot,
            work.id,
            work.deliveries,
            started,
        )
        attempt = Attempt(
            self._services,
            task,
            batch,
            work,
            started,
        )

        if self._unwanted and (work.id, work.deliveries) in self._unwanted:
            self._unwanted.discard((work.id, work.deliveries))
            attempt.is_cancelled = True

        self._attempts[slot] = attempt
        return attempt

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

        # If the handler completed the job, it is probably gone and did not die.
        if isinstance(settlement, DeadLetter) and not attempt.completed_by_handler:
            self._died(work, settlement)

    def _died(self, work: Work, settlement: DeadLetter) -> None:
        reason = str(settlement.reason)
        failure = settlement.failure.record()
        self._services.hooks.died(
            work.id,
            work.kind,
            work.attempt,
            reason,
            failure,
        )


def _hello(handlers: Handlers) -> Hello:
    dependencies = [
        Dependency(
            name,
            breaker.threshold,
            breaker.window,
            breaker.cooldown,
        )
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
