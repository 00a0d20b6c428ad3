"""Add jobs on the caller's own connection, inside the caller's own transaction."""

import contextlib
import io
import itertools
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, LiteralString, Unpack, cast, overload

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.encryption import Whose, configured
from redrive.errors import InvalidJob
from redrive.observability.tracing import sending
from redrive.rules.payloads.job_fields import (
    PARAMETERS,
    CheckedJob,
    FieldType,
    JobFields,
    JobOptions,
    Payload,
    check_job,
    fields_of_call,
)

PLACEHOLDERS: dict[FieldType, LiteralString] = {
    "text": "cast(%s as text)",
    "integer": "cast(%s as int)",
    "number": "cast(%s as bigint)",
    "names": "cast(%s as text[])",
    "instant": "cast(%s as timestamptz)",
    "duration": "cast(%s as float8) * interval '1 second'",
    "object": "cast(cast(%s as text) as jsonb)",
}
ENQUEUE = (
    "select id, created, outcome from redrive.enqueue_v1("
    + ", ".join([PLACEHOLDERS[field.type] for field in PARAMETERS.values()])
    + ")"
)
ENQUEUE_MANY = (
    "select coalesce(sum(created::int), 0)"
    " from redrive.enqueue_many_v1(cast(cast(%s as text) as jsonb))"
)
COPIED = tuple(name for name, field in PARAMETERS.items() if field.copied)
COPY = f"copy redrive.jobs ({', '.join(COPIED)}) from stdin"
CHUNK = 2_500
"""Largest number of jobs that one statement adds."""

CHUNK_CHARACTERS = 1 << 21
"""Largest total length of the payloads in one statement, in characters.

Above `work_mem` (4 MB) the database writes the rows to a file. Above 256 MB it rejects
the JSON."""


def _values_of(names: tuple[str, ...]) -> Callable[[CheckedJob], tuple[Any, ...]]:
    return itemgetter(*names)  # pyright: ignore[reportUnknownVariableType] # its stub counts names


_COPIED = frozenset(COPIED) | {"version"}  # the version is stored in the headers
_MAPPINGS: Any = (dict, Mapping)  # isinstance finds a dict fastest
_copied_values = _values_of(COPIED)
_payload: Callable[[CheckedJob], str] = itemgetter("payload")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
"""Characters with a meaning in the text format of COPY."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Result of an enqueue.

    Attributes:
        id: the id of the new job, or of the existing job with the same key.
        created: True if the call created a new job.
        outcome: `enqueued` for a new job. `live` or `succeeded`: state of the existing
            job with the same key. `replaced`: the existing job gets this payload and
            time when the transaction commits.
    """

    id: int
    created: bool
    outcome: str


@overload
def enqueue(
    conn: SyncConnection,
    kind: str,
    payload: Payload = None,
    **options: Unpack[JobOptions],
) -> int: ...
@overload
def enqueue(
    conn: AsyncConnection,
    kind: str,
    payload: Payload = None,
    **options: Unpack[JobOptions],
) -> Awaitable[int]: ...
def enqueue(
    conn: Any, kind: str, payload: Payload = None, **options: Unpack[JobOptions]
) -> int | Awaitable[int]:
    """Add one job in the transaction that is open on `conn`.

    The job exists after the commit.

    Args:
        conn: a connection of psycopg, SQLAlchemy (also a Session), Django or asyncpg.
            An async connection returns an awaitable.
        kind: selects the handler, `^[A-Za-z][A-Za-z0-9_.-]{0,62}$`. This function does not
            know the handler's queue. Pass `queue`, or call `enqueue` of the handler or
            of its registry.
        payload: a mapping or a pydantic model, at most 256 KiB as JSON and 64 levels
            deep.
        options: the fields of `JobOptions`: queue, delay (seconds or a timedelta) or
            run_at (an aware datetime), idempotency_key, unique_for, batch and more.

    Returns:
        The id of the job, or of the existing job if its key is taken or a unique job
        exists.

    Raises:
        InvalidJob: the job cannot be stored; `path` and `rule` say why. Nothing was
            sent.
        TypeError: an option has an unknown name, or `conn` has an unsupported type.
    """
    return _enqueue(
        conn, fields_of_call("enqueue", kind, payload, options), itemgetter(0)
    )


