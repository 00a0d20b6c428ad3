"""What of the database has changed, and a job that had all that one can have.

What a verb does to one, it does to no other: each is called on a row that has neighbours which are
like it in all but the one thing by which it was chosen.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.factories import failure, let_next_die, make_job, make_worker, redrive
from tests.postgres import Database

SHARED = {"audit_chain", "contact", "tallies"}
"""One row for everybody."""

KEYS = ("job", "id", "name")
"""What tells rows of a table apart, whichever it has."""

LETTERS = {("dead_letters", 0), ("dead_letters", 1)}
NOTES = {("checkpoints", None), ("progress", None)}
"""What goes with a job, whatever is kept of it."""

Rows = Counter[tuple[str, str]]


def rows_of(database: Database) -> Rows:
    """Each row there is: its table, and itself as JSON."""
    tables = database.column(
        "select relname::text from pg_class where relnamespace = 'redrive'::regnamespace"
        " and relkind in ('r', 'p') and not relispartition"
    )
    query = " union all ".join(
        f"select '{table}', to_jsonb(t)::text from redrive.{table} t"  # names of our own
        for table in sorted(set(tables) - SHARED)
    )
    return Counter(database.rows(query))  # type: ignore[arg-type]


def changed(
    database: Database, act: Callable[[], Any]
) -> list[tuple[str, dict[str, Any]]]:
    """Rows that are not as they were, as they were: table and columns."""
    before = rows_of(database)
    act()
    return [(table, json.loads(row)) for table, row in before - rows_of(database)]


def touched(database: Database, act: Callable[[], Any]) -> set[tuple[Any, ...]]:
    """Of such rows: table, job or name or id, and generation if any."""
    return {
        (table, next((row[k] for k in KEYS if k in row), None), row.get("redrives"))
        for table, row in changed(database, act)
    }


def make_past(database: Database, queue: str) -> int:
    """A job that died twice and had all that a job can have. Returns its id."""
    conn, worker = database.conn, make_worker(database.conn)
    job_id = make_job(conn, "pay", queue=queue, ordering_key="k", tenant="acme")
    trace = failure(detail={"traceparent": queue})
    let_next_die(conn, worker, failure=trace)
    redrive(conn, [job_id])
    conn.execute(
        "with e as (insert into redrive.edits"
        "     (job, n, redrives, actor, why, patch, paths, payload)"
        "     select %(job)s, n, n - 1, 'ada', 'x', '[]', '{}', '{}' from generate_series(1, 2) n),"
        " c as (insert into redrive.checkpoints (job, deliveries, data) values (%(job)s, 2, '{}')),"
        " p as (insert into redrive.progress (job, deliveries, share, detail)"
        "     values (%(job)s, 2, 0.5, '{}'))"
        " insert into redrive.side_effects (job, deliveries, what, detail)"
        " values (%(job)s, 2, 'charged', '{}')",
        {"job": job_id},
    )
    let_next_die(conn, worker, failure=trace)
    return job_id
