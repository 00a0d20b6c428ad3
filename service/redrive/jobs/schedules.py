"""Schedules: list, pause and resume them, and run one now."""

from typing import LiteralString

from redrive.database.rows import Connection, rows, value
from redrive.rules.rows import Row

_FOUND: LiteralString = """
    select name, kind, queue, cron, tz, catch_up, state, next_at, last_at, last_job, paused_at,
           paused_by, paused_why, versions
    from redrive.schedules_v1()"""


def find(conn: Connection) -> list[Row]:
    """Return the schedules, with the fields of `schedule ls --json`."""
    return rows(conn, _FOUND)


def pause(conn: Connection, name: str, *, actor: str, why: str) -> bool:
    """Pause a schedule. Returns False if it was paused already."""
    return bool(
        value(conn, "select redrive.pause_schedule_v1(%s, %s, %s)", name, actor, why)
    )


def resume(conn: Connection, name: str, *, actor: str, why: str) -> bool:
    """Resume a schedule from its next slot on. Returns False if it was not paused."""
    return bool(
        value(conn, "select redrive.resume_schedule_v1(%s, %s, %s)", name, actor, why)
    )


def run_now(conn: Connection, name: str, *, actor: str, why: str) -> int | None:
    """Enqueue the schedule's job now, in addition to its slots.

    Returns the job's id, or None if there is no such schedule.
    """
    return value(conn, "select redrive.run_schedule_v1(%s, %s, %s)", name, actor, why)
