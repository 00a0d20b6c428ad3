"""What an operator decides about single dead letters. Each change is kept in the audit log."""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import scalar_row


def dismiss(
    conn: psycopg.Connection[Any], ids: Sequence[int], *, why: str, actor: str
) -> list[int]:
    """Close open dead letters that will not be fixed. Returns the ids that were open, sorted."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return sorted(
            cursor.execute(
                "select redrive.dismiss_v1(%s::bigint[], %s, %s)", (list(ids), actor, why)
            )
        )


def reopen(conn: psycopg.Connection[Any], ids: Sequence[int], *, why: str, actor: str) -> list[int]:
    """Open dismissed dead letters again. Returns the ids that were dismissed, sorted."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return sorted(
            cursor.execute(
                "select redrive.reopen_v1(%s::bigint[], %s, %s)", (list(ids), actor, why)
            )
        )


def assign(
    conn: psycopg.Connection[Any], ids: Sequence[int], owner: str, *, why: str, actor: str
) -> list[int]:
    """Say who looks after open dead letters, "" for nobody. Returns the ids that were open."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return sorted(
            cursor.execute(
                "select redrive.assign_v1(%s::bigint[], %s, %s, %s)",
                (list(ids), owner, actor, why),
            )
        )


def note(conn: psycopg.Connection[Any], job: int, text: str, *, actor: str) -> bool:
    """Attach a note to a job's latest dead letter. Returns whether there is one."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return bool(
            cursor.execute("select redrive.note_v1(%s, %s, %s)", (job, actor, text)).fetchone()
        )
