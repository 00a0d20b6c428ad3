"""Breakers of dependencies: list them, and hold or reset one."""

from typing import LiteralString

from redrive.database.rows import Connection, rows, value
from redrive.rules.rows import Row

_FOUND: LiteralString = """
    select name, state, failures, successes, opened, opened_at, open_until, forced_by,
           forced_why
    from redrive.shown_breakers order by name"""
_FORCE: LiteralString = "select redrive.force_breaker_v1(%s, %s, %s, %s)"


def find(conn: Connection) -> list[Row]:
    """Return all breakers, by name."""
    return rows(conn, _FOUND)


def force(
    conn: Connection, name: str, state: str | None, *, actor: str, why: str | None
) -> bool:
    """Hold a breaker in this state; None = reset it. Return False if it is unknown."""
    return value(conn, _FORCE, name, state, actor, why)
