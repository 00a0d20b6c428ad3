"""Decryption of failure messages for display."""

from collections.abc import Sequence

from redrive.database.rows import Connection, rows
from redrive.encryption import HIDDEN, shown_failure
from redrive.rules.rows import Row


def reveal(conn: Connection, rows: Sequence[Row], job: str = "id") -> None:
    """Restore the failure's message in each row that has it encrypted.

    Args:
        rows: rows with `message`, `group` (the fingerprint) and a job's id; changed in
            place.
        job: key of the job's id in each row.
    """
    hidden = [row for row in rows if row["message"] == HIDDEN]
    if not hidden:
        return

    jobs = [row[job] for row in hidden]
    messages = _messages(conn, jobs)

    for row in hidden:
        failure = row[job], row["group"]
        row["message"] = messages.get(failure, HIDDEN)


def _messages(conn: Connection, jobs: Sequence[int]) -> dict[tuple[int, str], str]:
    """Return the latest message of each job and fingerprint."""
    failures = rows(
        conn,
        "select distinct on (job, fingerprint) job, deliveries, fingerprint, message, detail"
        " from redrive.failures where job = any (%s::bigint[])"
        " order by job, fingerprint, deliveries desc",
        list(jobs),
    )
    return {
        (f["job"], f["fingerprint"]): shown_failure(f["job"], f)["message"]
        for f in failures
    }
