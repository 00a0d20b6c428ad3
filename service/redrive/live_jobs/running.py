"""Jobs that run now, as workers reported them with their last heartbeats."""

from typing import Any, LiteralString

import psycopg

from redrive.database.rows import rows

MOST = 200

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


def running(
    conn: psycopg.Connection[Any],
    queue: str | None = None,
    kind: str | None = None,
    most: int = MOST,
) -> list[dict[str, Any]]:
    """Return the jobs that run now, and since when, the longest first."""
    return rows(conn, _RUNNING, queue, queue, kind, kind, most)
