"""Find live jobs page by page, at a bounded cost for each page."""

from collections.abc import Iterator, Sequence
from typing import Any, LiteralString

from redrive.database.rows import Connection, rows
from redrive.encryption import MARK, shown_failure, shown_noted
from redrive.jobs.filter import JobFilter
from redrive.jobs.why.facts import Surroundings
from redrive.rules.rows import Fields, Row

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
               j.attempt + (w.worker is not null)::int as attempt,
               j.deliveries + (w.worker is not null)::int as deliveries,
               case when j.run_at < redrive.held_until_v1() then j.run_at end as run_at,
               j.created_at, j.idempotency_key as key,
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

_NAMED = ("id", "kind", "queue", "state", "waiting_for")
NARROW = (*_NAMED, "attempt", "run_at", "created_at", "worker", "tenant")
"""Columns of a list of live jobs, unless the user chooses others."""
COLUMNS = (*NARROW, "deliveries", "priority", "key", "ordering_key")
NUMBERS = ("attempt", "deliveries", "priority")
LISTED = (*COLUMNS, "last_failure", "progress")
"""Fields of `job ls --json`."""
FACTS = ("queue", *COLUMNS[len(_NAMED) :])
"""Fields that people see as facts of one job."""
ENDED_NARROW = (
    *("id", "kind", "queue", "state", "attempt", "created_at", "ended_at", "worker"),
)
"""Columns of a list that has only jobs that have ended."""

FAILURE = ("error_class", "message", "category", "at")


def find(
    conn: Connection, chosen: JobFilter, after: str | None = None
) -> Iterator[Row]:
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
        shown = page[:left]
        yield from all_described(conn, shown, around)
        if left is None:
            continue

        left -= len(shown)
        if left == 0:
            return


def all_described(
    conn: Connection, page: Sequence[Row], around: Surroundings
) -> Iterator[Row]:
    """Yield each job of a page for display, with the progress of running ones."""
    running = [row["id"] for row in page if row["state"] == "running"]
    progress = progress_of(conn, running) if running else {}
    is_one_of_many = len(page) > 1

    for row in page:
        found = described(row, around, is_one_of_many=is_one_of_many)
        found["progress"] = progress.get(row["id"])
        yield found


def ids(conn: Connection, chosen: JobFilter) -> list[int]:
    """Return the ids of the live jobs of a filter."""
    found = [row["id"] for page in _pages(conn, chosen, None) for row in page]
    return found[: chosen.limit]


def _pages(
    conn: Connection, chosen: JobFilter, after: str | None
) -> Iterator[list[Row]]:
    if chosen.ids:
        yield from _named_pages(conn, chosen)
        return

    looks = min(MOST_LOOKS, max(FIRST_LOOKS, chosen.limit or 0))
    place = after

    while True:
        page, place = walk(conn, chosen, place, looks)
        yield page
        if place is None:
            return

        looks = min(MOST_LOOKS, looks * 4)  # matches are rare


def _named_pages(conn: Connection, chosen: JobFilter) -> Iterator[list[Row]]:
    source: LiteralString = "redrive.live_jobs_v1(%s::bigint[]) w"
    for start in range(0, len(chosen.ids), IDS_AT_A_TIME):
        named = list(chosen.ids[start : start + IDS_AT_A_TIME])
        yield _selected(conn, chosen, source, (named,))


def walk(
    conn: Connection, chosen: JobFilter, after: str | None, looks: int
) -> tuple[list[Row], str | None]:
    """Return the matching jobs among the next `looks` jobs, and the place after them.

    The place is None at the end.

    Args:
        after: place where the last walk ended; None = from the beginning.
        looks: number of jobs that are examined, at most MOST_LOOKS.
    """
    source: LiteralString = "redrive.walk_jobs_v1(%s::text[], %s::text[], %s, %s) w"
    queues = list(chosen.queue) or None
    states = list(chosen.state) or None
    found = _selected(conn, chosen, source, (queues, states, after, looks))
    if not found or found[-1]["id"] is not None:
        return found, None

    last = found.pop()  # it stands for the jobs that were not looked at
    return found, last["place"]


def _selected(
    conn: Connection, chosen: JobFilter, source: LiteralString, asked: Sequence[Any]
) -> list[Row]:
    """Return the matching jobs of a source; `asked` are the parameters of the source."""
    where, parameters = chosen.where()
    query = _SELECTED + source + _FOUND + where + _KEPT
    return _rows(conn, query, (*asked, *parameters))


def _rows(
    conn: Connection, query: LiteralString, parameters: Sequence[Any]
) -> list[Row]:
    with conn.transaction():
        conn.execute(GUARDS)
        return rows(conn, query, *parameters)


def described(row: Row, around: Surroundings, *, is_one_of_many: bool = False) -> Row:
    """Return a row with its derived fields, some of them from its surroundings."""
    row["last_failure"] = _last_failure(row)
    row["worker"] = around.name(row["held_by"])

    row["why"] = around.why(row, is_one_of_many=is_one_of_many)
    row["waiting_for"] = row["why"].waiting_for

    return row


def _last_failure(row: Row) -> Row | None:
    if row["error_class"] is None:
        return None

    failure = {name: row[name] for name in (*FAILURE, "detail")}
    # The envelope is bound to the delivery that failed, not to the current one.
    failure["deliveries"] = row["failed_delivery"]
    shown = shown_failure(row["id"], failure)

    return {name: shown[name] for name in FAILURE}


def progress_of(conn: Connection, jobs: Sequence[int]) -> dict[int, Row]:
    """Return the reported progress of these jobs, by id."""
    found = _rows(conn, _PROGRESS, (list(jobs),))
    return {row["job"]: _progress(row) for row in found}


def _progress(row: Fields) -> Row:
    noted = shown_noted(
        row["detail"], what="progress", job=row["job"], delivery=row["deliveries"]
    )
    return {
        "share": round(row["share"], 6),  # six digits, as in the column
        "text": noted.get("text", f"[{noted.get(MARK)}]"),
        "at": row["at"],
        "delivery": row["deliveries"],
    }


def listed(row: Fields) -> Row:
    """Return a row of `find` as `job ls --json` prints it."""
    return {name: row[name] for name in LISTED}
