"""What a redrive, a purge and a re-encryption share: one runs at a time, each leaves a record."""

from typing import Any

import psycopg
from psycopg.rows import scalar_row
from psycopg.types.json import Jsonb

from redrive.errors import Busy


def hold_lock(conn: psycopg.Connection[Any], name: str) -> None:
    """Take a lock for as long as the transaction open on `conn` lasts; works through PgBouncer.

    Raises:
        Busy: another run holds it.
    """
    conn.execute("set local idle_in_transaction_session_timeout = 0")
    with conn.cursor(row_factory=scalar_row) as cursor:
        is_ours = cursor.execute(
            "select pg_try_advisory_xact_lock(hashtext('redrive'), hashtext(%s))", (name,)
        ).fetchone()
    if not is_ours:
        msg = f"another {name} holds the lock"
        raise Busy(msg)


def record(  # noqa: PLR0913 # the columns of the audit log
    conn: psycopg.Connection[Any],
    actor: str,
    action: str,
    why: str,
    n: int,
    detail: dict[str, Any],
) -> None:
    """Write a line of the audit log: what was done to `n` rows."""
    conn.execute(
        "select redrive.record_audit_v1(%s, %s, %s, %s, %s)", (actor, action, why, n, Jsonb(detail))
    )


def expect(conn: psycopg.Connection[Any], name: str, every: float) -> None:
    """Expect runs at most `every` seconds apart from now on, for the alert; 0 = none any more."""
    conn.execute(
        "select redrive.expect_chore_v1(%s, nullif(%s::float8, 0) * interval '1 second')",
        (name, every),
    )


def mark_done(conn: psycopg.Connection[Any], name: str, every: float | None) -> None:
    """Note that a scheduled run took place, for the alert on runs that stopped.

    Args:
        every: seconds between two runs; None or 0 = not known.
    """
    conn.execute(
        "select redrive.done_chore_v1(%s, nullif(%s::float8, 0) * interval '1 second')",
        (name, every),
    )
