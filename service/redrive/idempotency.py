"""For handlers: do a thing once, however often the job runs."""

from typing import Any

from redrive.database import drivers as sql_drivers
from redrive.rules.limits import check_text


def idempotent(conn: Any, key: str) -> Any:
    """Whether what `key` stands for is still to be done; the answer True takes the key.

        with conn.transaction():
            if idempotent(conn, f"charge-{invoice.id}"):
                ...  # write what has to be written once

    The key is taken in the transaction that is open on `conn`: for good when it commits, not at all
    when it rolls back. A second caller waits for the first one's end. Keys are kept as long as
    `redrive purge --keys-older-than`.

    Args:
        conn: a connection of psycopg, SQLAlchemy or asyncpg; an async one gives an awaitable.
        key: 1 to 255 characters.

    Raises:
        InvalidJob: the key is none.
    """
    return sql_drivers.scalar(
        conn, "select redrive.first_time_v1(cast(%s as text))", (check_text("key", key),), bool
    )
