"""A runner: the process in which handlers run. It knows nothing of Postgres and owns no truth.

Long-lived slots take jobs off one list in the order they came, so `SharedState.taken` tells the
supervisor what has started. Async handlers run in the event loop, the others in a thread of their
slot.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import dataclasses
import gc
import inspect
import logging
import os
import random
import signal
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.encryption import MARK, SEALED, Keyring, Undecryptable, configured, open_payload
from redrive.errors import SettingsError
from redrive.handlers import Death, Handler, Handlers, decode_object, encode_json, load
from redrive.job import Job, Watch
from redrive.observability.tracing import (
    Tracing,
    fail,
    is_asked_for,
    is_sampled,
    set_up,
    traceparent,
)
from redrive.rules.categories import category_of, evidence_of
from redrive.rules.failure import class_name, describe, made_up, safe_text
from redrive.rules.model import Category, Claimed, Failure, Reason
from redrive.rules.policy import decide, decide_signal, put_off, why_not_started
from redrive.rules.redact import redact, scrub, secret_values
from redrive.rules.settlement import DeadLetter, NotComplete, Outcome, Release
from redrive.signals import DependencyOpen, Signal, seconds
from redrive.worker.channel import Channel
from redrive.worker.protocol import (
    Dependency,
    Died,
    Done,
    Ended,
    Extras,
    Hello,
    Jobs,
    Kind,
    Observed,
    OpenBreakers,
    Report,
    SideEffect,
    Stop,
    Unstarted,
    Work,
    decode_down,
    decode_extras,
    has_expired,
    read_extras,
    report_of,
)
from redrive.worker.shared_state import SharedState

JOBS_BETWEEN_YIELDS = 64
NS_BETWEEN_YIELDS = 2_000_000
"""Handlers that never wait would keep the loop from reading and reporting; each slot lets it run
this often.

