"""Read the audit log, and verify that it is unchanged."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, LiteralString, NamedTuple

from redrive.database.rows import Connection, rows
from redrive.rules.rows import Row

PAGE = 1000
"""Lines of one page."""
STEP = 10_000
"""Lines that are verified at once."""

_CHOSEN: LiteralString = """
    (%(since)s::timestamptz is null or a.at >= %(since)s)
    and (%(until)s::timestamptz is null or a.at < %(until)s)
    and (%(actor)s::text is null or a.actor = %(actor)s)
    and (%(login)s::text is null or a.db_user = %(login)s)
    and (%(action)s::text is null or a.action = %(action)s)"""
_FIELDS: LiteralString = (
    "a.id, a.at, a.actor, a.db_user as login, a.action, a.why, a.n, a.detail"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """Filter of audit lines. A line matches if it matches every field that is set."""

    since: datetime | None = None
    until: datetime | None = None
    actor: str | None = None
    login: str | None = None
    action: str | None = None


def newest(
    conn: Connection, chosen: Choice, limit: int, before: int | None = None
) -> list[Row]:
    """Return the newest lines, newest first.

    With `before`, only lines older than that one.
    """
    query: LiteralString = (
        f"select {_FIELDS} from redrive.audit a where {_CHOSEN}"
        " and (%(before)s::bigint is null or a.id < %(before)s)"
        " order by a.id desc limit %(limit)s"
    )
    return rows(conn, query, **asdict(chosen) | {"limit": limit, "before": before})


def lines(conn: Connection, chosen: Choice) -> Iterator[Row]:
    """Yield all lines with their seals, oldest first, page by page."""
    query: LiteralString = (
        f"select {_FIELDS}, encode(a.hash, 'hex') as hash from redrive.audit a"
        f" where {_CHOSEN} and a.id > %(after)s order by a.id limit %(limit)s"
    )
    parameters = asdict(chosen) | {"after": 0, "limit": PAGE}

    while page := rows(conn, query, **parameters):
        yield from page
        parameters["after"] = page[-1]["id"]


class Verdict(NamedTuple):
    """Verdict about the audit log: the number of lines, and the first fault or None."""

    lines: int
    fault: str | None


def verify(conn: Connection) -> Verdict:
    """Verify the chain of seals, step by step."""
    count = 0
    place = None
    more = True
    fault = None

    while more and fault is None:
        row: Any = conn.execute(
            "select place, lines, more, fault from redrive.verify_audit_v1(%s, %s)",
            (place, STEP),
        ).fetchone()
        place, step, more, fault = row
        count += step

    return Verdict(count, fault)


class Seal(NamedTuple):
    """Number of a line and its seal, as hexadecimal digits."""

    line: int
    hash: str

    def __str__(self) -> str:
        return f"{self.line}:{self.hash}"


def newest_seal(conn: Connection) -> Seal:
    """Return the seal of the newest line.

    A copy kept elsewhere reveals a rewritten log.
    """
    query = "select id, encode(hash, 'hex') from redrive.audit_chain"
    row: Any = conn.execute(query).fetchone()
    return Seal(*row)


def compare(conn: Connection, kept: Seal) -> str | None:
    """Compare a line with a seal kept elsewhere; return the fault, or None."""
    query = "select encode(hash, 'hex') from redrive.audit where id = %s"
    found = conn.execute(query, (kept.line,)).fetchone()
    if found is None:
        why = "retention has deleted it, or somebody has"
        return f"line {kept.line} is missing: {why}"
    if found[0] != kept.hash:
        return f"line {kept.line} has another seal: the log was rewritten"

    return None
