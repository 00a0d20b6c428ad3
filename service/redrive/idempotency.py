"""For handlers: do a thing once, however often the job runs."""

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
    """Return whether what `key` stands for is still to be done; True takes the key.

        with conn.transaction():
            if idempotent(conn, f"charge-{invoice.id}"):
                ...  # write what has to be written once

    The key is taken in the transaction that is open on `conn`: for good when it commits, not at all
    when it rolls back. A second caller waits until the first one commits or rolls back. Keys are
    kept as long as `redrive retention` says.

    Args:
        conn: a connection of psycopg, SQLAlchemy or asyncpg; an async one gives an awaitable.
        key: 1 to 255 characters.

    Raises:
        InvalidJob: the key is empty, too long, or cannot be stored as text.
    """
    return sql_drivers.scalar(
        conn, "select redrive.first_time_v1(cast(%s as text))", (check_text("key", key),), bool
    )
