"""Base of redrive, purge and re-encryption: one run at a time, each on record."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.types.json import Jsonb

from redrive.database.rows import Connection, value
from redrive.errors import Busy
from redrive.rules.rows import Row


def hold_lock(conn: Connection, name: str) -> None:
    """Take a lock until the end of the open transaction on `conn`.

    It works through PgBouncer. Only a login that may run this may take the lock.

    Raises:
        Busy: another run holds it.
    """
    is_ours = value(conn, "select redrive.hold_run_v1(%s)", name)
    if not is_ours:
        msg = f"another {name} holds the lock"
        raise Busy(msg)

    # The transaction is idle while the run works on another connection. This statement
    # comes last: it has no parameters, so it ends the snapshot of the one before it,
    # which would keep vacuum from removing rows until the run ends.
    conn.execute("set local idle_in_transaction_session_timeout = 0")


@contextmanager
def audited(  # noqa: PLR0913 # the columns of the audit log
    conn: Connection, action: str, *, actor: str, why: str, n: int, detail: Row
) -> Iterator[int]:
    """Record a run over `n` rows from its beginning; yield its id for its steps.

    Its end is recorded with the changes of its steps, also if the run failed half-way.
    """
    run: Any = value(
        conn,
        "select redrive.begin_run_v1(%s, %s, %s, %s, %s)",
        action,
        actor,
        why,
        n,
        Jsonb(detail),
    )

    try:
        yield run
    finally:
        if not conn.closed:
            conn.execute("select redrive.end_run_v1(%s)", (run,))


def expect(conn: Connection, name: str, every: float) -> None:
    """Expect runs at most `every` seconds apart, for the alert; 0 = no longer."""
    conn.execute(
        "select redrive.expect_chore_v1(%s, nullif(%s::float8, 0) * interval '1 second')",
        (name, every),
    )


def mark_done(conn: Connection, name: str, every: float | None) -> None:
    """Note that a scheduled run took place, for the alert on runs that stopped.

    Args:
        every: seconds between two runs; None or 0 = not known.
    """
    conn.execute(
        "select redrive.done_chore_v1(%s, nullif(%s::float8, 0) * interval '1 second')",
        (name, every),
    )
