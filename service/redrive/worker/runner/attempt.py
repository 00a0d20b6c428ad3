"""One attempt, from the claimed job to the report of how it ended.

`Attempt.run` is the walk: open, admit, read, perform, judge; `Attempt.report` is its
last step, for whatever did not complete. The steps stand in the order in which they
happen. A step that ends the attempt before the handler has run raises `Settled`;
whatever else is raised is judged by the handler's policy. Everything is a settlement
until `report` encodes it, once.
"""

import asyncio
import contextlib
import contextvars
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import msgspec

from redrive.encryption import (
    MARK,
    SEALED,
    Undecryptable,
    Whose,
    open_noted,
    open_payload,
)
from redrive.errors import InvalidJob
from redrive.handlers import Handler, decode_object, encode_json
from redrive.handlers.job import Job, Notes
from redrive.rules.attempts.failure import describe, made_up, safe_text, scrubbed
from redrive.rules.attempts.policy import decide, decide_signal, why_not_started
from redrive.rules.attempts.settlement import (
    Cancel,
    DeadLetter,
    NotComplete,
    Release,
    Retry,
)
from redrive.rules.model import Category, Claimed, Failure, Reason
from redrive.rules.payloads.limits import encode_object
from redrive.rules.payloads.redact import redact, scrub, secret_values
from redrive.signals import Signal, seconds
from redrive.worker.protocol import (
    NO_EXTRAS,
    Extras,
    Jobs,
    LastCheckpoint,
    Report,
    Returned,
    SideEffect,
    Work,
    decode_extras,
    has_expired,
    read_extras,
    report_of,
)
from redrive.worker.runner.services import Services
from redrive.worker.runner.transaction import end_transaction

ROLLOUT_DELAY, MAX_ROLLOUT_DELAY = 15.0, 3600.0
"""Seconds (about) until a job is offered again for which this runner is too old."""

MAX_ROLLOUT_RETURNS = 32
"""How often a job is given back for a version that no runner takes: for about a day."""

MAX_RESULT_BYTES = 8_192

NEVER = float("inf")

logger = logging.getLogger("redrive.runner")


class Settled(Exception):
    """The attempt ends with `settlement`, before its handler has run."""

    def __init__(self, settlement: NotComplete) -> None:
        self.settlement = settlement


