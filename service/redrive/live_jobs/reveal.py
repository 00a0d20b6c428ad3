"""The payload of a job as it is, for somebody who says why."""

from typing import Any

import psycopg
from psycopg.rows import dict_row

from redrive.encryption import shown_payload


def reveal(
    conn: psycopg.Connection[Any], job: int, *, actor: str, why: str
) -> dict[str, Any] | None:
    """The payload of a job, not redacted and decrypted; the audit log keeps who saw it and why.

    None where nothing is kept of such a job.
    """
    with conn.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(
            "select * from redrive.reveal_v1(%s, %s, %s)", (job, actor, why)
        ).fetchone()
    return row and {"id": row["id"], "kind": row["kind"], "payload": shown_payload(row)}
