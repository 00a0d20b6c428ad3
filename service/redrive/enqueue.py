"""Add jobs, on the caller's own connection and inside the caller's own transaction."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.encryption import configured
from redrive.errors import InvalidJob
from redrive.observability.tracing import sending
from redrive.rules.limits import (
    MAX_ATTEMPTS,
    MAX_HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_PRIORITY,
    check_instant,
    check_name,
    check_number,
    check_text,
    encode_object,
)
from redrive.signals import Seconds, seconds

ENQUEUE = (
    "select id, created, outcome from redrive.enqueue_v1(cast(%s as text), cast(cast(%s as text) as jsonb),"
    " cast(%s as text), cast(%s as timestamptz), cast(%s as int), cast(%s as int), cast(%s as text), cast(%s as text),"
    " cast(%s as text), cast(%s as float8) * interval '1 second', cast(cast(%s as text) as jsonb))"
)
ENQUEUE_MANY = "select coalesce(sum(created::int), 0) from redrive.enqueue_many_v1(cast(cast(%s as text) as jsonb))"
COPY_COLUMNS = ("kind", "payload", "queue", "priority", "max_attempts", "headers")
CHUNK = 5_000
MIN_EXPIRES = 0.001
MAX_VERSION = 1_000_000
MAX_EXPIRES = 100 * 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of it. `outcome`: enqueued, or, for a key already taken, live or succeeded: `id`
    is that job's.
    """

    id: int
    created: bool
    outcome: str


class NewJob(msgspec.Struct, frozen=True):
    """A job that has been checked. JSON is text; `expires_in` is in seconds."""

    kind: str
    payload: str
    queue: str
    run_at: datetime | None
    priority: int
    max_attempts: int | None
    idempotency_key: str | None
    ordering_key: str | None
    tenant: str | None
    expires_in: float | None
    headers: str

    @property
    def is_plain(self) -> bool:
        """Whether COPY can bring it: nothing in it needs the database to look at other jobs or at
        its clock.
        """
        return (
            self.run_at is None
            and self.idempotency_key is None
            and self.ordering_key is None
            and self.tenant is None
            and self.expires_in is None
        )

    def parameters(self) -> tuple[Any, ...]:
        """In the order of enqueue_v1."""
        return (
            self.kind,
            self.payload,
            self.queue,
            self.run_at,
            self.priority,
            self.max_attempts,
            self.idempotency_key,
            self.ordering_key,
            self.tenant,
            self.expires_in,
            self.headers,
        )

    def fields(self) -> dict[str, Any]:
        """As enqueue_many_v1 takes it."""
        return {
            "kind": self.kind,
            "payload": msgspec.Raw(self.payload.encode()),
            "queue": self.queue,
            "run_at": self.run_at,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "idempotency_key": self.idempotency_key,
            "ordering_key": self.ordering_key,
            "tenant": self.tenant,
            "expires_in": self.expires_in,
            "headers": msgspec.Raw(self.headers.encode()),
        }


