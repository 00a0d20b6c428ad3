"""Run one statement in the caller's transaction, on a connection of any known driver.

Drivers are recognised by what a connection can do, not by its class, so the proxies of
monitoring agents work and no driver must be installed. An async connection returns an
awaitable. Statements use %s and parameters are plain values. JSON is passed as text and
cast.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, LiteralString, Protocol, TypeAlias, cast

Finish = Callable[[Any], Any]


class _Commit(Protocol):
    """Connection of psycopg, or Connection or Session of SQLAlchemy."""

    def execute(self, *args: Any, **options: Any) -> Any: ...
    def commit(
        self,
    ) -> None: ...  # the method that distinguishes it from an async connection


class _Django(Protocol):
    """Connection of Django: `django.db.connection`, or a member of `connections`."""

    in_atomic_block: Any

    def cursor(self) -> Any: ...


class _AwaitedCommit(Protocol):
    """AsyncConnection of psycopg, or AsyncConnection or AsyncSession of SQLAlchemy."""

    def execute(self, *args: Any, **options: Any) -> Any: ...
    def commit(self) -> Awaitable[None]: ...


class _Asyncpg(Protocol):
    """Connection of asyncpg."""

    def fetchrow(self, *args: Any, **options: Any) -> Awaitable[Any]: ...
    def is_in_transaction(self) -> Any: ...


class _AsyncpgOfPool(Protocol):
    """Connection from asyncpg's pool. Without stubs, no other member of it is known."""

    _con: Any
    _holder: Any


SyncConnection: TypeAlias = _Commit | _Django
"""For type checkers: a connection that returns results directly."""

AsyncConnection: TypeAlias = _AwaitedCommit | _Asyncpg | _AsyncpgOfPool
"""For type checkers: a connection whose results are awaited."""


def scalar(conn: Any, statement: str, parameters: Sequence[Any], finish: Finish) -> Any:
    """Execute and return `finish(first column of the first row)`.

    An async connection returns an awaitable.

    Args:
        conn: connection of any known driver.
        statement: SQL with a %s for each parameter.
        parameters: plain values; JSON as text.
        finish: converts the value for the caller.

    Raises:
        TypeError: the connection belongs to no driver that Redrive knows.
    """
    return row(conn, statement, parameters, lambda found: finish(found[0]))


def row(conn: Any, statement: str, parameters: Sequence[Any], finish: Finish) -> Any:
    """Execute and return `finish(first row)`, or an awaitable of it.

    The arguments are as for `scalar`.

    Raises:
        TypeError: the connection belongs to no driver that Redrive knows.
    """
    conn = itself(conn)
    match driver_of(conn):
        case "psycopg":
            return finish(_psycopg(conn, statement, parameters))
        case "psycopg async":
            return _psycopg_async(conn, statement, parameters, finish)
        case "sqlalchemy":
            return finish(_sqlalchemy(conn, statement, parameters))
        case "sqlalchemy async":
            return _sqlalchemy_async(conn, statement, parameters, finish)
        case "django":
            return finish(_django(conn, statement, parameters))
        case _:
            return _asyncpg(conn, statement, parameters, finish)


def in_turn(
    conn: Any, statement: LiteralString, parameters: Iterable[Sequence[Any]]
) -> Iterator[Any]:
    """Execute once per parameter set, and yield the first column of each first row.

    Supports psycopg only. The next parameters are requested while the database works on
    the last ones.
    """
    from psycopg import Cursor  # noqa: PLC0415 # only where the driver is used
    from psycopg.rows import scalar_row  # noqa: PLC0415 # as above

    with Cursor(conn, row_factory=scalar_row) as cursor:
        cursor.executemany(statement, parameters, returning=True)
        is_more = cursor.pgresult is not None
        while is_more:
            yield cursor.fetchone()
            is_more = cursor.nextset()