@overload
def enqueue_reporting(
    conn: SyncConnection,
    kind: str,
    payload: Payload = None,
    **options: Unpack[JobOptions],
) -> Enqueued: ...
@overload
def enqueue_reporting(
    conn: AsyncConnection,
    kind: str,
    payload: Payload = None,
    **options: Unpack[JobOptions],
) -> Awaitable[Enqueued]: ...
def enqueue_reporting(
    conn: Any, kind: str, payload: Payload = None, **options: Unpack[JobOptions]
) -> Enqueued | Awaitable[Enqueued]:
    """Add one job like `enqueue`, and also return whether it is new.

    If a job with the same key exists, the result says what state that job is in.
    """
    fields = fields_of_call("enqueue_reporting", kind, payload, options)
    return _enqueue(conn, fields, lambda row: Enqueued(*row))


def _enqueue(conn: Any, fields: Mapping[str, Any], finish: Callable[[Any], Any]) -> Any:
    queue: Any = fields.get("queue", "default")
    headers: Any = fields.get("headers") or {}

    with sending(str(queue), fields["kind"], headers) as sent:
        job = _seal(check_job({**fields, "headers": sent}))
        return sql_drivers.row(conn, ENQUEUE, tuple(job.values()), finish)


def _seal(job: CheckedJob) -> CheckedJob:
    """Encrypt the payload if the application has keys."""
    keyring = configured()
    if keyring is None:
        return job

    payload, salt = keyring.seal_payload(job["payload"].encode(), Whose.of(job))

    if job["unique_for"] is not None:
        # Envelopes of equal payloads differ, so the database compares a digest.
        payload = keyring.with_digest(payload, _compared_fields(job))

    headers = msgspec.json.decode(job["headers"]) | salt
    return job | {"payload": to_json(payload), "headers": to_json(headers)}


def _compared_fields(job: CheckedJob) -> dict[str, Any]:
    """Return the fields of the payload that make a unique job unique."""
    fields: dict[str, Any] = msgspec.json.decode(job["payload"])
    names = job["unique_by"]
    if names is None:
        return fields

    return {name: fields.get(name) for name in names}


def to_json(value: Any) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()


@overload
def enqueue_many(conn: SyncConnection, jobs: Iterable[JobFields]) -> int: ...
@overload
def enqueue_many(
    conn: AsyncConnection, jobs: Iterable[JobFields]
) -> Awaitable[int]: ...
def enqueue_many(conn: Any, jobs: Iterable[JobFields]) -> int | Awaitable[int]:
    """Add many jobs in the transaction that is open on `conn`, by COPY where possible.

    Args:
        conn: as for `enqueue`.
        jobs: mappings with the fields of `JobFields`: `kind`, and any other argument of
            `enqueue`.

    Returns:
        The number of jobs that were created. A job whose key is taken is not counted.

    Raises:
        InvalidJob: a job cannot be stored; its `path` starts with `jobs[n]`. No job of
            the call is added.
    """
    conn = sql_drivers.itself(conn)
    family = sql_drivers.driver_of(conn)
    copies = family.startswith("psycopg") and sql_drivers.can_copy(conn)
    if family == "psycopg" and copies:
        return _stream(conn, jobs)

    checked = [checked_at(f"jobs[{n}]", job) for n, job in enumerate(jobs)]
    if family == "psycopg":
        with _whole_or_not(conn):
            return _through_function(conn, checked)
    if family == "psycopg async":
        parted = _parted(checked) if copies else (checked[:0], checked)
        return _enqueue_many_async(conn, *parted)
    if family == "asyncpg":
        return _enqueue_many_asyncpg(conn, *_parted(checked))
    if family == "sqlalchemy async":
        return conn.run_sync(_through_function, checked)

    return _through_function(conn, checked)


def checked_at(path: str, job: Any) -> CheckedJob:
    """Check and encrypt one job of a list.

    Raises:
        InvalidJob: it cannot be stored; the error's path begins with `path`.
    """
    if not isinstance(job, (dict, Mapping)):
        raise InvalidJob(path, f"must be a mapping, not {type(job).__name__}")

    try:
        return _seal(check_job(cast("Mapping[str, Any]", job)))
    except InvalidJob as error:
        path += f".{error.path}"
        raise InvalidJob(path, error.rule) from None


