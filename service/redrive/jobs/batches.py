"""Batches, and the outcomes of their jobs."""

from collections.abc import Iterator
from typing import LiteralString

from redrive.database.rows import Connection, first_row, rows
from redrive.rules.rows import Row

_BATCH: LiteralString = """
    select b.id,
           coalesce(b.outcome,
                    case when b.closed_at is null then 'open'
                         when n.dead > 0 and n.waiting = 0 then 'held' else 'running' end) as state,
           n.total, n.waiting, n.succeeded, n.dead, n.cancelled,
           b.created_at, b.close_by, b.closed_at, b.ended_at, b.over_at, b.on_success, b.on_end
    from redrive.batches b
    cross join lateral (
        select coalesce(sum(d.total), 0)::bigint as total,
               coalesce(sum(d.total - d.succeeded - d.dead - d.cancelled), 0)::bigint as waiting,
               coalesce(sum(d.succeeded), 0)::bigint as succeeded,
               coalesce(sum(d.dead), 0)::bigint as dead,
               coalesce(sum(d.cancelled), 0)::bigint as cancelled
        from redrive.batch_deltas d where d.batch = b.id) n"""
_NEWEST: LiteralString = (
    _BATCH + " where b.over_at is null or %s order by b.id desc limit %s"
)
_ONE: LiteralString = _BATCH + " where b.id = %s"


def newest(conn: Connection, *, show_all: bool, limit: int) -> Iterator[Row]:
    """Yield batches, newest first; without `show_all` only if they are not over."""
    return iter(rows(conn, _NEWEST, show_all, limit))


def show(conn: Connection, batch: int) -> Row | None:
    """Return one batch; None if it does not exist."""
    return first_row(conn, _ONE, batch)
