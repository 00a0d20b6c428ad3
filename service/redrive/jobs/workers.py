"""Workers: their names, their queues, and when each was last seen."""

from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.rules.rows import Row

_FOUND: LiteralString = """
    select w.id, w.name, w.version, w.started_at, w.seen_at, w.queues, w.kinds,
           case when w.lost_at is not null then 'lost'
                when not redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl) then 'silent'
                when w.is_closed or (w.progress ->> 'draining')::boolean then 'draining'
                else 'working' end as state,
           (w.progress ->> 'slots')::int as slots, w.inflight,
           extract(epoch from c.at - w.started_at)::float8 as uptime_seconds,
           extract(epoch from c.at - w.seen_at)::float8 as heartbeat_age_seconds
    from redrive.workers w cross join (select clock_timestamp() as at) c"""
"""Query for workers.

A worker that ended normally has no row. A lost one keeps its row until its jobs are
rescued and it is forgotten.
"""


_BY_NAME: LiteralString = f"{_FOUND} order by w.name, w.id limit %s offset %s"
_WORST_FIRST: LiteralString = f"""
    select f.* from ({_FOUND}) f
    order by array_position(array['lost', 'silent', 'draining'], f.state), f.name, f.id
    limit %s offset %s"""
_SUMS: LiteralString = f"""
    select f.version, f.state, count(*)::int as workers, sum(f.inflight)::int as inflight,
           sum(f.slots)::int as slots
    from ({_FOUND}) f group by f.version, f.state order by max(f.started_at) desc, f.state"""


def find(conn: Connection, most: int | None = None, skip: int = 0) -> list[Row]:
    """Return the workers by name, with the fields of `worker ls --json`."""
    return rows(conn, _BY_NAME, most, skip)


def worst_first(conn: Connection, most: int, skip: int) -> list[Row]:
    """Return a part of the workers: lost ones first, then silent, draining, working."""
    return rows(conn, _WORST_FIRST, most, skip)


def sums(conn: Connection) -> list[Row]:
    """Count workers, running jobs and slots by version and state, newest first."""
    return rows(conn, _SUMS)
