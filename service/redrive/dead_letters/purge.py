"""Delete what is past its retention: dead letters, and whatever else grows."""

from collections.abc import Callable, Sequence
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg.rows import class_row, scalar_row

from redrive.dead_letters import groups
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.runs import audited

CHUNK = 500
"""Dead letters that one transaction deletes."""
ENDED = ("resolved", "dismissed", "redriven")
"""The states that are purged when the filter names none."""

_HAS_ENDED: LiteralString = (
    "(d.state in ('resolved', 'dismissed') or d.state = 'redriven' and d.outcome is not null)"
)
_FORGET_BATCH = 1000


class Purgeable(NamedTuple):
    """One death of a job: its id, and how often the job had been redriven by then."""

    id: int
    redrives: int


def purgeable(conn: psycopg.Connection[Any], chosen: Filter, older_than: float) -> list[Purgeable]:
    """Dead letters that ended (open ones: died) more than `older_than` seconds ago, oldest first.

    Without a state in the filter: resolved, dismissed, and redriven ones whose outcome is known.
    """
    conditions, parameters = groups.where(conn, chosen)
    states: LiteralString = "true" if chosen.state else _HAS_ENDED
    with conn.cursor(row_factory=class_row(Purgeable)) as cursor:
        return cursor.execute(
            f"select d.id, d.redrives from redrive.dead_letters d where {conditions} and {states}"
            " and coalesce(d.settled_at, d.died_at) <= clock_timestamp() - %s * interval '1 second'"
            " order by d.died_at, d.id limit %s",
            (*parameters, older_than, chosen.limit),
        ).fetchall()


def purge(  # noqa: PLR0913 # what a purge needs
    conn: psycopg.Connection[Any],
    chosen: Filter,
    selected: Sequence[Purgeable],
    *,
    why: str,
    actor: str,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Delete dead letters for good, with their failures; each chunk is one transaction.

    Args:
        chosen: the filter that selected them, for the audit log.
        progress: told after each chunk how many it handled.

    Returns:
        How many were deleted: what changed its state since it was selected stays.
    """
    states = list(chosen.state or ENDED)
    detail = {"filter": chosen.described(), "states": states}
    purged = 0
    if not selected:
        return purged
    with audited(conn, "purge", actor=actor, why=why, n=len(selected), detail=detail) as run:
        for start in range(0, len(selected), CHUNK):
            chunk = selected[start : start + CHUNK]
            purged += _delete(conn, run, chunk, states)
            progress(len(chunk))
    return purged


def _delete(
    conn: psycopg.Connection[Any], run: int, chunk: Sequence[Purgeable], states: list[str]
) -> int:
    ids, redrives = map(list, zip(*chunk, strict=True))
    with conn.cursor(row_factory=scalar_row) as cursor:
        deleted = cursor.execute(
            "select redrive.purge_v2(%s, %s::bigint[], %s::int[], %s::text[])",
            (run, ids, redrives, states),
        ).fetchone()
    return int(deleted or 0)


def forget(conn: psycopg.Connection[Any]) -> int:
    """Delete whatever else is past its retention, to the end; workers do that by and by.

    Returns:
        How many rows were deleted.
    """
    forgotten, more = 0, True
    while more:
        gone, more = conn.execute(
            "select gone, more from redrive.forget_v1(%s)", (_FORGET_BATCH,)
        ).fetchone() or (0, False)
        forgotten += gone
    return forgotten
