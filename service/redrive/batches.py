"""Batches: jobs that belong together, and a job that runs after all have ended."""

from collections.abc import Awaitable, Generator
from datetime import timedelta
from typing import Any, Self, overload

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.enqueue import checked_at, to_json
from redrive.errors import InvalidJob
from redrive.rules.payloads.job_fields import PARAMETERS, Field, JobFields
from redrive.rules.payloads.limits import check_batch, check_duration
from redrive.signals import Seconds

OPEN = (
    "select redrive.open_batch_v1(cast(cast(%s as text) as jsonb), cast(cast(%s as text) as jsonb),"
    " cast(%s as float8) * interval '1 second')"
)
CLOSE = "select redrive.close_batch_v1(cast(%s as bigint))"
OF_A_CALLBACK = frozenset(
    (
        "kind",
        "payload",
        "queue",
        "priority",
        "max_attempts",
        "tenant",
        "headers",
        "version",
    )
) | {"batch"}
"""Fields that are allowed in a job that waits for a batch."""


class OpenBatch(int):
    """The id of a batch; a `with` block closes the batch unless it raises."""

    conn: Any

    @classmethod
    def of(cls, conn: Any, number: int) -> Self:
        """Return the open batch with this number."""
        batch = cls(number)
        batch.conn = conn
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            close_batch(self.conn, self)


class OpeningBatch(Awaitable[OpenBatch]):
    """An open batch on an async connection, for `await` or `async with`."""

    def __init__(self, opened: Awaitable[OpenBatch]) -> None:
        self._opened = opened
        self._batch: OpenBatch

    def __await__(self) -> Generator[Any, Any, OpenBatch]:
        return self._opened.__await__()

    async def __aenter__(self) -> OpenBatch:
        self._batch = await self
        return self._batch

    async def __aexit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            await close_batch(self._batch.conn, self._batch)


@overload
def open_batch(
    conn: SyncConnection,
    *,
    on_success: JobFields | None = None,
    on_end: JobFields | None = None,
    close_within: Seconds = ...,
) -> OpenBatch: ...
@overload
def open_batch(
    conn: AsyncConnection,
    *,
    on_success: JobFields | None = None,
    on_end: JobFields | None = None,
    close_within: Seconds = ...,
) -> OpeningBatch: ...
def open_batch(
    conn: Any,
    *,
    on_success: JobFields | None = None,
    on_end: JobFields | None = None,
    close_within: Seconds = timedelta(days=1),
) -> OpenBatch | OpeningBatch:
    """Open a batch in the transaction that is open on `conn`.

        report = {"kind": "report.send", "payload": {"id": 3}}
        with open_batch(conn, on_success=report) as batch:
            for page in pages:
                enqueue(conn, "page.render", {"page": page}, batch=batch)

    Args:
        conn: as for `enqueue`.
        on_success: a job that runs once, after all jobs of the batch have succeeded.
        on_end: a job that runs once, after all jobs of the batch have ended. Both jobs
            get the header `batch`. It has the batch's id and the numbers of all,
            succeeded, dead and cancelled jobs.
        close_within: seconds or a timedelta. A batch that is still open after this time
            is given up.

    Returns:
        The batch's id, an int for `batch=` of `enqueue` and for `close_batch`. A `with`
        block closes the batch at its end. After an exception the batch stays open until
        its transaction is rolled back, it is closed, or it is given up. An async
        connection returns an awaitable that also works with `async with`.

    Raises:
        InvalidJob: a callback cannot be stored; its `path` and `rule` say why.
    """
    callbacks = _callback("on_success", on_success), _callback("on_end", on_end)
    within = check_duration("close_within", close_within)

    opened = sql_drivers.scalar(
        conn, OPEN, (*callbacks, within), lambda number: OpenBatch.of(conn, number)
    )
    if sql_drivers.is_async(conn):
        return OpeningBatch(opened)

    return opened


def _callback(name: str, job: JobFields | None) -> str | None:
    if job is None:
        return None

    checked = checked_at(name, job)
    for field in job:
        if field not in OF_A_CALLBACK:
            path = f"{name}.{field}"
            rule = "a callback of a batch cannot have this field"
            raise InvalidJob(path, rule)

    given = {
        name: _as_json(field, checked[name])
        for name, field in PARAMETERS.items()
        if checked[name] != field.default
    }

    return to_json(given)


def _as_json(field: Field, value: Any) -> Any:
    if field.type == "object":
        return msgspec.Raw(value)
    return value


@overload
def close_batch(conn: SyncConnection, batch: int) -> bool: ...
@overload
def close_batch(conn: AsyncConnection, batch: int) -> Awaitable[bool]: ...
def close_batch(conn: Any, batch: int) -> bool | Awaitable[bool]:
    """Close a batch: all its jobs are enqueued. Jobs of the batch may still add more.

    Returns:
        True if the batch was open. Closing it twice is harmless.
    """
    return sql_drivers.scalar(conn, CLOSE, (check_batch("batch", batch),), bool)