def _is_plain(fields: Mapping[str, Any]) -> bool:
    """Return True if COPY can add the job.

    COPY can neither compare the job with other jobs nor read the server's clock.
    """
    for name in fields:  # noqa: SIM110 # a generator costs more than all the rest
        if name not in _COPIED and fields[name] is not None:
            return False

    return True


def _parted(jobs: list[CheckedJob]) -> tuple[list[CheckedJob], list[CheckedJob]]:
    """Split jobs into jobs that COPY can add and all others."""
    plain: list[CheckedJob] = []
    others: list[CheckedJob] = []

    for job in jobs:
        if _is_plain(job):
            plain.append(job)
        else:
            others.append(job)

    return plain, others


def _through_function(conn: Any, jobs: list[CheckedJob]) -> int:
    return sum(
        sql_drivers.scalar(conn, ENQUEUE_MANY, chunk, int) for chunk in _packed(jobs)
    )


def _packed(jobs: list[CheckedJob]) -> Iterator[tuple[str]]:
    """Yield the parameters of each statement: one array for each field in use."""
    return ((f"{{{','.join(_members(chunk))}}}",) for chunk in _chunks(jobs))


def _chunks(jobs: list[CheckedJob]) -> Iterator[list[CheckedJob]]:
    """Split jobs into chunks, one for each statement."""
    for at in range(0, len(jobs), CHUNK):
        chunk = jobs[at : at + CHUNK]
        step = _jobs_at_once(chunk)

        for n in range(0, len(chunk), step):
            yield chunk[n : n + step]