_ABILITIES = {
    "psycopg": ("pgconn", "set_autocommit"),
    "asyncpg": ("fetchrow", "is_in_transaction"),
    "sqlalchemy async": ("in_nested_transaction", "run_sync"),
    "sqlalchemy": ("in_nested_transaction", "execute"),
    "django": ("in_atomic_block", "cursor"),
}
"""Names that only the connections of a family have, and their proxies with them."""


def driver_of(conn: Any) -> str:
    """Name the driver family.

    psycopg, sqlalchemy (both also ' async'), django or asyncpg.

    Raises:
        TypeError: it is a connection of no known driver.
    """
    family = _family(conn)
    if family:
        return family

    name = f"{type(conn).__module__}.{type(conn).__qualname__}"
    msg = f"a {name} is not a connection that Redrive knows; {_remedy(conn)}"
    raise TypeError(msg)


def _family(conn: Any) -> str:
    if isinstance(conn, type):
        return ""

    for family, names in _ABILITIES.items():
        if all(hasattr(conn, name) for name in names):
            is_async = family == "psycopg" and inspect.iscoroutinefunction(
                conn.set_autocommit
            )
            return f"{family} async" if is_async else family

    return ""


def _remedy(conn: Any) -> str:
    if hasattr(conn, "fetchone"):
        return "it is a cursor: pass its connection"

    opens = ("acquire", "connect", "connection", "getconn", "class_")
    if any(hasattr(conn, name) for name in opens) and not isinstance(conn, type):
        return "it opens connections: pass one of them"

    return "pass one of psycopg 3, SQLAlchemy, Django or asyncpg"


def in_transaction(conn: Any) -> bool:
    """Return True if a transaction is open on the connection."""
    conn = itself(conn)
    family = driver_of(conn)
    if family == "django":
        return conn.connection is not None and _is_open(conn.connection)
    if family.startswith("psycopg"):
        return _is_open(conn)
    if family.startswith("sqlalchemy"):
        return bool(conn.in_transaction()) and _sqlalchemy_is_open(conn)

    return bool(conn.is_in_transaction())


def _sqlalchemy_is_open(conn: Any) -> bool:
    """Ask the driver, because SQLAlchemy counts a transaction with AUTOCOMMIT, too."""
    sync = getattr(conn, "sync_session", getattr(conn, "sync_connection", conn))
    used = sync.connection() if hasattr(sync, "get_bind") else sync
    raw = used.connection.driver_connection
    return in_transaction(raw) if _family(raw) else True


def _is_open(conn: Any) -> bool:
    # 0 = idle, 4 = unknown (closed)
    return int(conn.info.transaction_status) not in {0, 4}


def itself(conn: Any) -> Any:
    """Return the connection for use in any thread and task.

    Django's `connection` differs per thread, and a scoped session of SQLAlchemy per
    scope.
    """
    if hasattr(conn, "registry") and hasattr(conn, "session_factory"):
        return conn()
    if driver_of(conn) == "django":
        return conn.ops.connection
    return conn


def is_async(conn: Any) -> bool:
    """Return True if calls on the connection must be awaited."""
    return driver_of(itself(conn)) in {"psycopg async", "sqlalchemy async", "asyncpg"}


def roll_back(conn: Any) -> Any:
    """Roll back the open transaction; an async connection returns an awaitable."""
    match driver_of(conn):
        case "asyncpg":
            return _roll_back_asyncpg(conn)
        case "django":  # Django's own rollback works only in the thread that connected
            return conn.connection.rollback()
        case _:
            return conn.rollback()


async def _roll_back_asyncpg(conn: Any) -> None:
    """Roll back, and let the connection forget its open `Transaction`.

    Otherwise its next transaction would only be a savepoint. No public function does
    this without an end of all listeners, locks and settings of the session.
    """
    await conn.execute("rollback")
    own = getattr(conn, "_con", conn)  # a pool lends a proxy
    own._top_xact = None  # noqa: SLF001 # see above


