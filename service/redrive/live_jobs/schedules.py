"""Schedules: what comes next and what was last, pausing them, running one now."""

from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row, scalar_row

Connection = psycopg.Connection[Any]

_FOUND: LiteralString = """
    select name, kind, queue, cron, tz, catch_up, state, next_at, last_at, last_job, paused_at,
           paused_by, paused_why, versions
    from redrive.schedules_v1()"""


def find(conn: Connection) -> list[dict[str, Any]]:
    """The schedules, with the fields of `schedule ls --json`."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_FOUND).fetchall()


def pause(conn: Connection, name: str, *, actor: str, why: str) -> bool:
    """Fire it no more. Whether it was not paused yet."""
    return bool(_called(conn, "select redrive.pause_schedule_v1(%s, %s, %s)", name, actor, why))


def resume(conn: Connection, name: str, *, actor: str, why: str) -> bool:
    """Fire it again, from its next slot on. Whether it was paused."""
    return bool(_called(conn, "select redrive.resume_schedule_v1(%s, %s, %s)", name, actor, why))


def run_now(conn: Connection, name: str, *, actor: str, why: str) -> int | None:
    """Enqueue its job besides its slots. Returns the job's id; None: there is no such schedule."""
    return _called(conn, "select redrive.run_schedule_v1(%s, %s, %s)", name, actor, why)


def _called(conn: Connection, query: LiteralString, *values: str) -> Any:
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(query, values).fetchone()
