"""Ended jobs of queues with a history, newest first, at a bounded cost per page."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from redrive.database.criteria import Criteria, Criterion
from redrive.live_jobs.filter import ENDED, JobFilter

Connection = psycopg.Connection[Any]

LOOKS = 2_000
"""Jobs that one statement examines."""

PLACE = "ended/"
"""Beginning of an ended job's place; its id follows."""

PLACES = re.compile(
    rf"{PLACE}\d{{1,19}}|[a-z][a-z0-9_.-]{{0,62}}/-?\d{{1,5}}/\d{{1,5}}/"
    r"(infinity|[0-9]{4}-[0-9T:.-]{10,40}Z)/\d{1,19}"
)
"""Pattern of a job's place in a list, live or ended."""

_COLUMNS: LiteralString = """
    id, kind, queue, state, attempt, deliveries, redrives, priority, run_at, created_at, ended_at,
    worker, idempotency_key, ordering_key, tenant"""
_NEWEST: LiteralString = " and h.id < %s order by h.id desc limit %s) h"
_SHOWN: LiteralString = (
    " from redrive.history h where h.id = %s order by h.ended_at desc limit 1"
)


@dataclass(frozen=True, slots=True)
class _Named(Criteria):
    """Condition that an index can find."""

    ids: Annotated[Sequence[int], Criterion("h.id = any (%s::bigint[])", "")] = ()
    tenant: Annotated[Sequence[str], Criterion("h.tenant = any (%s::text[])", "")] = ()
    ordering_key: Annotated[
        Sequence[str], Criterion("h.ordering_key = any (%s::text[])", "")
    ] = ()
    key: Annotated[
        Sequence[str], Criterion("h.idempotency_key = any (%s::text[])", "")
    ] = ()


@dataclass(frozen=True, slots=True)
class _Kept(Criteria):
    """Condition that is checked on the rows found."""

    kind: Annotated[Sequence[str], Criterion("h.kind = any (%s::text[])", "")] = ()
    queue: Annotated[Sequence[str], Criterion("h.queue = any (%s::text[])", "")] = ()
    state: Annotated[Sequence[str], Criterion("h.state = any (%s::text[])", "")] = ()
    since: Annotated[datetime | None, Criterion("h.created_at >= %s", "")] = None
    until: Annotated[datetime | None, Criterion("h.created_at < %s", "")] = None


def find_ended(
    conn: Connection, chosen: JobFilter, after: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the ended jobs of a filter, newest first, as `job ls --json` has them.

    Args:
        after: `place` of the last job already seen; None = from the newest.
    """
    failed = chosen.reason, chosen.category, chosen.error_class, chosen.group
    if not set(chosen.state) & ENDED or any(failed):
        return  # the history of a job has no failures
    last = int(after.removeprefix(PLACE)) if after else 2**63 - 1
    left = chosen.limit
    while left is None or left > 0:
        rows = _page(conn, chosen, last)
        for row in [row for row in rows if row["matches"]][:left]:
            yield _listed(row)
            left = None if left is None else left - 1
        if len(rows) < LOOKS:
            return
        last = rows[-1]["id"]


def _page(conn: Connection, chosen: JobFilter, last: int) -> list[dict[str, Any]]:
    """Return the next jobs that an index finds, and whether each matches."""
    named, parameters = _Named(
        chosen.ids, chosen.tenant, chosen.ordering_key, chosen.key
    ).where()
    kept, others = _Kept(
        chosen.kind, chosen.queue, chosen.state, chosen.since, chosen.until
    ).where()
    query = "select h.*, (" + kept + ") as matches from (select " + _COLUMNS
    query += " from redrive.history h where " + named + _NEWEST
    with conn.transaction(), conn.cursor(row_factory=dict_row) as cursor:
        # An index has the requested order. On a new day the statistics know no rows.
        cursor.execute("select set_config('enable_seqscan', 'off', true)")
        return cursor.execute(query, [*others, *parameters, last, LOOKS]).fetchall()


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        "key": row["idempotency_key"],
        "waiting_for": None,
        "last_failure": None,
        "progress": None,
        "place": f"{PLACE}{row['id']}",
    }


def ended(conn: Connection, job: int) -> Mapping[str, Any] | None:
    """Return all that is kept of an ended job, with its payload as it is stored."""
    query: LiteralString = "select " + _COLUMNS + ", headers, payload" + _SHOWN
    with conn.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query, (job,)).fetchone()
    return row and _listed(row)