def can_copy(conn: Any) -> bool:
    """Return True if a connection of psycopg can send any job by COPY now.

    A pipeline cannot send COPY. Another encoding than UTF-8 lacks characters.
    """
    return int(conn.pgconn.pipeline_status) == 0 and conn.info.encoding == "utf-8"


# The connection's own class of cursors may have other placeholders and other rows.


def _psycopg(conn: Any, statement: str, parameters: Sequence[Any]) -> Any:
    from psycopg import Cursor  # noqa: PLC0415 # only where the driver is used
    from psycopg.rows import tuple_row  # noqa: PLC0415 # as above

    with Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(*_encoded(conn, statement, parameters))
        return _texts(cursor.fetchone())


async def _psycopg_async(
    conn: Any, statement: str, parameters: Sequence[Any], finish: Finish
) -> Any:
    from psycopg import AsyncCursor  # noqa: PLC0415 # as above
    from psycopg.rows import tuple_row  # noqa: PLC0415 # as above

    async with AsyncCursor(conn, row_factory=tuple_row) as cursor:
        await cursor.execute(*_encoded(conn, statement, parameters))
        return finish(_texts(await cursor.fetchone()))


def _encoded(
    conn: Any, statement: str, parameters: Sequence[Any]
) -> tuple[Any, Sequence[Any]]:
    """Send texts as bytes if the connection's encoding lacks characters.

    Lists are sent as text, because the caller may dump lists as JSON.
    """
    parameters = [
        _array(cast("list[str]", one)) if isinstance(one, list) else one
        for one in parameters
    ]
    if conn.info.encoding == "utf-8":
        return statement, parameters

    decoded = "convert_from(cast(%s as bytea), 'UTF8')"
    return (
        statement.replace("cast(%s as text)", decoded).replace(
            "cast(%s as text[])", f"cast({decoded} as text[])"
        ),
        [one.encode() if isinstance(one, str) else one for one in parameters],
    )


def _array(names: list[str]) -> str:
    """Return a list of names as the text of an array."""
    escaped = [re.sub(r'(["\\])', r"\\\1", name) for name in names]
    return "{" + ",".join(f'"{name}"' for name in escaped) + "}"


def _texts(found: Any) -> Any:
    """Decode texts, which psycopg returns as bytes if client_encoding is SQL_ASCII."""
    return tuple(one.decode() if isinstance(one, bytes) else one for one in found)


def _sqlalchemy(conn: Any, statement: str, parameters: Sequence[Any]) -> Any:
    from sqlalchemy import text  # noqa: PLC0415 # as above

    bind = conn.get_bind() if hasattr(conn, "get_bind") else conn
    _check_vendor("SQLAlchemy", bind.dialect.name)
    named = statement
    for n in range(len(parameters)):
        named = named.replace("%s", f":p{n}", 1)

    # text() would read '::' as two characters of SQL, not as part of a parameter.
    return conn.execute(
        text(named), {f"p{n}": value for n, value in enumerate(parameters)}
    ).one()


async def _sqlalchemy_async(
    conn: Any, statement: str, parameters: Sequence[Any], finish: Finish
) -> Any:
    return finish(
        await conn.run_sync(lambda sync: _sqlalchemy(sync, statement, parameters))
    )


def _django(conn: Any, statement: str, parameters: Sequence[Any]) -> Any:
    _check_vendor("Django", conn.vendor)
    with conn.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchone()


def _check_vendor(driver: str, vendor: str) -> None:
    if vendor != "postgresql":
        msg = (
            f"this connection of {driver} is to {vendor}; jobs are in PostgreSQL:"
            " pass a connection to that database"
        )
        raise TypeError(msg)


async def _asyncpg(
    conn: Any, statement: str, parameters: Sequence[Any], finish: Finish
) -> Any:
    numbered = statement
    for n in range(len(parameters)):
        numbered = numbered.replace("%s", f"${n + 1}", 1)

    return finish(await conn.fetchrow(numbered, *parameters))