def _jobs_at_once(chunk: list[CheckedJob]) -> int:
    """Return how many jobs of a chunk one statement may carry."""
    payloads = map(_payload, chunk)
    parts = sum(map(len, payloads)) // CHUNK_CHARACTERS + 1

    return -(-len(chunk) // parts)  # rounded up


def _members(jobs: list[CheckedJob]) -> Iterator[str]:
    columns = zip(*[job.values() for job in jobs], strict=True)
    for (name, field), values in zip(PARAMETERS.items(), columns, strict=True):
        is_in_use = values.count(field.default) < len(values)
        if is_in_use:
            column = _column(field.type, values)
            yield f'"{name}":{column}'


def _column(type_of: FieldType, values: tuple[Any, ...]) -> str:
    if type_of == "object":  # the values are JSON already
        return f"[{','.join(values)}]"
    if type_of == "names":  # nested arrays must have equal lengths
        values = tuple(None if names is None else to_json(names) for names in values)
    return to_json(values)


def _stream(conn: Any, jobs: Iterable[Any]) -> int:
    """Check the next jobs while the database receives the previous ones."""
    rest = _Rest(jobs)
    plain = _plain_jobs(jobs, rest)
    with _whole_or_not(conn):
        copied = _copy(conn, plain) if rest.can_wait else _copy_ahead(conn, plain)
        return copied + sum(sql_drivers.in_turn(conn, ENQUEUE_MANY, rest.packed()))


def _plain_jobs(jobs: Iterable[Any], rest: "_Rest") -> Iterator[CheckedJob]:
    """Yield the jobs that COPY can add, checked. Put aside all others."""
    for n, fields in enumerate(jobs):
        if isinstance(fields, _MAPPINGS) and not (
            _COPIED.issuperset(fields) or _is_plain(fields)  # most jobs have few fields
        ):
            rest.add(n, fields)
        else:
            yield checked_at(f"jobs[{n}]", fields)


def _copy(conn: Any, jobs: Iterator[CheckedJob]) -> int:
    """Add jobs by one COPY for each chunk, and return their number."""
    # Both take from the same iterator: a chunk takes the jobs after its first one.
    return sum(_copy_chunk(conn, first, jobs) for first in jobs)


def _copy_ahead(conn: Any, jobs: Iterator[CheckedJob]) -> int:
    """Take each chunk from a generator before its COPY.

    The generator may use the connection, which a COPY would block for good.
    """
    copied = 0
    while chunk := list(itertools.islice(jobs, CHUNK)):
        copied += _copy(conn, iter(chunk))
    return copied


def _copy_chunk(conn: Any, first: CheckedJob, following: Iterator[CheckedJob]) -> int:
    """Copy jobs until their payloads are too long for one statement."""
    copied = size = 0
    with conn.cursor() as cursor, cursor.copy(COPY) as copy:
        for job in itertools.chain((first,), following):
            copy.write_row(_copied_values(job))
            copied += 1
            size += len(job["payload"])
            if size > CHUNK_CHARACTERS:
                break

    return copied


class _Rest:
    """Jobs that COPY cannot add, with their positions."""

    def __init__(self, jobs: Iterable[Any]) -> None:
        self._jobs: list[tuple[int, Any]] = []
        # A generator may reuse its mapping, so its jobs are checked at once.
        self.can_wait = isinstance(jobs, (list, tuple))

    def add(self, n: int, fields: Any) -> None:
        job = fields if self.can_wait else checked_at(f"jobs[{n}]", fields)
        self._jobs.append((n, job))

    def packed(self) -> Iterator[tuple[str]]:
        """Yield the parameters of each statement; check the jobs of one at a time."""
        for at in range(0, len(self._jobs), CHUNK):
            yield from _packed(self._checked(self._jobs[at : at + CHUNK]))

    def _checked(self, jobs: list[tuple[int, Any]]) -> list[CheckedJob]:
        if not self.can_wait:
            return [job for _, job in jobs]

        return [checked_at(f"jobs[{n}]", fields) for n, fields in jobs]


@contextlib.contextmanager
def _whole_or_not(conn: Any) -> Iterator[None]:
    """Undo all work of the block if it fails; keep the caller's earlier work."""
    if conn.autocommit or conn.info.transaction_status.name != "IDLE":
        # This is a savepoint if the caller has begun a transaction.
        with conn.transaction():
            yield

        return

    try:
        yield  # not in `conn.transaction()`, which would commit the caller's work
    except BaseException:
        conn.rollback()
        raise


@contextlib.asynccontextmanager
async def _whole_or_not_async(conn: Any) -> AsyncIterator[None]:
    """Do the same as `_whole_or_not` for an async connection."""
    if conn.autocommit or conn.info.transaction_status.name != "IDLE":
        async with conn.transaction():
            yield

        return

    try:
        yield
    except BaseException:
        await conn.rollback()
        raise


async def _enqueue_many_async(
    conn: Any, plain: list[CheckedJob], other: list[CheckedJob]
) -> int:
    async with _whole_or_not_async(conn):
        for chunk in _chunks(plain):
            async with conn.cursor() as cursor, cursor.copy(COPY) as copy:
                for job in chunk:
                    await copy.write_row(_copied_values(job))

        return len(plain) + await _through_function_async(conn, other)


@contextlib.asynccontextmanager
async def _whole_or_not_asyncpg(conn: Any) -> AsyncIterator[None]:
    """Do the same for asyncpg, also if the caller's own statement began a transaction."""
    if conn.is_in_transaction():
        begin, keep, undo = "savepoint jobs", "release jobs", "rollback to jobs"
    else:
        begin, keep, undo = "begin", "commit", "rollback"

    await conn.execute(begin)
    try:
        yield
    except BaseException:
        await conn.execute(undo)
        raise

    await conn.execute(keep)


async def _enqueue_many_asyncpg(
    conn: Any, plain: list[CheckedJob], other: list[CheckedJob]
) -> int:
    async with _whole_or_not_asyncpg(conn):
        for chunk in _chunks(plain):
            await conn.copy_to_table(
                "jobs",
                schema_name="redrive",
                columns=COPIED,
                source=io.BytesIO("".join(map(_line, chunk)).encode()),
            )

        return len(plain) + await _through_function_async(conn, other)


def _line(job: CheckedJob) -> str:
    r"""Return a job in the text format of COPY, which no codec of the caller changes."""
    cells = [
        r"\N" if value is None else str(value).translate(_ESCAPES)
        for value in _copied_values(job)
    ]
    return "\t".join(cells) + "\n"


async def _through_function_async(conn: Any, jobs: list[CheckedJob]) -> int:
    created = 0
    for chunk in _packed(jobs):
        created += await sql_drivers.scalar(conn, ENQUEUE_MANY, chunk, int)
    return created
