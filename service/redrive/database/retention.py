"""How long data other than dead letters is kept."""

from collections.abc import Iterable

from redrive.database.rows import Connection

Kept = tuple[str, float]
"""Kind of data, and its retention in seconds."""


def read(conn: Connection) -> list[Kept]:
    """Return the retention of each kind of data."""
    return conn.execute(
        "select what, extract(epoch from keep)::float8 from redrive.retention order by what"
    ).fetchall()


def change(
    conn: Connection, kept: Iterable[Kept], *, actor: str, why: str | None
) -> None:
    """Set these retentions in one transaction."""
    query = (
        "select redrive.set_retention_v1(%s, %s::float8 * interval '1 second', %s, %s)"
    )
    with conn.transaction():
        for what, seconds in kept:
            conn.execute(query, (what, seconds, actor, why))