Sixteen slots of 64 jobs each are a whole claim's worth: were they counted only, the supervisor
would learn of all of them at once, and settle and claim while the runner has nothing to do.
"""

UNKNOWN_KIND_DELAY = 15.0
"""Seconds (about) until a job whose kind this runner lacks is offered again; by then a rollout may
have brought it.
"""

DEADLINE_TICK, IDLE_TICK = 0.05, 0.25

HOOK_SECONDS = 5.0
"""How long a hook of the application may take."""

logger = logging.getLogger("redrive.runner")

_NO_EXTRAS = Extras()


class Runner(Watch):
    """Runs jobs from one channel until it is told to stop or the supervisor is gone."""

    def __init__(  # noqa: PLR0913 # what it works with
        self,
        channel: Channel,
        shared: SharedState,
        handlers: Handlers,
        where: dict[str, str],
        tracing: Tracing | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self._where = where
        self._keyring = keyring
        self._tracing = tracing
        self._traces: dict[int, str] = {}
        self._channel = channel
        self._shared = shared
        self._handlers = handlers
        self._list: deque[tuple[Jobs, Work]] = deque()
        self._taken = 0
        self._idle: deque[asyncio.Future[None]] = deque()
        self._done: list[tuple[int, int, float]] = []
        self._example: tuple[int, str] | None = None
        self._ended: list[Report] = []
        self._flush_is_due = False
        self._flushed_ns = 0
        self._stopping = False
        self._barred: dict[str, tuple[float, float]] = {}
        self._ahead: Counter[str] = Counter()  # jobs put off since its breaker opened
        self._probes: dict[str, float] = {}  # leases of which none is used
        self._probed: dict[str, float] = {}  # the last one that was
        self._hooks: set[asyncio.Task[None]] = set()
        self._hook_threads = ThreadPoolExecutor(2, thread_name_prefix="hook")
        self._threads = ThreadPoolExecutor(shared.slots, thread_name_prefix="slot")
        # per slot: the task, and the monotonic instant at which its async attempt is over
        self._tasks: list[asyncio.Task[None]] = []
        self._over_at = [float("inf")] * shared.slots
        self._timed_out = [False] * shared.slots

    async def run(self) -> None:
        """Say hello, then work until the end."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._channel.fileno(), self._read)
        dependencies = [
            Dependency(name, breaker.threshold, breaker.window, breaker.cooldown)
            for name, breaker in self._handlers.breakers.items()
        ]
        self._channel.send(Hello([_kind(handler) for handler in self._handlers], dependencies))
        self._tasks = [asyncio.create_task(self._slot(n)) for n in range(self._shared.slots)]
        ticker = asyncio.create_task(self._tick())
        await asyncio.gather(*self._tasks)
        ticker.cancel()
        self._flush()
        while self._channel.is_blocked:
            await asyncio.sleep(0.005)
            self._channel.flush()

    def _read(self) -> None:
        frames = self._channel.receive()
        if frames is None:
            os._exit(0)  # the supervisor is gone; whatever runs here is no longer ours to run
        for frame in frames:
            match decode_down(frame):
                case Jobs(rows=rows) as batch:
                    self._list.extend((batch, row) for row in rows)
                    for _ in range(min(len(rows), len(self._idle))):
                        self._idle.popleft().set_result(None)
                case Stop():
                    self._stop()
                case OpenBreakers(names=names, probes=probes):
                    self._barred, self._ahead = names, Counter()
                    self._probes = {
                        name: lease
                        for name, lease in probes.items()
                        if self._probed.get(name) != lease
                    }
                case Died(id=job, kind=kind, attempt=attempt, report=report):
                    self._escalate(job, kind, attempt, report)

    def _stop(self) -> None:
        self._stopping = True
        self._channel.send(Unstarted([work.id for _, work in self._list]))
        self._list.clear()
        while self._idle:
            self._idle.popleft().set_result(None)

    async def _slot(self, slot: int) -> None:
        since_yield = 0
        while True:
            while not self._list:
                if self._stopping:
                    return
                since_yield = 0
                idle = self._loop.create_future()
                self._idle.append(idle)
                await idle
            batch, work = self._list.popleft()
            self._taken += 1
            self._shared.take(self._taken)
            started = time.monotonic_ns()
            self._shared.start(slot, work.id, work.deliveries, started)
            is_traced = self._tracing is not None and not self._tracing.is_overrun
            attempt = self._traced_attempt if is_traced else self._attempt
            report = await attempt(slot, batch, work, started)
            if report is None:
                self._shared.complete(work.id, work.deliveries)
            self._shared.clear(slot)
            if report is None:
                self._done.append((work.id, work.deliveries, (time.monotonic_ns() - started) / 1e9))
            else:
                self._ended.append(self._sealed(report))
                # most likely it is gone, and did not die
                if report.outcome is Outcome.DEAD_LETTER and not report.may_be_gone:
                    self._escalate(work.id, work.kind, work.attempt, report)
            if not self._flush_is_due:
                self._flush_is_due = True
                self._loop.call_soon(self._flush)
            since_yield += 1
            if since_yield >= JOBS_BETWEEN_YIELDS or started - self._flushed_ns > NS_BETWEEN_YIELDS:
                since_yield = 0
                await asyncio.sleep(0)

    def _flush(self) -> None:
        self._flush_is_due = False
        self._flushed_ns = time.monotonic_ns()
        if self._done:
            done, self._done = self._done, []
            example, self._example = self._example, None
            self._channel.send(Done(done, example))
        if self._ended:
            ended, self._ended = self._ended, []
            self._channel.send(Ended(ended))
        if self._channel.is_blocked:
            self._loop.call_later(0.002, self._channel.flush)

    async def once(self, batch: Jobs, work: Work, started: int) -> Report | None:
        """Run one attempt in slot 0 of a runner that does nothing else; None means complete."""
        self._loop = asyncio.get_running_loop()
        self._tasks = [cast("asyncio.Task[None]", asyncio.current_task())]
        ticker = asyncio.create_task(self._tick())
        try:
            return await self._attempt(0, batch, work, started)
        finally:
            ticker.cancel()
            self._threads.shutdown(wait=False)

    async def _traced_attempt(
        self, slot: int, batch: Jobs, work: Work, started: int
    ) -> Report | None:
        """The same, as a span."""
        tracing = cast("Tracing", self._tracing)
        headers = read_extras(work.extras).headers
        with tracing.process(
            batch.queues[work.lane - 1], work.kind, work.id, work.attempt, headers
        ) as span:
            self._traces[work.id] = traceparent(span)
            report = await self._attempt(slot, batch, work, started)
            trace = self._traces.pop(work.id).split("-")[1]
            if report is not None and report.failure is not None:
                fail(span, decode_object(report.failure)["error_class"])
        if not is_sampled(span):
            return report
        if report is None:
            self._example = (work.id, trace)
            return None
        return msgspec.structs.replace(report, trace=trace)

    async def _attempt(self, slot: int, batch: Jobs, work: Work, started: int) -> Report | None:
        """Run one attempt; None means complete."""
        handler = self._handlers.get(work.kind)
        if handler is None:
            return self._unknown(work)
        if work.payload.startswith(SEALED):
            opened = self._opened(work)
            return (
                opened
                if isinstance(opened, Report)
                else await self._attempt(slot, batch, opened, started)
            )
        settlement: NotComplete | None
        job: Job | None = None
        extras = _NO_EXTRAS
        try:
            if work.extras is not None:
                extras = read_extras(work.extras)  # what a failure of the next line is judged by
                extras = decode_extras(work.extras)
            if (work.extras is not None or work.attempt > handler.policy.max_attempts) and (
                reason := why_not_started(_claimed(work, extras), handler.policy)
            ):
                if reason is Reason.EXPIRED:
                    await self._say_expired(handler, batch, work, extras)
                return self._not_started(work, reason)
            if self._barred and (release := self._put_off(handler.depends_on)) is not None:
                return report_of(work.id, work.deliveries, release)
            version = extras.headers.get("version", 1)
            if isinstance(version, int) and version > handler.version:
                wait = UNKNOWN_KIND_DELAY * random.uniform(0.5, 1.5)
                return report_of(work.id, work.deliveries, Release("newer_payload", wait))
            payload = self._payload(handler, work, version)
            if isinstance(payload, Failure):
                return report_of(
                    work.id, work.deliveries, DeadLetter(Reason.INVALID_PAYLOAD, payload)
                )
            if handler.takes_job:
                job = self._job(handler, batch, work, extras)
            if handler.is_async:  # a thread cannot be cancelled: the supervisor ends the process
                self._over_at[slot] = started / 1e9 + seconds(handler.policy.timeout)
            await self._perform(handler, payload, job)
            settlement = None
        except BaseException as error:  # noqa: BLE001 # SystemExit and KeyboardInterrupt of a handler end its job, not us
            settlement = self._failed(slot, handler, work, extras, error)
        self._over_at[slot] = float("inf")
        self._timed_out[slot] = False
        if self._tasks[slot].cancelling():
            await self._absorb_cancellation(slot)
        taken = (time.monotonic_ns() - started) / 1e9
        if job is not None and job.completed_on is not None:
            settlement = await self._completed_by_handler(handler, work, extras, job, settlement)
            return msgspec.structs.replace(
                report_of(work.id, work.deliveries, settlement, seconds=taken), may_be_gone=True
            )
        return (
            None
            if settlement is None
            else report_of(work.id, work.deliveries, settlement, seconds=taken)
        )

    def _opened(self, work: Work) -> Work | Report:
        """The job with its payload in clear, or its end."""
        try:
            payload = open_payload(
                self._keyring, work.payload, work.kind, read_extras(work.extras).headers
            ).decode()
        except Undecryptable as error:
            failure = made_up(
                "Undecryptable", str(error), Category.INVALID, work.kind, **self._where
            )
            return report_of(work.id, work.deliveries, DeadLetter(Reason.UNDECRYPTABLE, failure))
        return msgspec.structs.replace(work, payload=payload)

    def _sealed(self, report: Report) -> Report:
        """What leaves this process. That a payload cannot be read says nothing of what is in it."""
        if self._keyring is None or report.failure is None or report.reason == Reason.UNDECRYPTABLE:
            return report
        record = self._keyring.seal_failure(decode_object(report.failure), report.id)
        return msgspec.structs.replace(report, failure=encode_json(record).decode())

    def _unknown(self, work: Work) -> Report:
        """A kind we lack is given back, but its window closes all the same: perhaps nobody ever
        knows it.
        """
        if has_expired(work.extras):
            return self._not_started(work, Reason.EXPIRED)
        return report_of(
            work.id,
            work.deliveries,
            Release("unknown_kind", UNKNOWN_KIND_DELAY * random.uniform(0.5, 1.5)),
        )

    def _not_started(self, work: Work, reason: Reason) -> Report:
        failure = made_up(
            "NotStarted", f"not started: {reason}", Category.OTHER, work.kind, **self._where
        )
        return report_of(work.id, work.deliveries, DeadLetter(reason, failure, refund=True))

    def _put_off(self, names: Iterable[str]) -> Release | None:
        """The release of a job behind an open breaker; None when it may run, as a probe if need be."""
        for name in names:
            # once: a handler in a thread asks while the loop may be told anew
            barred = self._barred.get(name)
            if barred is not None:
                lease = self._probes.pop(name, None)
                if lease is None:
                    self._ahead[name] += 1
                    open_until, cooldown = barred
                    open_for = open_until - time.monotonic()
                    return put_off(name, open_for, cooldown, self._ahead[name], random.random())
                self._probed[name] = lease
        return None

    # What a handler does with `job.dependency`; it may do so in a thread.

    def enter(self, name: str) -> None:
        """Let a handler use a dependency, or not."""
        release = self._put_off((name,))
        if release is not None:
            raise DependencyOpen(name, release.delay)

    def leave(self, name: str, error: Exception | None) -> None:
        """Report how it went; what is no fault of the dependency's speaks for it."""
        blamed = error is not None and category_of(evidence_of(error, "")) in {
            Category.TRANSIENT,
            Category.THROTTLED,
        }
        self._loop.call_soon_threadsafe(self._channel.send, Observed(name, succeeded=not blamed))

    async def _absorb_cancellation(self, slot: int) -> None:
        """Take in what was asked of the slot's task, by us or by the handler: its next await would
        end the slot.
        """
        task = self._tasks[slot]
        while task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            task.uncancel()

    def _payload(self, handler: Handler, work: Work, version: Any) -> Any:
        """What the handler takes, or the Failure of reading it."""
        try:
            return handler.payload(work.payload, version)
        except BaseException as error:  # noqa: BLE001 # a validator is user code too
            described = self._describe(handler, work, error, phase="payload")
            return dataclasses.replace(described, category=Category.INVALID)

    def _describe(
        self, handler: Handler, work: Work, error: BaseException, **detail: Any
    ) -> Failure:
        """The record of an exception, without the secrets of the payload it may speak of."""
        secrets = self._secrets(handler, work)
        hidden: dict[str, Any] = {"secret_fields": sorted(handler.secret)} if handler.secret else {}
        hidden |= self._trace(work)
        return describe(
            error,
            work.kind,
            rules=handler.policy.rules,
            secrets=secrets,
            **hidden,
            **detail,
            **self._where,
        )

    def _secrets(self, handler: Handler, work: Work) -> set[str]:
        """The values of the payload that must not turn up anywhere else."""
        try:
            return secret_values(decode_object(work.payload), handler.secret)
        except Exception:  # noqa: BLE001 # a payload that cannot be read has no keys to go by
            return set()

    def _trace(self, work: Work) -> dict[str, str]:
        """Where to find this attempt among the traces."""
        trace = self._traces.get(work.id)
        return {} if trace is None else {"traceparent": trace, "trace_id": trace.split("-")[1]}

    async def _say_expired(self, handler: Handler, batch: Jobs, work: Work, extras: Extras) -> None:
        """Tell the handler's `on_expired`; whatever it does, the job has expired."""
        if handler.on_expired is None:
            return
        payload = self._payload(handler, work, extras.headers.get("version", 1))
        arguments = (
            (payload, self._job(handler, batch, work, extras)) if handler.takes_job else (payload,)
        )
        await self._shielded("on_expired", handler.on_expired, *arguments)

    def _escalate(self, job: int, kind: str, attempt: int, report: Report) -> None:
        """Tell the registry's `on_dead`, beside and after the job's settling."""
        if self._handlers.on_dead is None or report.failure is None:
            return
        failure = decode_object(report.failure)
        told = {
            name: failure[name] for name in ("category", "error_class", "message", "fingerprint")
        }
        death = Death(job, kind, attempt, report.reason or "", **told)
        task = self._loop.create_task(self._shielded("on_dead", self._handlers.on_dead, death))
        self._hooks.add(task)
        task.add_done_callback(self._hooks.discard)

    async def _shielded(self, name: str, hook: Callable[..., Any], *arguments: Any) -> None:
        """Call a hook of the application for at most HOOK_SECONDS; nothing it raises gets out."""
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                if inspect.iscoroutinefunction(hook):
                    await hook(*arguments)
                else:
                    await self._loop.run_in_executor(self._hook_threads, hook, *arguments)
        except BaseException as error:  # noqa: BLE001 # that is the promise
            logger.warning("%s raised", name, extra={"error_class": class_name(error)})

    def _job(self, handler: Handler, batch: Jobs, work: Work, extras: Extras) -> Job:
        def tell(what: str, detail: dict[str, Any]) -> None:
            secrets = self._secrets(handler, work)
            what, detail = scrub(what, secrets), redact(detail, handler.secret, secrets)
            if self._keyring is not None:
                what, detail = self._keyring.seal_side_effect(what, detail, work.id)
            told = SideEffect(work.id, work.deliveries, what, encode_json(detail).decode())
            # the handler may run in a thread
            self._loop.call_soon_threadsafe(self._channel.send, told)

        headers = extras.headers
        if self._keyring is not None:
            headers = {name: value for name, value in headers.items() if name != MARK}
        return Job(
            id=work.id,
            kind=work.kind,
            queue=batch.queues[work.lane - 1],
            attempt=work.attempt,
            deliveries=work.deliveries,
            key=extras.idempotency_key,
            deadline=datetime.now(UTC) + timedelta(seconds=seconds(handler.policy.timeout)),
            redrives=extras.redrives,
            tenant=extras.tenant,
            headers=headers,
            worker=batch.worker,
            tell=tell,
            watch=self,
        )

    async def _perform(self, handler: Handler, payload: Any, job: Job | None) -> None:
        arguments = (payload,) if job is None else (payload, job)
        if handler.is_async:
            await handler.function(*arguments)
        else:
            context = contextvars.copy_context()
            returned, error = await self._loop.run_in_executor(
                self._threads, lambda: context.run(_call, handler.function, arguments)
            )
            if error is not None:
                raise error
            if asyncio.iscoroutine(returned):
                await returned  # a plain function that returned what an async one would

    def _failed(
        self, slot: int, handler: Handler, work: Work, extras: Extras, error: BaseException
    ) -> NotComplete:
        claimed = _claimed(work, extras)
        jitter = random.random()
        if self._timed_out[slot]:
            limit = seconds(handler.policy.timeout)
            message = f"the attempt took longer than its timeout of {limit:g} s"
            return decide(
                claimed,
                made_up("DeadlineExceeded", message, Category.LOST, work.kind, **self._trace(work)),
                handler.policy,
                jitter,
            )
        if isinstance(error, Signal):
            failure = made_up(
                type(error).__name__,
                safe_text(error) or "asked for by the handler",
                Category.OTHER,
                work.kind,
                **self._trace(work),
            )
            return decide_signal(claimed, error, failure, handler.policy, jitter)
        return decide(claimed, self._describe(handler, work, error), handler.policy, jitter)

    async def _completed_by_handler(
        self, handler: Handler, work: Work, extras: Extras, job: Job, settlement: NotComplete | None
    ) -> NotComplete:
        """What the job's end is if its completion in a transaction of the handler's was not
        committed.

        A transaction that is still open is rolled back: it locks the job's row, and the settlement
        of the whole batch would wait for it.
        """
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                open_still = sql_drivers.in_transaction(job.completed_on)
                if open_still:
                    await self._end_transaction(job.completed_on)
        except Exception as error:  # noqa: BLE001 # of a driver, about a connection that is broken
            open_still = True
            logger.warning(
                "the transaction of job.complete() cannot be ended",
                extra={"error_class": class_name(error)},
            )
        if settlement is not None:
            return settlement
        message = (
            "the handler returned while the transaction of job.complete() was still open"
            if open_still
            else "the transaction of job.complete() was rolled back, but the handler returned as if it had succeeded"
        )
        failure = made_up("NotCommitted", message, Category.OTHER, work.kind, **self._where)
        return decide(_claimed(work, extras), failure, handler.policy, random.random())

    async def _end_transaction(self, conn: Any) -> None:
        if sql_drivers.is_async(conn):
            await sql_drivers.roll_back(conn)
        else:
            await self._loop.run_in_executor(self._threads, sql_drivers.roll_back, conn)

    async def _tick(self) -> None:
        """Cancel async attempts whose time is over: one clock for all slots instead of a timer for
        each job.
        """
        while True:
            await asyncio.sleep(IDLE_TICK if min(self._over_at) == float("inf") else DEADLINE_TICK)
            now = time.monotonic()
            for slot, over_at in enumerate(self._over_at):
                if over_at < now and not self._timed_out[slot]:
                    self._timed_out[slot] = True
                    self._tasks[slot].cancel()


