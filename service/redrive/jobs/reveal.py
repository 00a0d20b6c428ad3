"""Read the payload of a job in full, for a stated reason."""

from redrive.database.rows import Connection, first_row
from redrive.encryption import shown_payload
from redrive.rules.rows import Row


def reveal(conn: Connection, job: int, *, actor: str, why: str) -> Row | None:
    """Return the payload of a job, decrypted and not redacted.

    The audit log records the reader and the reason. Returns None if nothing is kept of
    such a job.
    """
    row = first_row(
        conn, "select * from redrive.reveal_v1(%s, %s, %s)", job, actor, why
    )
    return row and {"id": row["id"], "kind": row["kind"], "payload": shown_payload(row)}