def check(  # noqa: PLR0913 # the fields of a job
    kind: str,
    payload: Any = None,
    *,
    queue: str = "default",
    run_at: datetime | None = None,
    priority: int = 0,
    max_attempts: int | None = None,
    idempotency_key: str | None = None,
    ordering_key: str | None = None,
    tenant: str | None = None,
    expires_in: Seconds | None = None,
    headers: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> NewJob:
    """Check what `enqueue` takes. Raises InvalidJob with the path of what is wrong and the rule."""
    window = None if expires_in is None else seconds(expires_in)
    if window is not None and not MIN_EXPIRES <= window <= MAX_EXPIRES:
        path, rule = "expires_in", "must lie between 1 ms and 100 years"
        raise InvalidJob(path, rule)
    return NewJob(
        kind=check_name("kind", kind),
        payload=encode_object("payload", {} if payload is None else payload, MAX_PAYLOAD_BYTES),
        queue=check_name("queue", queue),
        run_at=check_instant("run_at", run_at),
        priority=check_number("priority", priority, -MAX_PRIORITY, MAX_PRIORITY),
        max_attempts=None
        if max_attempts is None
        else check_number("max_attempts", max_attempts, 1, MAX_ATTEMPTS),
        idempotency_key=check_text("idempotency_key", idempotency_key),
        ordering_key=check_text("ordering_key", ordering_key),
        tenant=check_text("tenant", tenant),
        expires_in=window,
        headers=_encode_headers(headers, version),
    )


def _sealed(job: NewJob) -> NewJob:
    """The job as the database is to hold it."""
    keyring = configured()
    if keyring is None:
        return job
    payload, salt = keyring.seal_payload(job.payload.encode(), job.kind)
    headers = msgspec.json.decode(job.headers) | salt
    return msgspec.structs.replace(job, payload=_to_json(payload), headers=_to_json(headers))


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _encode_headers(headers: Mapping[str, Any] | None, version: int | None) -> str:
    """With the payload's version, if that is said."""
    if not headers and version is None:  # as of almost every job
        return "{}"
    if version is not None:
        headers = {**(headers or {}), "version": check_number("version", version, 1, MAX_VERSION)}
    return encode_object("headers", headers, MAX_HEADER_BYTES)


def enqueue(conn: Any, kind: str, payload: Any = None, **options: Any) -> Any:
    """Add one job in the transaction that is open on `conn`; it exists when that commits.

    Args:
        conn: a connection of psycopg, SQLAlchemy (also a Session) or asyncpg; an async one gives an
            awaitable.
        kind: what it is, `^[a-z][a-z0-9_.-]{0,62}$`.
        payload: a mapping or a pydantic model, at most 256 KiB as JSON and 64 levels deep.
        options: queue, run_at (aware datetime), priority (lower runs first), max_attempts,
            idempotency_key, ordering_key, tenant, expires_in (seconds or timedelta), headers,
            version (of the payload).

    Returns:
        the job's id (int); with an idempotency key that is taken, the id of the job that has it.

    Raises:
        InvalidJob: the job cannot be held; its `path` and `rule` say why. Nothing was sent.
    """
    return enqueue_reporting(conn, kind, payload, _finish=lambda found: found.id, **options)


def enqueue_reporting(
    conn: Any,
    kind: str,
    payload: Any = None,
    *,
    _finish: Callable[[Enqueued], Any] | None = None,
    **options: Any,
) -> Any:
    """Like `enqueue`, but returns `Enqueued`: whether the job is new, and what has its key
    otherwise.
    """

    def finish(found: Any) -> Any:
        report = Enqueued(*found)
        return report if _finish is None else _finish(report)

    with sending(
        str(options.get("queue", "default")), kind, options.pop("headers", None) or {}
    ) as headers:
        job = _sealed(check(kind, payload, headers=headers, **options))
        return sql_drivers.row(conn, ENQUEUE, job.parameters(), finish)


def enqueue_many(conn: Any, jobs: Iterable[Mapping[str, Any]]) -> Any:
    """Add many jobs in the transaction that is open on `conn`, by COPY where nothing needs to be
    looked up.

    Args:
        conn: as for `enqueue`.
        jobs: mappings with `kind`, and what else `enqueue` takes under its name.

    Returns:
        how many were created (int), or an awaitable of it; a key already taken creates none.

    Raises:
        InvalidJob: a job cannot be held; its `path` starts with `jobs[n].`. None of them stays.
    """
    family = sql_drivers.driver_of(conn)
    if family == "psycopg":
        return _stream(conn, jobs)
    checked = [_check_nth(n, job) for n, job in enumerate(jobs)]
    plain = [job for job in checked if job.is_plain]
    other = [job for job in checked if not job.is_plain]
    if family == "psycopg async":
        return _enqueue_many_async(conn, plain, other)
    if family == "asyncpg":
        return _enqueue_many_asyncpg(conn, plain, other)
    if family == "sqlalchemy async":
        return conn.run_sync(_through_function, checked)
    return _through_function(conn, checked)


def _check_nth(n: int, job: Mapping[str, Any]) -> NewJob:
    path = f"jobs[{n}]"
    try:
        return _sealed(check(**job))
    except InvalidJob as error:
        path += f".{error.path}"
        raise InvalidJob(path, error.rule) from None
    except TypeError as error:
        raise InvalidJob(path, str(error).replace("check() ", "")) from None


def _through_function(conn: Any, jobs: list[NewJob]) -> int:
    return sum(
        sql_drivers.scalar(conn, ENQUEUE_MANY, parameters, int) for parameters in _chunks(jobs)
    )


def _chunks(jobs: list[NewJob]) -> Iterator[tuple[str]]:
    rest = iter(jobs)
    while chunk := list(islice(rest, CHUNK)):
        yield (msgspec.json.encode([job.fields() for job in chunk]).decode(),)


def _copy_row(job: NewJob) -> tuple[Any, ...]:
    return (job.kind, job.payload, job.queue, job.priority, job.max_attempts, job.headers)


_COPY = "copy redrive.jobs (kind, payload, queue, priority, max_attempts, headers) from stdin"


def _stream(conn: Any, jobs: Iterable[Mapping[str, Any]]) -> int:
    """Check the next jobs while the database takes in the last ones."""
    plain, other = 0, list[NewJob]()
    with _whole_or_not(conn):
        with contextlib.ExitStack() as stack:
            copy: Any = None
            for n, fields in enumerate(jobs):
                job = _check_nth(n, fields)
                if not job.is_plain:
                    other.append(job)
                    continue
                if copy is None:
                    copy = stack.enter_context(stack.enter_context(conn.cursor()).copy(_COPY))
                copy.write_row(_copy_row(job))
                plain += 1
        return plain + _through_function(conn, other)


@contextlib.contextmanager
def _whole_or_not(conn: Any) -> Iterator[None]:
    """Undo what was done within when it fails, and nothing of what the caller had done before."""
    if conn.autocommit or conn.info.transaction_status.name != "IDLE":
        with conn.transaction():
            yield
        return
    try:
        yield  # this begins the caller's transaction: `conn.transaction()` would also end it
    except BaseException:
        conn.rollback()
        raise


async def _enqueue_many_async(conn: Any, plain: list[NewJob], other: list[NewJob]) -> int:
    if plain:
        async with conn.cursor() as cursor, cursor.copy(_COPY) as copy:
            for job in plain:
                await copy.write_row(_copy_row(job))
    created = len(plain)
    for parameters in _chunks(other):
        created += await sql_drivers.scalar(conn, ENQUEUE_MANY, parameters, int)
    return created


async def _enqueue_many_asyncpg(conn: Any, plain: list[NewJob], other: list[NewJob]) -> int:
    if plain:
        await conn.copy_records_to_table(
            "jobs", schema_name="redrive", columns=COPY_COLUMNS, records=map(_copy_row, plain)
        )
    created = len(plain)
    for parameters in _chunks(other):
        created += await sql_drivers.scalar(conn, ENQUEUE_MANY, parameters, int)
    return created
