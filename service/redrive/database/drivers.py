"""Run one statement in the caller's transaction, on a connection of any known driver.

Drivers are recognised by the module of the connection's class, so none must be
installed. An async connection returns an awaitable. Statements use %s and parameters
are plain values. JSON is passed as text and cast.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

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
    conn: Any, statement: str, parameters: Iterable[Sequence[Any]]
) -> Iterator[Any]:
    """Execute once per parameter set, and yield the first column of each first row.

    Supports psycopg only. The next parameters are requested while the database works on
    the last ones.
    """
    from psycopg.rows import scalar_row  # noqa: PLC0415 # only where the driver is used

    with conn.cursor(row_factory=scalar_row) as cursor:
        cursor.executemany(statement, parameters, returning=True)
        is_more = cursor.pgresult is not None
        while is_more:
            yield cursor.fetchone()
            is_more = cursor.nextset()


def driver_of(conn: Any) -> str:
    """Name the driver family.

    psycopg, sqlalchemy (both also ' async'), django or asyncpg.

    Raises:
        TypeError: it is a connection of no known driver.
    """
    # A user's own subclass is recognised by its base class.
    for cls in type(conn).__mro__:
        package = cls.__module__.partition(".")[0]
        if package == "psycopg":
            if cls.__name__ == "AsyncConnection":
                return "psycopg async"
            return "psycopg"

        if package == "sqlalchemy":
            if "asyncio" in cls.__module__:
                return "sqlalchemy async"
            return "sqlalchemy"

        if package in {"django", "asyncpg"}:
            return package

    name = f"{type(conn).__module__}.{type(conn).__qualname__}"
    known = "pass one of psycopg, SQLAlchemy, Django or asyncpg"
    msg = f"a {name} is not a connection that Redrive knows; {known}"
    raise TypeError(msg)


def in_transaction(conn: Any) -> bool:
    """Return True if a transaction is open on the connection."""
    family = driver_of(conn)
    if family == "django":
        return conn.connection is not None and _is_open(conn.connection)
    if family.startswith("psycopg"):
        return _is_open(conn)
    if family.startswith("sqlalchemy"):
        return bool(conn.in_transaction())

    return bool(conn.is_in_transaction())


def _is_open(conn: Any) -> bool:
    # 0 = idle, 4 = unknown (closed)
    return int(conn.info.transaction_status) not in {0, 4}


def itself(conn: Any) -> Any:
    """Return the connection for use in any thread.

    Django's `connection` differs per thread.
    """
    if driver_of(conn) == "django":
        return conn.ops.connection
    return conn


def is_async(conn: Any) -> bool:
    """Return True if calls on the connection must be awaited."""
    return driver_of(conn) in {"psycopg async", "sqlalchemy async", "asyncpg"}


def roll_back(conn: Any) -> Any:
    """Roll back the open transaction; an async connection returns an awaitable."""
    match driver_of(conn):
        case "asyncpg":
            return conn.execute("rollback")
        case "django":  # Django's own rollback works only in the thread that connected
            return conn.connection.rollback()
        case _:
            return conn.rollback()


def _psycopg(conn: Any, statement: str, parameters: Sequence[Any]) -> Any:
    from psycopg.rows import tuple_row  # noqa: PLC0415 # only where the driver is used

    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement, parameters).fetchone()


async def _psycopg_async(
    conn: Any, statement: str, parameters: Sequence[Any], finish: Finish
) -> Any:
    from psycopg.rows import tuple_row  # noqa: PLC0415 # as above

    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement, parameters)
        return finish(await cursor.fetchone())


def _sqlalchemy(conn: Any, statement: str, parameters: Sequence[Any]) -> Any:
    from sqlalchemy import text  # noqa: PLC0415 # as above

    named = statement
    for n in range(len(parameters)):
        named = named.replace("%s", f":p{n}", 1)

    # text() would read '::' as two characters of SQL, not as part of a parameter.
    return conn.execute(
        text(named),
        {f"p{n}": value for n, value in enumerate(parameters)},
    ).one()


async def _sqlalchemy_async(
    conn: Any, statement: str, parameters: Sequence[Any], finish: Finish
) -> Any:
    return finish(
        await conn.run_sync(lambda sync: _sqlalchemy(sync, statement, parameters))
    )


def _django(conn: Any, statement: str, parameters: Sequence[Any]) -> Any:
    with conn.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchone()


async def _asyncpg(
    conn: Any, statement: str, parameters: Sequence[Any], finish: Finish
) -> Any:
    numbered = statement
    for n in range(len(parameters)):
        numbered = numbered.replace("%s", f"${n + 1}", 1)

    return finish(await conn.fetchrow(numbered, *parameters))
