"""Read the jobs that a connection's open transaction sees, with any driver."""

from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import Any, overload

import msgspec

from redrive.database import drivers as sql_drivers
from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.encryption import shown_payload

ENQUEUED = (
    "select cast(coalesce(jsonb_agg(to_jsonb(j) order by j.id), '[]') as text) from ("
    "select id, kind, queue, payload, run_at, priority, max_attempts, idempotency_key,"
    " ordering_key, tenant, expires_at, headers, attempt from redrive.jobs"
    " where cast(%s as text) is null or kind = %s) j"
)


@overload
def enqueued(conn: SyncConnection, kind: str | None = None) -> list[dict[str, Any]]: ...
@overload
def enqueued(
    conn: AsyncConnection, kind: str | None = None
) -> Awaitable[list[dict[str, Any]]]: ...
def enqueued(conn: Any, kind: str | None = None) -> Any:
    """Return the waiting and running jobs, oldest first, of one kind or all.

    The result includes the changes of the open transaction of `conn`. A job that waits
    behind its ordering key has the `run_at` None.
    """
    return sql_drivers.scalar(conn, ENQUEUED, (kind, kind), _read)


@overload
def assert_enqueued(
    conn: SyncConnection,
    kind: str,
    payload: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]: ...
@overload
def assert_enqueued(
    conn: AsyncConnection,
    kind: str,
    payload: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Awaitable[dict[str, Any]]: ...
def assert_enqueued(
    conn: Any, kind: str, payload: Mapping[str, Any] | None = None, **fields: Any
) -> Any:
    """Return the only job of `kind` with at least this payload and these fields.

    Raises:
        AssertionError: no job or several jobs match; the message lists the enqueued
            jobs.
    """
    wanted = dict(payload or {})

    def the_one(text: str) -> dict[str, Any]:
        return _the_one(_read(text), kind, wanted, fields)

    return sql_drivers.scalar(conn, ENQUEUED, (kind, kind), the_one)


def _read(text: str) -> list[dict[str, Any]]:
    return [
        row
        | {
            "payload": shown_payload(row),
            "run_at": _instant(row["run_at"]),
            "expires_at": _instant(row["expires_at"]),
        }
        for row in msgspec.json.decode(text)
    ]


def _instant(text: str | None) -> datetime | None:
    if text in {None, "infinity"}:
        return None
    return datetime.fromisoformat(str(text))


def _the_one(
    there: list[dict[str, Any]],
    kind: str,
    payload: Mapping[str, Any],
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    fitting = [job for job in there if _fits(job, payload, fields)]
    if len(fitting) != 1:
        wanted = dict(payload) | dict(fields)
        found = f"{len(fitting)} jobs of kind {kind!r} with {wanted}"
        msg = f"{found}; enqueued are:\n{_shown(there)}"
        raise AssertionError(msg)

    return fitting[0]


def _fits(
    job: dict[str, Any], payload: Mapping[str, Any], fields: Mapping[str, Any]
) -> bool:
    """Return True if a job has at least this payload and these fields."""
    for name, value in payload.items():
        if job["payload"].get(name) != value:
            return False

    return all(job[name] == value for name, value in fields.items())


def _shown(jobs: list[dict[str, Any]]) -> str:
    lines = [f"  {job['payload']} in queue {job['queue']}" for job in jobs]
    return "\n".join(lines) or "  none"
