"""Workers: their names, their queues, and when each was last seen."""

from typing import Any, LiteralString

import psycopg

from redrive.database.rows import rows

_FOUND: LiteralString = """
    select w.id, w.name, w.version, w.started_at, w.seen_at, w.queues, w.kinds,
           case when w.lost_at is not null then 'lost'
                when not redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl) then 'silent'
                when w.is_closed or (w.progress ->> 'draining')::boolean then 'draining'
                else 'working' end as state,
           (w.progress ->> 'slots')::int as slots, w.inflight,
           extract(epoch from c.at - w.started_at)::float8 as uptime_seconds,
           extract(epoch from c.at - w.seen_at)::float8 as heartbeat_age_seconds
    from redrive.workers w cross join (select clock_timestamp() as at) c order by w.name, w.id"""
"""Query for workers.

A worker that ended normally has no row. A lost one keeps its row until its jobs are
rescued and it is forgotten.
"""


def find(conn: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    """Return the workers, with the fields of `worker ls --json`."""
    return rows(conn, _FOUND)
