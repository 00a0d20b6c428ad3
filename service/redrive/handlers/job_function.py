"""Decorated handlers: the function itself, and the way to enqueue its jobs.

A producer that imports the handler does not need to know its queue, its payload version
or its model. Jobs enqueued through the handler use its queue and are checked against
its model.
"""

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec

from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.enqueue import enqueue, enqueue_many
from redrive.errors import InvalidJob
from redrive.handlers.dump import dump_model
from redrive.rules.payloads.job_fields import JobFields, JobOptions, check_options
from redrive.rules.payloads.limits import encode_payload
from redrive.rules.payloads.redact import scrub, secret_values

PayloadT = TypeVar("PayloadT")
Others = ParamSpec("Others")
Returned = TypeVar("Returned")

OF_ONE_JOB = ("idempotency_key",)
"""Options that must differ between jobs, so `enqueue_many` rejects them."""


class Registered(Protocol):
    """The part of a `Handler` that producers use."""

    @property
    def kind(self) -> str:
        """Return the kind of its jobs; `mail.*` covers all kinds with that prefix."""
        ...

    @property
    def queue(self) -> str:
        """Return the queue of its jobs."""
        ...

    @property
    def version(self) -> int:
        """Return the version of its payload."""
        ...

    @property
    def secret(self) -> frozenset[str]:
        """Return the payload keys whose values are hidden everywhere."""
        ...

    def payload(self, text: str, version: int) -> Any:
        """Read a payload in the same way as the runner."""
        ...


class JobFunction(Generic[PayloadT, Others, Returned]):
    """A decorated function: a call runs it as before, `enqueue` adds a job for it."""

    __wrapped__: Callable[Concatenate[PayloadT, Others], Returned]

    def __init__(
        self,
        function: Callable[Concatenate[PayloadT, Others], Returned],
        handler: Registered,
    ) -> None:
        functools.update_wrapper(self, function)
        self._handler = handler
        if sys.version_info >= (3, 12) and inspect.iscoroutinefunction(function):
            inspect.markcoroutinefunction(self)

    def __call__(
        self, payload: PayloadT, /, *args: Others.args, **kwargs: Others.kwargs
    ) -> Returned:
        """Call the function directly, without a job."""
        return self.__wrapped__(payload, *args, **kwargs)

    def __reduce__(self) -> str:
        # A pickle names the module and the function, as for a plain function.
        return self.__wrapped__.__qualname__

    def __repr__(self) -> str:
        return f"<handler of {self._handler.kind!r}: {self.__wrapped__!r}>"

    @overload
    def enqueue(
        self, conn: SyncConnection, payload: PayloadT, **options: Unpack[JobOptions]
    ) -> int: ...
    @overload
    def enqueue(
        self, conn: AsyncConnection, payload: PayloadT, **options: Unpack[JobOptions]
    ) -> Awaitable[int]: ...
    def enqueue(
        self, conn: Any, payload: PayloadT, **options: Unpack[JobOptions]
    ) -> int | Awaitable[int]:
        """Add one job for this handler, in the transaction that is open on `conn`.

        Args:
            conn: as for `redrive.enqueue`.
            payload: the function's payload, with its SecretStr fields unchanged. It is
                read in the same way as by the runner before anything is sent.
            options: as for `redrive.enqueue`. By default the queue and the payload
                version are the handler's.

        Returns:
            The id of the job. If the idempotency key is taken, the id of the job that
            has it.

        Raises:
            InvalidJob: the handler cannot read the payload; `path` names the field.
            TypeError: an option has an unknown name, or `conn` has an unsupported type.
        """
        return enqueue_for(self._handler, conn, self._handler.kind, payload, options)

    @overload
    def enqueue_many(
        self,
        conn: SyncConnection,
        payloads: Iterable[PayloadT],
        **options: Unpack[JobOptions],
    ) -> int: ...
    @overload
    def enqueue_many(
        self,
        conn: AsyncConnection,
        payloads: Iterable[PayloadT],
        **options: Unpack[JobOptions],
    ) -> Awaitable[int]: ...
    def enqueue_many(
        self, conn: Any, payloads: Iterable[PayloadT], **options: Unpack[JobOptions]
    ) -> int | Awaitable[int]:
        """Add one job for each payload, all with the same options.

        See `redrive.enqueue_many`.

        Returns:
            The number of jobs that were created.

        Raises:
            InvalidJob: the handler cannot read a payload; `path` starts with `jobs[n]`.
            TypeError: an option has an unknown name, or must differ between jobs.
        """
        check_options("enqueue_many", options)
        for name in OF_ONE_JOB:
            if options.get(name) is not None:
                msg = f"enqueue_many() cannot give all jobs the same {name}; use enqueue() for each"
                raise TypeError(msg)

        kind = self._handler.kind
        jobs = ({"kind": kind, "payload": payload, **options} for payload in payloads)

        return enqueue_many_for(lambda _: self._handler, conn, cast("Any", jobs))


