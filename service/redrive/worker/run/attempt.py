"""One attempt, from the claimed job to the report of how it ended.

`Attempt.run` takes the steps in their order: open, admit, read, perform, judge.
`Attempt.report` is the last step for attempts that did not complete. A step that ends
the attempt before its handler has run raises `Settled`. The handler's policy judges all
other errors. The end is a settlement until `report` encodes it, once.
"""

import asyncio
import contextlib
from asyncio import sleep
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from redrive.encryption import SEALED, Undecryptable, without_mark
from redrive.handlers import Handler
from redrive.handlers.job import Job
from redrive.rules.attempts.failure import is_plain, without_group
from redrive.rules.attempts.policy import decide, decide_signal, why_not_started
from redrive.rules.attempts.settlement import Cancel, NotComplete, Release
from redrive.rules.model import Claimed, Failure, Reason
from redrive.signals import Signal
from redrive.worker.protocol import (
    NO_EXTRAS,
    Extras,
    Jobs,
    Report,
    Returned,
    Work,
    claimed_of,
    decode_extras,
    has_expired,
    read_extras,
    report_of,
)
from redrive.worker.run import failures
from redrive.worker.run.children import end_if_child
from redrive.worker.run.dependencies import Admitted
from redrive.worker.run.handler_notes import HandlerNotes
from redrive.worker.run.own import clock, random
from redrive.worker.run.results import result_of, result_of_call
from redrive.worker.run.sealing import (
    Key,
    opened_checkpoint,
    opened_work,
    sealed_note,
    sealed_settlement,
)
from redrive.worker.run.services import Services
from redrive.worker.run.threads import NoThread
from redrive.worker.run.transaction import end_transaction

ROLLOUT_DELAY, MAX_ROLLOUT_DELAY = 15.0, 3600.0
"""Seconds, about, until a job is offered again that this runner is too old for."""

MAX_ROLLOUT_RETURNS = 32
"""How often a job waits for a newer runner: for about a day."""

MAX_ROLLOUT_DOUBLINGS = 10

NO_THREAD_DELAY = 1.0
"""Seconds until a job is offered again that no thread could be started for."""

DESCRIBE_SECONDS = 2.0
"""How long an exception may take to describe itself."""

NEVER = float("inf")


class Settled(Exception):
    """The attempt ends with `settlement`, before its handler has run."""

    def __init__(self, settlement: NotComplete) -> None:
        self.settlement = settlement


