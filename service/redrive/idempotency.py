"""Let a handler do an action once, however often its job runs."""

from collections.abc import Awaitable
from typing import Any, overload

from redrive.database import drivers as sql_drivers
from redrive.database.drivers import AsyncConnection, SyncConnection
from redrive.rules.payloads.limits import check_text


@overload
def idempotent(conn: SyncConnection, key: str) -> bool: ...
@overload
def idempotent(conn: AsyncConnection, key: str) -> Awaitable[bool]: ...
def idempotent(conn: Any, key: str) -> bool | Awaitable[bool]:
    """Take `key`, and return True if it was free: the action is still to be done.

        with conn.transaction():
            if idempotent(conn, f"charge-{invoice.id}"):
                ...  # write here

    The key belongs to the transaction that is open on `conn`. A commit keeps the key,
    and a rollback frees it. A second caller waits until the first one commits or rolls
    back. `redrive retention` shows how long keys are kept.

    Args:
        conn: a connection of psycopg, SQLAlchemy or asyncpg; an async connection
            returns an awaitable.
        key: 1 to 255 characters.

    Raises:
        InvalidJob: the key is empty, too long, or cannot be stored as text.
    """
    return sql_drivers.scalar(
        conn,
        "select redrive.first_time_v1(cast(%s as text))",
        (check_text("key", key),),
        bool,
    )