@dataclass(slots=True, eq=False)
class Attempt:
    """One run of a job, in the asyncio task `task`; `started_ns` is monotonic.

    Attributes:
        is_cancelled: the job is no longer wanted.
        over_at: the monotonic second at which an async handler is cancelled.
        seconds: how long the handler ran; 0.0 where it did not.
        may_be_gone: the handler completed the job in a transaction of its own.
        may_be_done: and that is over, without an error.
        traceparent: of the attempt's span; None where it is not traced.
        trace_id: of its trace, where that is kept.
        known: what must not turn up in what is recorded, once it was asked for.
        is_noting: the handler has said how far it is, or handed over a checkpoint.
        returned: what the handler returned, to be kept.
    """

    services: Services
    task: asyncio.Task[Any]
    batch: Jobs
    work: Work
    started_ns: int
    handler: Handler = field(init=False)
    extras: Extras = NO_EXTRAS
    job: Job | None = None
    is_cancelled: bool = False
    over_at: float = NEVER
    is_overdue: bool = False
    seconds: float = 0.0
    may_be_gone: bool = False
    may_be_done: bool = False
    traceparent: str | None = None
    trace_id: str | None = None
    known: Collection[str] | None = None
    last_checkpoint: dict[str, Any] | None = None
    is_noting: bool = False
    returned: Returned | None = None

    async def run(self) -> NotComplete | None:
        """Take the job through its attempt. Returns None when the work is done."""
        job: Job | None = None
        settlement: NotComplete | None = None
        try:
            handler = self._open()
            if self._may_be_refused(handler):
                await self._admit()
            payload = self._read()
            if handler.takes_job:
                job = self.job = self._job()
            returned = await self._perform(payload, job)
            if returned is not None:
                self._keep(returned)
        except Settled as early:
            return early.settlement
        except BaseException as error:  # noqa: BLE001 # a handler's SystemExit ends its job, not us
            settlement = self._judge(error)
        self.over_at = NEVER
        if self.task.cancelling():
            await self._absorb_cancellation()
        if settlement is not None and self.is_cancelled:
            settlement = await self._cancelled()
        self.seconds = (time.monotonic_ns() - self.started_ns) / 1e9
        if job is not None and job.completed_on is not None:
            self.may_be_gone = True
            settlement = await self._unless_committed(job.completed_on, settlement)
        return settlement

    def _open(self) -> Handler:
        """Find the handler, decrypt the payload, decode the extras."""
        handler = self.services.handlers.get(self.work.kind)
        if handler is None:
            self._refuse_unknown_kind()
        self.handler = handler
        if self.work.payload.startswith(SEALED):
            self.work = self._decrypted()
        if self.work.extras is not None:
            self.extras = self._decoded_extras(self.work.extras)
            if self.extras.checkpoint is not None:
                self.last_checkpoint = self._opened(self.extras.checkpoint)
        return handler

    def _refuse_unknown_kind(self) -> NoReturn:
        """Give the job back, but close its window all the same: perhaps nobody ever
        knows it.
        """
        if has_expired(self.work.extras):
            raise Settled(self._not_started(Reason.EXPIRED))
        raise Settled(Release("unknown_kind", _until_rollout(self.work)))

    def _decrypted(self) -> Work:
        work = self.work
        extras = read_extras(work.extras)
        keys = extras.tenant, extras.idempotency_key, extras.ordering_key
        whose = Whose(work.kind, self.queue, *keys)
        try:
            payload = open_payload(
                self.services.keyring, work.payload, whose, extras.headers
            )
        except Undecryptable as error:
            raise self._undecryptable(error) from None
        return msgspec.structs.replace(work, payload=payload.decode())

    def _opened(self, last: LastCheckpoint) -> dict[str, Any]:
        try:
            opened = open_noted(
                self.services.keyring,
                last.data,
                "checkpoint",
                self.work.id,
                last.delivery,
            )
        except Undecryptable as error:
            raise self._undecryptable(error) from None
        return opened["data"]

    def _undecryptable(self, error: Undecryptable) -> Settled:
        where = self.services.where
        failure = self._made_up("Undecryptable", str(error), Category.INVALID, where)
        return Settled(DeadLetter(Reason.UNDECRYPTABLE, failure))

    def _decoded_extras(self, text: str) -> Extras:
        try:
            return decode_extras(text)
        except BaseException:
            self.extras = read_extras(text)  # what the failure is judged by
            raise

    def _may_be_refused(self, handler: Handler) -> bool:
        """Return True if `_admit` has anything to check; for most jobs it has not."""
        return (
            self.work.extras is not None
            or self.is_cancelled
            or self.work.attempt > handler.policy.max_attempts
            or bool(self.services.dependencies.open and handler.depends_on)
        )

    async def _admit(self) -> None:
        """Turn away a job that must not start, or not now, or not here."""
        if self.is_cancelled:
            raise Settled(await self._cancelled())
        reason = why_not_started(self._claimed(), self.handler.policy)
        if reason is Reason.EXPIRED:
            await self._say_expired()
        if reason is not None:
            raise Settled(self._not_started(reason))
        release = self.services.dependencies.put_off(self.handler.depends_on)
        if release is not None:
            raise Settled(release)
        version = self.extras.headers.get("version", 1)
        if isinstance(version, int) and version > self.handler.version:
            raise Settled(self._newer_payload(version))

    def _newer_payload(self, version: int) -> NotComplete:
        """Wait for the rollout, but not for ever: a producer may name any version."""
        if _times_given_back(self.work) < MAX_ROLLOUT_RETURNS:
            return Release("newer_payload", _until_rollout(self.work))
        message = f"the payload has version {version}, the handler takes {self.handler.version}"
        where = self.services.where
        failure = self._made_up("NewerPayload", message, Category.INVALID, where)
        return DeadLetter(Reason.INVALID_PAYLOAD, failure, refund=True)

    async def _say_expired(self) -> None:
        """Tell the handler's `on_expired`; whatever it does, the job has expired."""
        await self._tell("on_expired", self.handler.on_expired)

    async def _cancelled(self) -> NotComplete:
        """Tell the handler's `on_cancelled`; whatever it does, the job is cancelled."""
        await self._tell("on_cancelled", self.handler.on_cancelled)
        return Cancel("no longer wanted")

    async def _tell(self, name: str, hook: Callable[..., Any] | None) -> None:
        """Call a hook as the handler is called."""
        if hook is None:
            return
        try:
            payload = self._read()
        except Settled:
            return  # not even the hook can make anything of it
        arguments = (payload, self._job()) if self.handler.takes_job else (payload,)
        await self.services.hooks.call(name, hook, *arguments)

    def _read(self) -> Any:
        """The payload as the handler takes it, through upgrades and model."""
        version = self.extras.headers.get("version", 1)
        try:
            return self.handler.payload(self.work.payload, version)
        except BaseException as error:  # noqa: BLE001 # a validator is user code too
            known = (
                version
                if self.handler.version > 1 and isinstance(version, int)
                else None
            )
            failure = self._describe(error, phase="payload", payload_version=known)
            failure = replace(failure, category=Category.INVALID)
            raise Settled(DeadLetter(Reason.INVALID_PAYLOAD, failure)) from None

    def _job(self) -> Job:
        work, extras, headers = self.work, self.extras, self.extras.headers
        if self.services.keyring is not None:
            headers = {name: value for name, value in headers.items() if name != MARK}
        return Job(
            id=work.id,
            kind=work.kind,
            queue=self.queue,
            attempt=work.attempt,
            deliveries=work.deliveries,
            key=extras.idempotency_key,
            created=work.created,
            deadline=datetime.now(UTC)
            + timedelta(seconds=seconds(self.handler.policy.timeout)),
            redrives=extras.redrives,
            tenant=extras.tenant,
            headers=headers,
            worker=self.batch.worker,
            tell=self._tell_side_effect,
            watch=self.services.dependencies,
            notes=_AttemptNotes(self),
            last_checkpoint=self.last_checkpoint,
        )

    def _tell_side_effect(self, what: str, detail: dict[str, Any]) -> None:
        """Send what the handler says it did; it may be in a thread."""
        secrets = self.secrets()
        what, detail = (
            scrub(what, secrets),
            redact(detail, self.handler.secret, secrets),
        )
        if self.services.keyring is not None:
            what, detail = self.services.keyring.seal_side_effect(
                what, detail, self.work.id, self.work.deliveries
            )
        self.services.send(
            SideEffect(
                self.work.id, self.work.deliveries, what, encode_json(detail).decode()
            )
        )

    @property
    def key(self) -> tuple[int, int]:
        """Return the job and its delivery."""
        return self.work.id, self.work.deliveries

    def sealed_progress(self, share: float, text: str) -> tuple[int, int, float, str]:
        """Return the progress as a row of `Progress`: without secrets, and sealed if
        failures are.
        """
        said = scrub(text, self.secrets())
        return (*self.key, share, self._sealed_note({"text": said}, "progress"))

    def sealed_checkpoint(self, data: str) -> str:
        """A checkpoint as it is stored: as it is, for the next attempt, or sealed."""
        return self._sealed_note({"data": msgspec.Raw(data.encode())}, "checkpoint")

    def _sealed_note(self, note: Mapping[str, Any], what: str) -> str:
        keyring = self.services.keyring
        if keyring is not None:
            note = keyring.seal_record(note, what, *self.key)
        return encode_json(note).decode()

    def _keep(self, returned: Any) -> None:
        """Keep what the handler returned. The work is done, whatever that is."""
        keep = self.handler.keep_result
        if keep <= 0:
            return
        try:
            dump = getattr(returned, "model_dump", None)
            value = returned if dump is None else dump(mode="json")
            text = encode_object("result", {"value": value}, MAX_RESULT_BYTES)
        except Exception as error:  # noqa: BLE001 # of whatever class the application returns
            # what was returned may be secret, and so may be what an error says of it
            rule = error.rule if isinstance(error, InvalidJob) else "cannot be encoded"
            logger.warning(
                "the result of a job is not kept: %s: %s", self.work.kind, rule
            )
            return
        self.returned = Returned(
            *self.key, self._sealed_note(decode_object(text), "result"), keep
        )

    def _perform(self, payload: Any, job: Job | None) -> Awaitable[Any]:
        """Run the handler, in the event loop or in a thread."""
        handler = self.handler
        arguments = (payload,) if job is None else (payload, job)
        if not handler.is_async:
            return self._in_thread(handler.function, arguments)
        # a thread cannot be cancelled: there the supervisor ends the process
        self.over_at = self.started_ns / 1e9 + seconds(handler.policy.timeout)
        return handler.function(*arguments)

    async def _in_thread(
        self, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        context = contextvars.copy_context()
        returned, error = await asyncio.get_running_loop().run_in_executor(
            self.services.threads, lambda: context.run(_call, function, arguments)
        )
        if error is not None:
            raise error
        if asyncio.iscoroutine(returned):
            return (
                await returned
            )  # a plain function that returned what an async one would
        return returned

    def cancel_if_overdue(self, now: float) -> None:
        """Cancel the handler when its time is over, once."""
        if self.over_at < now and not self.is_overdue:
            self.is_overdue = True
            self.task.cancel()

    def cancel(self) -> None:
        """The job is no longer wanted: tell the handler, once; an async one by a
        cancellation.
        """
        if self.is_cancelled:
            return
        self.is_cancelled = True
        if self.job is not None:
            self.job.cancelled = True
        if self.over_at < NEVER and not self.is_overdue:  # an async handler runs
            self.task.cancel()

    async def _absorb_cancellation(self) -> None:
        """Take in each cancellation, ours or the handler's: the task's next await would
        end it.
        """
        while self.task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            self.task.uncancel()

    def _judge(self, error: BaseException) -> NotComplete:
        """Decide what follows from an error of the handler or of a step before it."""
        claimed, policy, jitter = self._claimed(), self.handler.policy, random.random()
        if self.is_overdue:
            return decide(claimed, self._deadline_exceeded(), policy, jitter)
        if isinstance(error, Signal):
            return decide_signal(claimed, error, self._asked_for(error), policy, jitter)
        return decide(claimed, self._describe(error), policy, jitter)

    def _deadline_exceeded(self) -> Failure:
        limit = seconds(self.handler.policy.timeout)
        message = f"the attempt took longer than its timeout of {limit:g} s"
        return self._made_up("DeadlineExceeded", message, Category.LOST, self._trace())

    def _asked_for(self, signal: Signal) -> Failure:
        said = scrubbed(safe_text(signal), self.secrets())
        message = said or "asked for by the handler"
        return self._made_up(
            type(signal).__name__, message, Category.OTHER, self._trace()
        )

    async def _unless_committed(
        self, conn: Any, settlement: NotComplete | None
    ) -> NotComplete:
        """The end of a job whose handler called `job.complete(conn)` and may not have
        committed.
        """
        was_open = not self.services.leaves_open and await end_transaction(
            conn, self.services.threads
        )
        if settlement is not None:
            return settlement
        self.may_be_done = not was_open
        message = (
            "the handler returned while the transaction of job.complete() was still open"
            if was_open
            else "the transaction of job.complete() was rolled back, "
            "but the handler returned as if it had succeeded"
        )
        failure = self._made_up(
            "NotCommitted", message, Category.OTHER, self.services.where
        )
        return decide(self._claimed(), failure, self.handler.policy, random.random())

    def report(self, settlement: NotComplete) -> Report:
        """Encode how the attempt ended, sealed where failures are."""
        return report_of(
            self.work.id,
            self.work.deliveries,
            self._sealed(settlement),
            seconds=self.seconds,
            may_be_gone=self.may_be_gone,
            trace=self.trace_id,
        )

    def _sealed(self, settlement: NotComplete) -> NotComplete:
        keyring = self.services.keyring
        if keyring is None or not isinstance(settlement, Retry | DeadLetter):
            return settlement
        # that a payload cannot be read says nothing of what is in it
        if (
            isinstance(settlement, DeadLetter)
            and settlement.reason is Reason.UNDECRYPTABLE
        ):
            return settlement
        work, record = self.work, settlement.failure.record()
        sealed = keyring.seal_failure(record, work.id, work.deliveries)
        failure = replace(
            settlement.failure, message=sealed["message"], detail=sealed["detail"]
        )
        return replace(settlement, failure=failure)

    @property
    def queue(self) -> str:
        """The queue that the job was claimed from."""
        return self.batch.queues[self.work.lane - 1]

    def _claimed(self) -> Claimed:
        work, extras = self.work, self.extras
        return Claimed(
            work.kind,
            work.attempt,
            extras.max_attempts,
            extras.losses,
            extras.streak,
            extras.fingerprint,
            extras.expires_in,
        )

    def _not_started(self, reason: Reason) -> DeadLetter:
        message = f"not started: {reason}"
        failure = self._made_up(
            "NotStarted", message, Category.OTHER, self.services.where
        )
        return DeadLetter(reason, failure, refund=True)

    def _made_up(
        self,
        error_class: str,
        message: str,
        category: Category,
        detail: Mapping[str, str],
    ) -> Failure:
        return made_up(error_class, message, category, self.work.kind, **detail)

    def _describe(self, error: BaseException, **detail: Any) -> Failure:
        """The record of an exception, without the secrets of the payload it may speak
        of.
        """
        handler = self.handler
        if handler.secret:
            detail["secret_fields"] = sorted(handler.secret)
        return describe(
            error,
            self.work.kind,
            rules=handler.policy.rules,
            secrets=self.secrets(),
            own=self.services.own,
            **self._trace(),
            **detail,
            **self.services.where,
        )

    def secrets(self) -> Collection[str]:
        """The values of the job and of this process that must not turn up anywhere
        else.
        """
        if self.known is None:
            declared = self.handler.secret
            known = self.services.secrets | self.handler.known
            known |= secret_values(dict(self.extras.headers), declared)
            # a payload that cannot be read has no keys to go by
            with contextlib.suppress(Exception):
                known |= secret_values(decode_object(self.work.payload), declared)
            self.known = known
        return self.known

    def _trace(self) -> dict[str, str]:
        """Return where to find this attempt among the traces."""
        if self.traceparent is None:
            return {}
        return {
            "traceparent": self.traceparent,
            "trace_id": self.traceparent.split("-")[1],
        }


class _AttemptNotes(Notes):
    """The notes of one attempt's handler."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._book = attempt.services.notes

    def progress(self, share: float, text: str) -> None:
        self._attempt.is_noting = True
        self._book.progress(self._attempt, share, text)

    def checkpoint(self, data: str) -> "Future[bool]":
        self._attempt.is_noting = True
        return self._book.checkpoint(
            self._attempt.key, self._attempt.sealed_checkpoint(data)
        )


def _call(
    function: Any, arguments: tuple[Any, ...]
) -> tuple[Any, BaseException | None]:
    """Call a function; return its value and its error. A Future cannot carry
    StopIteration.
    """
    try:
        return function(*arguments), None
    except BaseException as error:  # noqa: BLE001 # raised again where the attempt is judged
        return None, error


def _until_rollout(work: Work) -> float:
    """Seconds until a rollout may have brought what is missing; spread, so jobs return
    apart.

    Twice as long after each time that the job was given back: about as long as it has
        waited.
    """
    doublings = min(_times_given_back(work), 10)
    return min(MAX_ROLLOUT_DELAY, ROLLOUT_DELAY * 2.0**doublings) * random.uniform(
        0.5, 1.5
    )


def _times_given_back(work: Work) -> int:
    return max(0, work.deliveries - work.attempt)