def _call(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    """What a function returns, and what it raises: a Future cannot carry a StopIteration or a
    GeneratorExit.
    """
    try:
        return function(*arguments), None
    except BaseException as error:  # noqa: BLE001 # raised again where the attempt is judged
        return None, error


def _claimed(work: Work, extras: Extras) -> Claimed:
    return Claimed(
        work.kind,
        work.attempt,
        extras.max_attempts,
        extras.losses,
        extras.streak,
        extras.fingerprint,
        extras.expires_in,
    )


def _kind(handler: Handler) -> Kind:
    policy = handler.policy
    return Kind(
        handler.kind,
        policy.max_attempts,
        seconds(policy.timeout),
        policy.max_losses,
        handler.depends_on,
        handler.queue,
    )


def _end_with_parent(parent: int) -> None:
    """Never outlive the supervisor, even while a handler blocks this interpreter."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main(arguments: list[str]) -> int:
    """Run with the arguments FD SHARED_FD SLOTS PARENT HANDLERS TARGETS WHERE. Returns the exit
    status.
    """
    fd, shared_fd, slots, parent = map(int, arguments[:4])
    _end_with_parent(parent)
    # the supervisor drains; a terminal's Ctrl-C is for it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        handlers = load(arguments[4]) if arguments[4] else Handlers()
        if arguments[5]:
            from redrive import targets  # noqa: PLC0415 # only where there are any: it brings pydantic

            targets.register(handlers, targets.load(Path(arguments[5])), slots)
        tracing = set_up() if is_asked_for() else None
        keyring = configured()
    except SettingsError as error:
        print(f"redrive: {error}", file=sys.stderr)  # noqa: T201 # before there is a log
        return 64
    gc.freeze()  # what was imported stays: no collection need look at it again
    channel = Channel(socket.socket(fileno=fd))
    where = msgspec.json.decode(arguments[6])
    asyncio.run(
        Runner(channel, SharedState(slots, shared_fd), handlers, where, tracing, keyring).run()
    )
    if tracing is not None:
        tracing.shut_down()
    # Threads of handlers that never end must not keep the process.
    os._exit(0)
