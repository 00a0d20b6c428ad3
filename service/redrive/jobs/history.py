"""Ended jobs of queues with a history, newest first, at a bounded cost per page."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Annotated, LiteralString

from redrive.database.criteria import Criteria, Criterion
from redrive.database.rows import Connection, first_row, rows, value
from redrive.jobs.filter import ENDED, LIVE, JobFilter
from redrive.rules.rows import Fields, Row

LOOKS = 2_000
"""Jobs that one statement examines."""

PLACE = "ended/"
"""Beginning of an ended job's place; its id follows."""

PLACES = re.compile(
    rf"{PLACE}\d{{1,19}}|[A-Za-z][A-Za-z0-9_.-]{{0,62}}/-?\d{{1,5}}/\d{{1,5}}/"
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


def live_part(chosen: JobFilter, after: str | None) -> JobFilter | None:
    """Return the part of a filter that selects live jobs.

    None if it selects only ended jobs, or if the place `after` is among these.
    """
    if after is not None and after.startswith(PLACE):
        return None

    states = tuple(state for state in chosen.state if state in LIVE)
    if chosen.state and not states:
        return None

    return replace(chosen, state=states)


def find_ended(
    conn: Connection, chosen: JobFilter, after: str | None = None
) -> Iterator[Row]:
    """Yield the ended jobs of a filter, newest first, as `job ls --json` has them.

    Args:
        after: `place` of the last job already seen; None = from the newest.
    """
    is_of_ended = set(chosen.state) & ENDED
    # The history of a job does not have its failures.
    of_failures = (chosen.reason, chosen.category, chosen.error_class, chosen.group)
    if not is_of_ended or any(of_failures):
        return

    found = _matching(conn, chosen, after)
    first = islice(found, chosen.limit)
    yield from map(_listed, first)


def keeps_ended(conn: Connection, queues: Sequence[str] = ()) -> bool:
    """Return True if any of these queues keeps jobs that end; none = of all queues."""
    query: LiteralString = (
        "select exists (select from redrive.history_queues h"
        " where h.queue = any (%s::text[]) or %s::text[] = '{}')"
    )
    asked = list(queues)
    return bool(value(conn, query, asked, asked))


def _matching(conn: Connection, chosen: JobFilter, after: str | None) -> Iterator[Row]:
    # Without a place, the list begins above all ids.
    if after:
        last = int(after.removeprefix(PLACE))
    else:
        last = 2**63 - 1

    while True:
        rows = _page(conn, chosen, last)
        yield from (row for row in rows if row["matches"])
        if len(rows) < LOOKS:
            return

        last = rows[-1]["id"]


def _page(conn: Connection, chosen: JobFilter, last: int) -> list[Row]:
    """Return the next jobs that an index finds, and whether each matches."""
    by_index = _Named(
        ids=chosen.ids,
        tenant=chosen.tenant,
        ordering_key=chosen.ordering_key,
        key=chosen.key,
    )
    by_row = _Kept(
        kind=chosen.kind,
        queue=chosen.queue,
        state=chosen.state,
        since=chosen.since,
        until=chosen.until,
    )

    named, parameters = by_index.where()
    kept, others = by_row.where()

    query = "select h.*, (" + kept + ") as matches from (select " + _COLUMNS
    query += " from redrive.history h where " + named + _NEWEST
    # The condition on rows is in the list of columns, so its parameters come first.
    asked = [*others, *parameters, last, LOOKS]

    with conn.transaction():
        # An index has the requested order. On a new day the statistics know no rows.
        conn.execute("select set_config('enable_seqscan', 'off', true)")
        return rows(conn, query, *asked)


def _listed(row: Row) -> Row:
    return row | {
        "key": row["idempotency_key"],
        "waiting_for": None,
        "last_failure": None,
        "progress": None,
        "place": f"{PLACE}{row['id']}",
    }


def ended(conn: Connection, job: int) -> Fields | None:
    """Return all that is kept of an ended job, with its payload as it is stored."""
    query: LiteralString = "select " + _COLUMNS + ", headers, payload" + _SHOWN
    row = first_row(conn, query, job)
    return row and _listed(row)
