"""Marks of a time axis, from the audit log and from what workers report."""

from datetime import datetime
from typing import LiteralString

from redrive.database.rows import Connection, records
from redrive.rules.marks import Mark

MOST = 200
_MARKS: LiteralString = "select * from redrive.read_marks_v1(%s, %s, %s, %s, %s)"


def read_marks(  # noqa: PLR0913 # each one selects marks
    conn: Connection,
    since: datetime,
    until: datetime,
    queue: str | None = None,
    kind: str | None = None,
    most: int = MOST,
) -> list[Mark]:
    """Return what changed in a period, oldest first; at most the latest `most`.

    With `queue` or `kind`, marks that are known to be about others are left out.
    """
    return records(conn, Mark, _MARKS, *(since, until, queue, kind, most))
