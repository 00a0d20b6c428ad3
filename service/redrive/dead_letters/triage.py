"""Decisions about single dead letters, each recorded in the audit log."""

from collections.abc import Sequence
from typing import LiteralString

from redrive.database.rows import Connection, column, value

CHUNK = 1000
"""Dead letters that one statement changes, under one line of the audit log."""


def dismiss(conn: Connection, ids: Sequence[int], *, why: str, actor: str) -> list[int]:
    """Close open dead letters that will not be fixed.

    Returns the ids that were open, sorted.
    """
    return _changed(
        conn, "select redrive.dismiss_v1(%s::bigint[], %s, %s)", ids, actor, why
    )


def reopen(conn: Connection, ids: Sequence[int], *, why: str, actor: str) -> list[int]:
    """Reopen dismissed dead letters; return the ids that were dismissed, sorted."""
    return _changed(
        conn, "select redrive.reopen_v1(%s::bigint[], %s, %s)", ids, actor, why
    )


def assign(
    conn: Connection, ids: Sequence[int], owner: str, *, why: str, actor: str
) -> list[int]:
    """Set the assignee of open dead letters; "" removes it.

    Returns the ids that were open.
    """
    change = "select redrive.assign_v1(%s::bigint[], %s, %s, %s)"
    return _changed(conn, change, ids, owner, actor, why)


def _changed(
    conn: Connection, change: LiteralString, ids: Sequence[int], *more: str
) -> list[int]:
    changed: list[int] = []
    for start in range(0, len(ids), CHUNK):
        chunk = list(ids[start : start + CHUNK])
        changed += column(conn, change, chunk, *more)

    return sorted(changed)


def note(conn: Connection, job: int, text: str, *, actor: str) -> bool:
    """Attach a note to a job's latest dead letter; return whether there is one."""
    statement: LiteralString = "select redrive.note_v1(%s, %s, %s)"
    return bool(value(conn, statement, job, actor, text))
