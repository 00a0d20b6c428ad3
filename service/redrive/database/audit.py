"""Read the audit log, and verify that it is unchanged."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, LiteralString, NamedTuple

from redrive.database.criteria import Criteria, Criterion
from redrive.database.rows import Connection, rows
from redrive.rules.rows import Row

PAGE = 1000
"""Lines of one page."""
STEP = 10_000
"""Lines that are verified at once."""

_FIELDS: LiteralString = (
    "a.id, a.at, a.actor, a.db_user as login, a.action, a.why, a.n, a.detail"
)


@dataclass(frozen=True, slots=True)
class Choice(Criteria):
    """Filter of audit lines. A line matches if it matches every field that is set."""

    since: Annotated[
        datetime | None,
        Criterion("a.at >= %s", "At or after: an instant, or 2h for two hours ago."),
    ] = None
    until: Annotated[
        datetime | None,
        Criterion("a.at < %s", "Before: an instant, or 2h for two hours ago."),
    ] = None
    actor: Annotated[
        str | None, Criterion("a.actor = %s", "Name that the user gave.")
    ] = None
    login: Annotated[
        str | None, Criterion("a.db_user = %s", "Postgres login of the user.")
    ] = None
    action: Annotated[
        str | None, Criterion("a.action = %s", "Action: redrive, purge, pause, ...")
    ] = None


def newest(
    conn: Connection, chosen: Choice, limit: int, before: int | None = None
) -> list[Row]:
    """Return the newest lines, newest first.

    With `before`, only lines older than that one.
    """
    conditions, parameters = chosen.where()
    query: LiteralString = (
        f"select {_FIELDS} from redrive.audit a where {conditions}"
        " and a.id < coalesce(%s, 9223372036854775807) order by a.id desc limit %s"
    )
    return rows(conn, query, *parameters, before, limit)


def lines(conn: Connection, chosen: Choice) -> Iterator[Row]:
    """Yield all lines with their seals, oldest first, page by page."""
    conditions, parameters = chosen.where()
    query: LiteralString = (
        f"select {_FIELDS}, encode(a.hash, 'hex') as hash from redrive.audit a"
        f" where {conditions} and a.id > %s order by a.id limit %s"
    )
    after = 0

    while page := rows(conn, query, *parameters, after, PAGE):
        yield from page
        after = page[-1]["id"]


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
