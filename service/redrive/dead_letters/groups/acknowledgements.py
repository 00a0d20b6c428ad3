"""Acknowledgements of groups of dead letters: somebody works on them."""

from collections.abc import Iterable, Sequence
from typing import LiteralString

from redrive.database.rows import Connection, column, rows
from redrive.rules.rows import Row

CHUNK = 1000
"""Groups that one statement changes, under one line of the audit log."""

_OF_GROUPS: LiteralString = """
    select fingerprint, acknowledged_at, acknowledged_by from redrive.open_groups
    where fingerprint = any (%s) and acknowledged_at is not null"""


def mark(conn: Connection, letters: Iterable[Row]) -> None:
    """Add to each dead letter when its group was acknowledged, and by whom, or None."""
    listed = list(letters)
    names = {letter["group"] for letter in listed}
    found = rows(conn, _OF_GROUPS, sorted(names))
    known = {row.pop("fingerprint"): row for row in found}
    nobody = {"acknowledged_at": None, "acknowledged_by": None}

    for letter in listed:
        acknowledged = known.get(letter["group"], nobody)
        letter.update(acknowledged)


def acknowledge(
    conn: Connection, names: Sequence[str], *, actor: str, why: str
) -> list[str]:
    """Record that the actor works on these groups.

    Returns the groups that have open dead letters. The others stay as they are.
    """
    return _set(conn, names, actor, why, is_acknowledged=True)


def unacknowledge(
    conn: Connection, names: Sequence[str], *, actor: str, why: str
) -> list[str]:
    """Record that nobody works on these groups; return the names of the open ones."""
    return _set(conn, names, actor, why, is_acknowledged=False)


def _set(
    conn: Connection,
    names: Sequence[str],
    actor: str,
    why: str,
    *,
    is_acknowledged: bool,
) -> list[str]:
    change = "select redrive.acknowledge_v1(%s, %s, %s, %s)"
    wanted = sorted(names)
    done: list[str] = []

    for start in range(0, len(wanted), CHUNK):
        chunk = wanted[start : start + CHUNK]
        done += column(conn, change, chunk, is_acknowledged, actor, why)

    return done
