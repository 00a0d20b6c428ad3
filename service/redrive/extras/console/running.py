"""Jobs that run now, as workers reported them with their last heartbeats."""

from collections.abc import Sequence
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.rules.rows import Row

_RUNNING: LiteralString = """
    select w.id as worker_id, w.name as worker, j.id, j.kind, j.queue, j.attempt + 1 as attempt,
           w.seen_at - r.seconds * interval '1 second' as since
    from redrive.workers w
    cross join lateral (
        select e.key::bigint as job, e.value::float8 as seconds
        from jsonb_each_text(w.progress -> 'running') e) r
    join redrive.jobs j on j.id = r.job
    where w.lost_at is null
      and (%s::text is null or j.queue = %s)
      and (%s::text is null or j.kind = %s)
    order by r.seconds desc, j.id limit %s"""


_OF_WORKERS: LiteralString = """
    select w.id as worker_id, j.id, j.kind, j.queue, j.attempt + 1 as attempt,
           w.seen_at - r.seconds * interval '1 second' as since
    from redrive.workers w
    cross join lateral (
        select e.key::bigint as job, e.value::float8 as seconds
        from jsonb_each_text(w.progress -> 'running') e
        order by seconds desc, job limit %s) r
    join redrive.jobs j on j.id = r.job
    where w.id = any (%s)
    order by w.id, r.seconds desc, j.id"""


def running(
    conn: Connection, queue: str | None, kind: str | None, most: int
) -> list[Row]:
    """Return the jobs that run now, and since when, the longest first.

    Args:
        queue: only jobs of this queue; None = all.
        kind: only jobs of this kind; None = all.
        most: largest number of jobs.
    """
    return rows(conn, _RUNNING, queue, queue, kind, kind, most)


def of_workers(conn: Connection, workers: Sequence[int], most: int) -> list[Row]:
    """Return the longest jobs of each worker, by the id of the worker."""
    return rows(conn, _OF_WORKERS, most, list(workers))
