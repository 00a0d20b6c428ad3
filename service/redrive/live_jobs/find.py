"""Find live jobs page by page, at a bounded cost for each page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from redrive.encryption import MARK, shown_failure, shown_noted
from redrive.live_jobs.around import Surroundings
from redrive.live_jobs.filter import JobFilter
from redrive.rules.attempts.waiting import Code, why

Connection = psycopg.Connection[Any]

MOST_LOOKS = 10_000
"""Jobs that one statement examines."""
FIRST_LOOKS = 100
IDS_AT_A_TIME = 1000

GUARDS: LiteralString = """
    select set_config(name, 'off', true)
    from unnest(array['enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin',
                      'enable_mergejoin']) as g(name)"""
"""Planner settings for looking up few jobs by id, whatever the statistics say."""

_FOUND: LiteralString = """
    left join lateral (
        select j.kind, j.queue, j.priority, j.lane,
               j.attempt + (w.worker is not null and j.worker is null)::int as attempt,
               j.deliveries + (w.worker is not null and j.worker is null)::int as deliveries,
               nullif(j.run_at, 'infinity') as run_at, j.created_at, j.idempotency_key as key,
               j.ordering_key, j.tenant, j.redrives, f.error_class, f.message, f.category, f.at,
               f.detail, f.deliveries as failed_delivery
        from redrive.jobs j
        left join lateral (
            select f.* from redrive.failures f
            where j.failed_at is not null and f.job = j.id
            order by f.deliveries desc limit 1) f on true
        where j.id = w.id and """
_PROGRESS: LiteralString = """
    select job, share, at, deliveries, detail from redrive.progress where job = any (%s)"""
_SELECTED: LiteralString = (
    "select w.place, w.id, w.state, w.worker as held_by, j.* from "
)
_KEPT: LiteralString = ") j on true where j.kind is not null or w.id is null"

LISTED = (
    "id",
    "kind",
    "queue",
    "state",
    "attempt",
    "deliveries",
    "priority",
    "run_at",
    "created_at",
    "worker",
    "key",
    "ordering_key",
    "tenant",
    "waiting_for",
    "last_failure",
    "progress",
)
"""Fields of `job ls --json`."""

FAILURE = ("error_class", "message", "category", "at")


def find(
    conn: Connection, chosen: JobFilter, after: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the live jobs of a filter, with the fields of `job ls --json` and more.

    The order is queue, priority and lane, and within a lane the order of execution.
    Each page is a transaction of its own, so no lock or snapshot is held while the
    caller reads.

    Args:
        after: `place` of the last job already seen; None = from the beginning.
    """
    left = chosen.limit
    around = Surroundings(conn)
    for page in _pages(conn, chosen, after):
        yield from all_described(conn, page[:left], around)
        left = None if left is None else left - len(page[:left])
        if left == 0:
            return


def all_described(
    conn: Connection, page: Sequence[dict[str, Any]], around: Surroundings
) -> Iterator[dict[str, Any]]:
    """Yield each job of a page for display, with the progress of running ones."""
    running = [row["id"] for row in page if row["state"] == "running"]
    progress = progress_of(conn, running) if running else {}
    for row in page:
        found = described(row, around, is_one_of_many=len(page) > 1)
        yield found | {"progress": progress.get(row["id"])}


def ids(conn: Connection, chosen: JobFilter) -> list[int]:
    """Return the ids of the live jobs of a filter."""
    found = [row["id"] for page in _pages(conn, chosen, None) for row in page]
    return found[: chosen.limit]


def _pages(
    conn: Connection, chosen: JobFilter, after: str | None
) -> Iterator[list[dict[str, Any]]]:
    if chosen.ids:
        for start in range(0, len(chosen.ids), IDS_AT_A_TIME):
            yield _named(conn, chosen, chosen.ids[start : start + IDS_AT_A_TIME])
        return
    looks, place = min(MOST_LOOKS, max(FIRST_LOOKS, chosen.limit or 0)), after
    while True:
        page = walk(conn, chosen, place, looks)
        if not page or page[-1]["id"] is not None:
            yield page
            return
        place = page.pop()["place"]
        yield page
        looks = min(MOST_LOOKS, looks * 4)  # matches are rare


def walk(
    conn: Connection, chosen: JobFilter, after: str | None, looks: int
) -> list[dict[str, Any]]:
    """Return the matching jobs among the next `looks` jobs.

    If there may be more, the last row has no id.
    """
    where, parameters = chosen.where()
    source: LiteralString = "redrive.walk_jobs_v1(%s::text[], %s::text[], %s, %s) w"
    asked = (list(chosen.queue) or None, list(chosen.state) or None, after, looks)
    return _rows(
        conn, _SELECTED + source + _FOUND + where + _KEPT, (*asked, *parameters)
    )


def _named(
    conn: Connection, chosen: JobFilter, named: Sequence[int]
) -> list[dict[str, Any]]:
    where, parameters = chosen.where()
    source: LiteralString = "redrive.live_jobs_v1(%s::bigint[]) w"
    return _rows(
        conn, _SELECTED + source + _FOUND + where + _KEPT, (list(named), *parameters)
    )


def _rows(
    conn: Connection, query: LiteralString, parameters: Sequence[Any]
) -> list[dict[str, Any]]:
    with conn.transaction(), conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute(GUARDS)
        return cursor.execute(query, parameters).fetchall()


def described(
    row: dict[str, Any], around: Surroundings, *, is_one_of_many: bool = False
) -> dict[str, Any]:
    """Return a row with its derived fields, some of them from its surroundings."""
    failure = {name: row[name] for name in (*FAILURE, "detail")}
    failure["deliveries"] = row["failed_delivery"]
    is_failed = row["error_class"] is not None
    shown = shown_failure(row["id"], failure) if is_failed else None
    row["last_failure"] = shown and {name: shown[name] for name in FAILURE}
    row["worker"] = around.name(row["held_by"])
    answer = why(around.waiting(row, is_one_of_many=is_one_of_many), around.around)
    row["why"] = answer
    row["waiting_for"] = (
        None if answer.code in {Code.RUNNING, Code.DUE} else str(answer.code)
    )
    return row


def progress_of(conn: Connection, jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the reported progress of these jobs, by id."""
    return {row["job"]: _progress(row) for row in _rows(conn, _PROGRESS, (list(jobs),))}


def _progress(row: Mapping[str, Any]) -> dict[str, Any]:
    said = shown_noted(row["detail"], "progress", row["job"], row["deliveries"])
    return {
        "share": round(row["share"], 6),  # six digits, as in the column
        "text": said.get("text", f"[{said.get(MARK)}]"),
        "at": row["at"],
        "delivery": row["deliveries"],
    }


def listed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `find` as `job ls --json` prints it."""
    return {name: row[name] for name in LISTED}
