"""Read and set limits, with their numbers of running and waiting jobs."""

from collections.abc import Collection
from typing import LiteralString

from redrive.database.rows import Connection, column, rows, value
from redrive.rules.concurrency import counts_under, of_all, of_rate
from redrive.rules.nearest import suggestion
from redrive.rules.rows import Row

_FOUND: LiteralString = """
    select name, concurrency, rate, used, waiting, set_at from redrive.limits_v1()"""


def find(conn: Connection) -> list[Row]:
    """Return the limits, with the fields of `limit ls --json`."""
    found = rows(conn, _FOUND)
    for row in found:
        row["rate"] = row["rate"] and of_rate(row["rate"])
    return found


def names(conn: Connection) -> list[str]:
    """List the names that handlers declare as limits, and the limits that are set."""
    return column(conn, "select redrive.names_of_limits_v1()")


def unused(conn: Connection, name: str) -> str | None:
    """Return a warning about a limit that no job counts under; None for other names."""
    known = names(conn)
    if any(counts_under(name, one) for one in known):
        return None

    hint = suggestion(name, _without_keys(known))
    return f"no handler has jobs that count under {name!r} yet{hint}"


def _without_keys(known: Collection[str]) -> list[str]:
    """Return the names without a key, and for each template the limit of all keys."""
    of_all_keys = {of_all(one) for one in known}
    plain = {one for one in known if "{" not in one}

    return sorted(of_all_keys | plain)


def put(  # noqa: PLR0913 # a limit, and who sets it
    conn: Connection,
    name: str,
    concurrency: int | None,
    rate: float | None,
    *,
    actor: str,
    why: str,
) -> bool:
    """Set a limit; without concurrency and rate, remove it.

    Args:
        concurrency: number of jobs that may run at once; None = any.
        rate: jobs that may start per second; None = any.

    Returns:
        True if the limit exists now, or existed before its removal.
    """
    statement: LiteralString = "select redrive.set_limit_v1(%s, %s, %s, %s, %s)"
    return bool(value(conn, statement, name, concurrency, rate, actor, why))
