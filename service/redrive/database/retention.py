"""Retention of data other than dead letters."""

from redrive.database.rows import Connection

Kept = tuple[str, float]
"""Kind of data, and its retention in seconds."""


MEANINGS = {
    "audit": "lines of the audit log",
    "campaigns": "campaigns whose dead letters are purged",
    "groups": "groups without an open dead letter",
    "keys": "keys of succeeded jobs, ids of imported dead letters",
    "names": "counters and breakers that nobody uses",
}
LEAST_SECONDS = dict.fromkeys(MEANINGS, 3_600) | {"audit": 30 * 86_400}


def read(conn: Connection) -> list[Kept]:
    """Return the retention of each kind of data."""
    return conn.execute(
        "select what, extract(epoch from keep)::float8 from redrive.retention order by what"
    ).fetchall()


def put(conn: Connection, kept: Kept, *, actor: str, why: str) -> None:
    """Set the retention of one kind of data."""
    query = (
        "select redrive.set_retention_v1(%s, %s::float8 * interval '1 second', %s, %s)"
    )
    conn.execute(query, (*kept, actor, why))
