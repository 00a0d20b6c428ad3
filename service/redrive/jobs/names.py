"""Names of kinds and queues that no job has had, which are usually typos."""

from collections.abc import Mapping
from typing import LiteralString

from redrive.database.rows import Connection, column, rows
from redrive.rules.nearest import suggestion
from redrive.rules.rows import Row

MOST_NAMES = 1_000_000
COUNTED = {"queues": "once each", "kinds": "once for each queue and each priority"}
"""What is limited in number, and how it is counted."""

_KNOWN: Mapping[str, tuple[LiteralString, str]] = {
    "kind": ("select distinct kind from redrive.totals", "of a kind"),
    "queue": ("select queue from redrive.depths_v1()", "in a queue"),
}


def unknown(conn: Connection, what: str, name: str) -> str | None:
    """Return a warning about a name that no job has had; otherwise None.

    Args:
        what: kind or queue.
    """
    query, had = _KNOWN[what]
    known = column(conn, query)
    if name in known:
        return None

    hint = suggestion(name, known)
    return f"no job has been {had} {name!r} yet{hint}"


def used(conn: Connection) -> list[Row]:
    """Return the numbers of queues and kinds in use, and their limits."""
    return rows(conn, "select what, used, at_most from redrive.names_used_v1()")


def limit(conn: Connection, what: str, at_most: int, *, actor: str, why: str) -> None:
    """Limit the number of queues or kinds that producers may use."""
    query = "select redrive.limit_names_v1(%s, %s, %s, %s)"
    conn.execute(query, (what, at_most, actor, why))
