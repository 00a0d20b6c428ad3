"""Acknowledgements of groups of dead letters: somebody works on them."""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import scalar_row


def acknowledge(
    conn: psycopg.Connection[Any], names: Sequence[str], *, actor: str, why: str
) -> list[str]:
    """Record that the actor works on these groups.

    Returns the groups that have open dead letters. The others stay as they are.
    """
    return _set(conn, names, actor, why, is_acknowledged=True)


def unacknowledge(
    conn: psycopg.Connection[Any], names: Sequence[str], *, actor: str, why: str
) -> list[str]:
    """Record that nobody works on these groups; return the ones with open jobs."""
    return _set(conn, names, actor, why, is_acknowledged=False)


def _set(
    conn: psycopg.Connection[Any],
    names: Sequence[str],
    actor: str,
    why: str,
    *,
    is_acknowledged: bool,
) -> list[str]:
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(
            "select redrive.acknowledge_v1(%s, %s, %s, %s)",
            (list(names), is_acknowledged, actor, why),
        ).fetchall()
