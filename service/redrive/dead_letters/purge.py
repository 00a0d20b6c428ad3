"""Deletion of dead letters and all other data past their retention."""

from collections.abc import Callable, Sequence
from typing import LiteralString, NamedTuple

from redrive.database.rows import Connection, records, value
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.runs import audited

CHUNK = 500
"""Dead letters that one transaction deletes."""
ENDED = ("resolved", "dismissed", "redriven")
"""States that are purged if the filter names none."""

_HAS_ENDED: LiteralString = "(d.state in ('resolved', 'dismissed') or d.state = 'redriven' and d.outcome is not null)"
_FORGET_BATCH = 1000


class Purgeable(NamedTuple):
    """Death of a job: the job's id, and its number of redrives by then."""

    id: int
    redrives: int


def purgeable(conn: Connection, chosen: Filter, older_than: float) -> list[Purgeable]:
    """Return the dead letters that ended over `older_than` seconds ago, oldest first.

    For open ones, the time of death counts. Without a state in the filter these are
    resolved, dismissed, and redriven ones whose outcome is known.
    """
    conditions, parameters = groups.where(conn, chosen)
    states: LiteralString = "true" if chosen.state else _HAS_ENDED
    query: LiteralString = (
        f"select d.id, d.redrives from redrive.dead_letters d where {conditions} and {states}"
        " and coalesce(d.settled_at, d.died_at) <= clock_timestamp() - %s * interval '1 second'"
        " order by d.died_at, d.id limit %s"
    )
    asked = (*parameters, older_than, chosen.limit)

    return records(conn, Purgeable, query, *asked)


def purge(  # noqa: PLR0913 # what a purge needs
    conn: Connection,
    chosen: Filter,
    selected: Sequence[Purgeable],
    *,
    why: str,
    actor: str,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Delete dead letters for good, with their failures; each chunk is one transaction.

    Args:
        chosen: filter that selected them, for the audit log.
        progress: called after each chunk with the number it handled.

    Returns:
        Number of deleted dead letters. If one changed its state since the selection, it
        stays.
    """
    if not selected:
        return 0

    # Checked again with each deletion, because a state may change until then.
    states = list(chosen.state or ENDED)
    detail = {"filter": chosen.described(), "states": states}
    n = len(selected)
    purged = 0

    with audited(conn, "purge", actor=actor, why=why, n=n, detail=detail) as run:
        for start in range(0, n, CHUNK):
            chunk = selected[start : start + CHUNK]
            purged += _delete(conn, run, chunk, states)
            progress(len(chunk))

    return purged


def _delete(
    conn: Connection, run: int, chunk: Sequence[Purgeable], states: list[str]
) -> int:
    ids, redrives = map(list, zip(*chunk, strict=True))
    deleted = value(
        conn,
        "select redrive.purge_v1(%s, %s::bigint[], %s::int[], %s::text[])",
        run,
        ids,
        redrives,
        states,
    )

    return int(deleted or 0)


def forget(conn: Connection) -> int:
    """Delete all other data past its retention; workers do so gradually.

    Returns:
        Number of deleted rows.
    """
    forgotten = 0
    more = True

    while more:
        gone, more = conn.execute(
            "select gone, more from redrive.forget_v1(%s)", (_FORGET_BATCH,)
        ).fetchone() or (0, False)
        forgotten += gone

    return forgotten