class Attempt:
    """One run of a job; `started_ns` is monotonic.

    Attributes:
        task: the asyncio task in which it runs, set before `run`.
        is_cancelled: the job is no longer wanted.
        over_at: the monotonic second at which an async handler is cancelled.
        seconds: how long the handler ran; 0.0 if it did not.
        completed_by_handler: it completed the job in a transaction of its own.
        may_be_committed: that transaction is over, and no error says that it failed.
        traceparent: of the attempt's span; None if it is not traced.
        trace_id: of its trace, if that is kept.
        known: the secrets that no record may contain, once they were needed.
        is_noting: the handler has reported progress or a checkpoint.
        returned: the result of the handler, to be kept.
    """

    task: asyncio.Task[Any]
    handler: Handler

    # Most jobs need none of the following, so a new attempt sets nothing.
    extras: Extras = NO_EXTRAS
    job: Job | None = None
    is_cancelled: bool = False
    over_at: float = NEVER
    is_overdue: bool = False
    seconds: float = 0.0
    completed_by_handler: bool = False
    may_be_committed: bool = False
    traceparent: str | None = None
    trace_id: str | None = None
    known: Collection[str] | None = None
    last_checkpoint: dict[str, Any] | None = None
    is_noting: bool = False
    returned: Returned | None = None

    def __init__(
        self, services: Services, batch: Jobs, work: Work, started_ns: int
    ) -> None:
        self.services = services
        self.batch = batch
        self.work = work
        self.started_ns = started_ns

    async def run(self) -> NotComplete | None:
        """Take the job through its attempt. Returns None when the work is done."""
        failed: BaseException | None = None

        try:
            handler = self._open()
            if self._may_be_refused(handler):
                await self._admit()

            returned = await self._perform(handler)
            if returned is not None:
                await self._take(returned)
        except Settled as early:
            return early.settlement
        except BaseException as error:  # noqa: BLE001 # a handler's SystemExit ends its job, not us
            failed = error

        # The handler has ended. The clock must not cancel what follows.
        self.over_at = NEVER
        end_if_child(failed)
        if self.task.cancelling():
            await self._absorb_cancellation()

        settlement: NotComplete | None = None
        if failed is not None:
            settlement = await self._failed(failed)
            failed = None  # its traceback refers to this frame

        self.seconds = (clock.monotonic_ns() - self.started_ns) / 1e9
        conn = None if self.job is None else self.job.completed_on
        if conn is not None:
            settlement = await self._unless_committed(conn, settlement)

        return settlement

    async def _failed(self, error: BaseException) -> NotComplete:
        """Return the end of a job whose handler has raised.

        A job that was cancelled and succeeded all the same is complete, so only this
        one may be cancelled.
        """
        self.services.leftovers.restore_limit()
        settlement = await self._judge(error)
        return await self._cancelled() if self.is_cancelled else settlement

    # ------------------------------------------------------------------ open

    def _open(self) -> Handler:
        """Find the handler, decrypt the payload, and decode the extras."""
        handler = self.services.handlers.get(self.work.kind)
        if handler is None:
            raise Settled(_unknown_kind(self))

        self.handler = handler
        try:
            if self.work.payload.startswith(SEALED):
                self.work = opened_work(self.services.keyring, self.work, self.queue)
            if self.work.extras is not None:
                self._open_extras(self.work.extras)
        except Undecryptable as error:
            raise Settled(failures.undecryptable(self, error)) from None

        return handler

    def _open_extras(self, text: str) -> None:
        try:
            self.extras = decode_extras(text)
        except BaseException:
            self.extras = read_extras(text)  # the failure is judged by them
            raise

        last = self.extras.checkpoint
        if last is not None:
            self.last_checkpoint = opened_checkpoint(
                self.services.keyring, last, self.work.id
            )

    # ------------------------------------------------------------------ admit

    def _may_be_refused(self, handler: Handler) -> bool:
        """Return True if `_admit` has anything to check; for most jobs it has not."""
        return (
            self.work.extras is not None
            or self.is_cancelled
            # No policy forbids a first attempt.
            or self.work.attempt > 1
            or bool(handler.depends_on and self.services.dependencies.open)
        )

    async def _admit(self) -> None:
        """Turn away a job that must not start, or not now, or not here."""
        if self.is_cancelled:
            raise Settled(await self._cancelled())

        reason = why_not_started(self._claimed(), self.handler.policy)
        if reason is Reason.EXPIRED:
            await self._tell("on_expired", self.handler.on_expired)
        if reason is not None:
            raise Settled(failures.not_started(self, reason))

        # Only now, because this may use the one probe of a dependency.
        release = self.services.dependencies.put_off(self.handler.depends_on)
        if release is not None:
            raise Settled(release)

        version = self.extras.headers.get("version", 1)
        if isinstance(version, int) and version > self.handler.version:
            raise Settled(_newer_payload(self, version))

    async def _cancelled(self) -> NotComplete:
        """Tell the handler's `on_cancelled`, then cancel the job in any case."""
        await self._tell("on_cancelled", self.handler.on_cancelled)
        return Cancel("no longer wanted")

    async def _tell(self, name: str, hook: Callable[..., Any] | None) -> None:
        """Call a hook with the arguments of the handler. Nothing it raises counts."""
        if hook is None:
            return

        try:
            payload = self._read()
        except Settled:
            return  # the hook cannot use it either

        arguments = (payload, self._job()) if self.handler.takes_job else (payload,)
        await self.services.hooks.call(name, hook, *arguments)

    # ------------------------------------------------------------------ read

    def _read(self) -> Any:
        """Return the payload as the handler takes it, after upgrades and validation."""
        version = self.extras.headers.get("version", 1)
        try:
            return self.handler.payload(self.work.payload, version)
        except BaseException as error:  # noqa: BLE001 # a validator is user code too
            refusal = failures.invalid_payload(self, error, version)
            raise Settled(refusal) from None

    def _job(self) -> Job:
        work = self.work
        extras = self.extras
        headers = self.extras.headers
        if self.services.keyring is not None:
            headers = without_mark(headers)

        notes = HandlerNotes(self)

        return Job(
            id=work.id,
            kind=work.kind,
            queue=self.queue,
            attempt=work.attempt,
            deliveries=work.deliveries,
            key=extras.idempotency_key,
            created=work.created,
            deadline=datetime.now(UTC) + timedelta(seconds=self.handler.timeout),
            redrives=extras.redrives,
            source=extras.source,
            tenant=extras.tenant,
            headers=headers,
            worker=self.batch.worker,
            tell=notes.side_effect,
            watch=Admitted(self.services.dependencies, self.handler.depends_on),
            notes=notes,
            last_checkpoint=self.last_checkpoint,
            seed=self.services.seed,
        )

    # ------------------------------------------------------------------ perform

    def _perform(self, handler: Handler) -> Awaitable[Any]:
        """Run the handler, in the event loop or in a thread."""
        payload = self._read()
        if handler.takes_job:
            self.job = self._job()
            arguments = (payload, self.job)
        else:
            arguments = (payload,)

        if not handler.is_async:
            # A thread cannot be cancelled. Its deadline is the supervisor's, which
            # ends the process.
            return self._perform_in_thread(handler.function, arguments)

        self._start_clock()
        return handler.function(*arguments)

    async def _perform_in_thread(
        self, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        try:
            return await self.services.threads.call_to_end(function, *arguments)
        except NoThread:
            raise Settled(Release("no_thread", NO_THREAD_DELAY)) from None

    async def _take(self, returned: Any) -> None:
        """Run all that the handler has returned, and keep the result."""
        self._start_clock()
        result = await result_of_call(returned)
        if result is not None:
            self._keep(result)

    def _start_clock(self) -> None:
        """Let the attempt be cancelled once its time is over."""
        self.over_at = self.started_ns / 1e9 + self.handler.timeout

    def _keep(self, returned: Any) -> None:
        """Keep the result if the handler declares `keep_result`."""
        keep = self.handler.keep_result
        result = result_of(self.work.kind, returned) if keep > 0 else None

        if result is not None:
            self.returned = Returned(
                *self.key,
                sealed_note(
                    self.services.keyring, note=result, what="result", key=self.key
                ),
                keep,
            )

    def cancel_if_overdue(self, now: float) -> None:
        """Cancel the handler once its time is over, one time."""
        if self.over_at < now and not self.is_overdue:
            self.is_overdue = True
            self.task.cancel()

    def cancel(self) -> None:
        """Tell the handler once that the job is no longer wanted.

        An async handler is cancelled.
        """
        if self.is_cancelled:
            return

        self.is_cancelled = True
        if self.job is not None:
            self.job.cancelled = True
        if self.over_at < NEVER and not self.is_overdue:  # an async handler runs
            self.task.cancel()

    async def _absorb_cancellation(self) -> None:
        """Take in all cancellations: the next await of the task would end it."""
        while self.task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await sleep(0)
            self.task.uncancel()

    # ------------------------------------------------------------------ judge

    async def _judge(self, error: BaseException) -> NotComplete:
        """Decide what follows from an error of the handler or of a step before it."""
        error = without_group(error)
        policy = self.handler.policy
        jitter = random.random()
        claimed = self._claimed()

        if self.is_overdue:
            # The error is that of our own cancellation, whatever its class.
            failure = failures.deadline_exceeded(self)
            return decide(claimed, failure, policy, jitter)
        # Not `isinstance`, which asks for a `__class__` that may raise.
        if issubclass(type(error), Signal):
            signal = cast("Signal", error)
            failure = await self._described(failures.asked_for, signal)
            return decide_signal(claimed, signal, failure, policy, jitter)

        failure = await self._described(failures.described, error)
        return decide(claimed, failure, policy, jitter)

    async def _described(
        self, describe: Callable[..., Failure], error: BaseException
    ) -> Failure:
        """Describe an error; if its own code takes too long, only its class."""
        if is_plain(error):
            return describe(self, error)

        try:
            async with asyncio.timeout(DESCRIBE_SECONDS):
                return await self.services.describing.call(describe, self, error)
        except BaseException:  # noqa: BLE001 # a timeout, no thread, or a cancellation
            return failures.undescribed(self, error)

    async def _unless_committed(
        self, conn: Any, settlement: NotComplete | None
    ) -> NotComplete:
        """Return the end of a job that its handler completed, if it was not committed.

        Only the database can tell if it was.
        """
        threads = self.services.threads
        self.completed_by_handler = True

        # Do this even if the handler failed: an open transaction locks the job's row.
        was_open = not self.services.leaves_open and await end_transaction(
            conn, threads
        )
        if settlement is not None:
            return settlement

        self.may_be_committed = not was_open
        failure = failures.not_committed(self, was_open=was_open)
        policy = self.handler.policy

        return decide(self._claimed(), failure, policy, random.random())

    def _claimed(self) -> Claimed:
        """Return the facts about the job on which policies decide."""
        return claimed_of(self.work.kind, self.work.attempt, self.extras)

    def report(self, settlement: NotComplete) -> Report:
        """Encode how the attempt ended, sealed if failures are."""
        return report_of(
            self.work.id,
            self.work.deliveries,
            sealed_settlement(self.services.keyring, settlement, self.key),
            seconds=self.seconds,
            completed_by_handler=self.completed_by_handler,
            trace=self.trace_id,
        )

    # ------------------------------------------------------------------ facts

    @property
    def key(self) -> Key:
        """Return the job and its delivery."""
        return self.work.id, self.work.deliveries

    @property
    def queue(self) -> str:
        """Return the queue that the job was claimed from."""
        return self.batch.queues[self.work.lane - 1]

    def secrets(self) -> Collection[str]:
        """Return the secrets of the job and of this process."""
        if self.known is None:
            self.known = failures.known_secrets(
                self.services, self.handler, self.work, self.extras
            )

        return self.known


def _unknown_kind(attempt: Attempt) -> NotComplete:
    """Give a job back, unless it has expired: perhaps no runner ever knows it."""
    if has_expired(attempt.work.extras):
        return failures.not_started(attempt, Reason.EXPIRED)
    return Release("unknown_kind", _until_rollout(attempt.work))


def _newer_payload(attempt: Attempt, version: int) -> NotComplete:
    """Give a job back until the rollout, for a limited number of times.

    A producer may name any version, also one that is never rolled out.
    """
    if _times_given_back(attempt.work) < MAX_ROLLOUT_RETURNS:
        return Release("newer_payload", _until_rollout(attempt.work))
    return failures.newer_payload(attempt, version)


def _until_rollout(work: Work) -> float:
    """Return the seconds until a rollout may have brought what is missing.

    It doubles each time the job is given back: it is about as long as the job has
    waited. It is spread, so that jobs return apart.
    """
    doublings = min(_times_given_back(work), MAX_ROLLOUT_DOUBLINGS)
    delay = min(MAX_ROLLOUT_DELAY, ROLLOUT_DELAY * 2.0**doublings)
    return delay * random.uniform(0.5, 1.5)


def _times_given_back(work: Work) -> int:
    return max(0, work.deliveries - work.attempt)