# Type checkers cannot choose an overload for an unknown connection type.
_enqueue: Callable[..., Any] = enqueue
_enqueue_many: Callable[..., Any] = enqueue_many


def plain(function: Any) -> Any:
    """Return the function of a JobFunction, or any other value unchanged."""
    decorated: Any = function
    if isinstance(function, JobFunction):
        return decorated.__wrapped__
    return decorated


def enqueue_many_for(
    handler_of: Callable[[str], Registered], conn: Any, jobs: Iterable[JobFields]
) -> int | Awaitable[int]:
    """Add many jobs, each with the options of its kind's handler.

    Raises:
        InvalidJob: a handler cannot read a payload; `path` starts with `jobs[n]`.
    """
    return _enqueue_many(conn, _checked(jobs, handler_of))


def enqueue_for(
    handler: Registered, conn: Any, kind: str, payload: Any, options: JobOptions
) -> int | Awaitable[int]:
    """Add one job of `kind` with the options of its handler.

    Raises:
        InvalidJob: the handler cannot read the payload.
        TypeError: an option has an unknown name.
    """
    check_options("enqueue", options)
    given = options_for(handler, options)
    return _enqueue(conn, kind, checked_payload(handler, payload, given), **given)


def options_for(handler: Registered, options: JobOptions) -> JobOptions:
    """Merge the options of the producer and the handler."""
    defaults = JobOptions(queue=handler.queue)
    # A payload without a version has version 1.
    if handler.version > 1:
        defaults["version"] = handler.version
    return {**defaults, **options}


def _checked(
    jobs: Iterable[JobFields], handler_of: Callable[[str], Registered]
) -> Iterator[JobFields]:
    """Yield the jobs one by one, checked by their handlers."""
    for n, job in enumerate(jobs):
        if not _has_kind(job):
            yield job  # `enqueue_many` reports its fault
            continue

        handler = handler_of(job["kind"])
        given = cast("JobFields", options_for(handler, job))

        try:
            given["payload"] = checked_payload(handler, job.get("payload"), given)
        except InvalidJob as error:
            path = f"jobs[{n}].{error.path}"
            raise InvalidJob(path, error.rule) from None

        yield given


def _has_kind(job: Any) -> bool:
    return isinstance(job, Mapping) and isinstance(cast("Any", job).get("kind"), str)


def checked_payload(
    handler: Registered, payload: Any, options: JobOptions
) -> dict[str, Any]:
    """Return the payload to store, after the handler has read it like the runner.

    Raises:
        InvalidJob: the handler cannot read it; `path` names the first field that does
            not fit.
    """
    stored = dump_model(payload)
    text = encode_payload("payload", stored)
    check_payload(handler, text, options.get("version") or 1)

    return {} if stored is None else stored


def check_payload(handler: Registered, text: str, version: Any) -> None:
    """Read a payload's JSON of this version like the runner.

    Raises:
        InvalidJob: the handler cannot read it.
    """
    if not isinstance(version, int) or version > handler.version:
        return  # only a newer worker can read it

    try:
        handler.payload(text, version)
    except Exception as error:  # noqa: BLE001 # validators and upgrades are user code
        raise _refused(handler, error, msgspec.json.decode(text)) from None


def _refused(
    handler: Registered, error: Exception, payload: Mapping[str, Any]
) -> InvalidJob:
    """Return an error that names the faulty field of a payload, without secrets."""
    errors: Any = getattr(error, "errors", None)
    # Only an error of pydantic says which field is at fault.
    if not callable(errors):
        name = type(error).__name__
        rule = f"the handler of {handler.kind!r} cannot read it: {name}"
        return InvalidJob("payload", rule)

    faults: Any = errors(include_url=False, include_input=False, include_context=False)
    path = "".join(map(_step, faults[0]["loc"]))
    secrets = secret_values(payload, handler.secret)

    return InvalidJob(f"payload{path}", scrub(faults[0]["msg"], secrets))


def _step(part: int | str) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}"
