"""Connections of our own processes, which also work behind a pooler."""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, LiteralString, Self, cast

import psycopg
from psycopg import sql
from psycopg.abc import RV, Buffer, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.datetime import TimestamptzLoader
from psycopg.waiting import Wait

CALL_SECONDS = 15.0
"""Maximum duration of a call before its connection is given up."""

CONNECT_SECONDS = 10
"""Maximum time to connect to one host, unless the URL sets connect_timeout."""

SEARCH_PATH = "pg_catalog, pg_temp"
"""Search path under which objects in `public` cannot replace the ones we call."""

SETTINGS = {
    "search_path": SEARCH_PATH,
    "statement_timeout": "12s",
    "lock_timeout": "8s",
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    "jit": "off",
    "array_nulls": "on",
    # only a hint behind a pooler: applies to the next transaction
    "default_transaction_isolation": "read committed",
}
"""Settings of each of our transactions, whatever the database or the role has set."""

_DURABLE = sql.SQL(
    "set_config('synchronous_commit',"
    " replace(current_setting('synchronous_commit'), 'off', 'on'), {})"
)
"""Setting that makes acknowledged work survive a crash.

Operators decide whether standbys must have it too.
"""


class OwnConnection(psycopg.Connection[tuple[Any, ...]]):
    """Autocommit connection with settings of its own.

    Behind a pooler the session is shared, so other clients would find our changes to
    it. Each transaction therefore begins with its settings, unless the session has them
    already. They are sent before its first statement, in the same round trip.
    """

    settings: LiteralString = ""
    _held: LiteralString = ""
    """Settings that the session has; none behind a pooler."""
    meanwhile: Callable[[], object] | None = None
    """Callback that runs before each wait for the server.

    It must not use the connection.
    """
    patience: float | None = None
    """Maximum seconds that a call waits for the server; None: no limit.

    A frozen server does not apply its statement timeout, and its host still
    acknowledges what is sent.
    """

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        """Wait for the server; psycopg calls this for everything it does.

        A lost connection is closed here. If its socket fails before libpq has read from
        it, psycopg would leave it open and busy forever.
        """
        if self.meanwhile is None:
            used = gen
        else:
            used = _with(self.meanwhile, gen)

        if self.patience is not None:
            used = _within(self.patience, used)

        try:
            return super().wait(used, *args, **options)
        except psycopg.OperationalError as error:
            # Only a lost connection raises exactly this class without a SQLSTATE.
            # Errors of a pipeline or a timed-out wait have classes of their own.
            if type(error) is psycopg.OperationalError and error.sqlstate is None:
                self.close()

            raise

    def kept_cursor(self, purpose: str) -> psycopg.Cursor[tuple[Any, ...]]:
        """Return a cursor for binary results that is reused, and keeps its last result.

        It remembers how to send the statement that it sent before.
        """
        if purpose not in self._kept_cursors:
            self._kept_cursors[purpose] = self.cursor(binary=True)

        return self._kept_cursors[purpose]

    @property
    def is_idle(self) -> bool:
        """Return True if the next statement begins a transaction."""
        return (
            self._pipeline is None
            and self.pgconn.transaction_status == TransactionStatus.IDLE
        )

    @functools.cached_property
    def _kept_cursors(self) -> dict[str, psycopg.Cursor[tuple[Any, ...]]]:
        return {}

    @property
    def has_settings(self) -> bool:
        """Return True if the session has our settings.

        If it has, a transaction need not set them.
        """
        return self.settings == self._held

    def begin(self) -> None:
        """Apply our settings to the transaction that begins now."""
        if not self.has_settings:
            psycopg.Cursor(self).execute(self.settings)

    def hold(self, settings: Mapping[str, str]) -> None:
        """Apply our settings to the session, if no pooler shares it.

        In such a session, statements executed with `prepare=True` are prepared, and no
        others. A pooler is recognised by the process id that it reports, which differs
        from the server's.

        Raises:
            psycopg.Error: the statement failed.
        """
        ours = sql.Literal(self.info.backend_pid)
        is_local = sql.SQL("pg_backend_pid() <> {}").format(ours)
        given = sql.SQL("select pg_backend_pid() = {}, {}").format(
            ours,
            _given(settings, is_local),
        )
        found = psycopg.Cursor(self).execute(given).fetchone()
        is_ours, *_ = found or (False,)

        if is_ours:
            self._held = settings_of_transaction(settings)
            self.prepare_threshold = sys.maxsize

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """Send statements together.

        Outside a transaction they form one, up to a `sync`.
        """
        is_first = self.is_idle
        with super().pipeline() as pipeline:
            if is_first:
                self.begin()
            yield pipeline

    @contextlib.contextmanager
    def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002 # as psycopg has it
    ) -> Iterator[psycopg.Transaction]:
        """Begin a transaction, or a savepoint within one."""
        is_first = self.is_idle
        with super().transaction(savepoint_name, force_rollback) as transaction:
            if is_first:
                self.begin()
            yield transaction


def _with(meanwhile: Callable[[], object], gen: PQGen[RV]) -> PQGen[RV]:
    """Wrap a generator: call `meanwhile` when all is sent and no answer has come."""
    try:
        wants = next(gen)
        while True:
            if wants == Wait.R:
                meanwhile()

            wants = gen.send((yield wants))
    except StopIteration as end:
        return cast("RV", end.value)


def _within(seconds: float, gen: PQGen[RV]) -> PQGen[RV]:
    """Wrap a generator: fail if the server keeps it waiting for longer than this."""
    give_up_at = time.monotonic() + seconds
    try:
        wants = next(gen)
        while True:
            ready = yield wants
            # At each interval without an answer, psycopg sends 0.
            if not ready and time.monotonic() > give_up_at:
                msg = "the server did not answer in time"
                raise psycopg.OperationalError(msg)

            wants = gen.send(ready)
    except StopIteration as end:
        return cast("RV", end.value)


@contextlib.contextmanager
def while_waiting(
    meanwhile: Callable[[], object] | None, conn: OwnConnection
) -> Iterator[None]:
    """Call `meanwhile` whenever the connection waits for the server."""
    conn.meanwhile = meanwhile
    try:
        yield
    finally:
        conn.meanwhile = None


class _UtcLoader(TimestamptzLoader):
    """Loads instants in UTC, whatever the session's time zone."""

    def load(self, data: Buffer) -> datetime:
        # This parser is several times as fast as psycopg's, which reads other date
        # styles and refuses infinity and years that Python does not know.
        try:
            found = datetime.fromisoformat(str(data, "ascii"))
        except ValueError:
            found = super().load(data)
        return found.astimezone(UTC)


class _OwnCursor(psycopg.Cursor[Any]):
    """Runs a statement that is outside a transaction in one that has our settings."""

    def execute(self, *args: Any, **options: Any) -> Self:
        conn: Any = self.connection
        is_bare = conn.has_settings or not conn.is_idle
        with contextlib.nullcontext() if is_bare else conn.pipeline():
            return super().execute(*args, **options)


def connect(url: str, *, name: str = "redrive", **settings: str) -> OwnConnection:
    """Open an autocommit connection that also works behind a transaction pooler.

    This includes PgBouncer in transaction mode, because every pooler keeps these startup
    parameters separate for each client. No statement is prepared: a pooler's session is
    shared, and our functions cache their own plans. `hold` prepares the most frequent
    statements.

    Args:
        url: URL or conninfo.
        name: application_name of the connection.
        settings: settings of each transaction, besides SETTINGS.
    """
    connect_timeout = conninfo_to_dict(url).get("connect_timeout") or CONNECT_SECONDS
    conn = OwnConnection.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        cursor_factory=_OwnCursor,
        # Each host gets this long, so that a standby behind a hanging host is reached.
        connect_timeout=int(connect_timeout),
        application_name=name,
        client_encoding="UTF8",
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=int(CALL_SECONDS * 1000),
    )

    conn.adapters.register_loader("timestamptz", _UtcLoader)
    conn.settings = settings_of_transaction(SETTINGS | settings)

    return conn


def settings_of_transaction(settings: Mapping[str, str]) -> LiteralString:
    """Return the statement that applies settings to one transaction."""
    given = _given(settings, sql.SQL("true"))
    return cast("LiteralString", sql.SQL("select {}").format(given).as_string())


def _given(settings: Mapping[str, str], is_local: sql.Composable) -> sql.Composed:
    calls: list[sql.Composable] = [
        sql.SQL("set_config({}, {}, {})").format(name, value, is_local)
        for name, value in settings.items()
    ]
    if "synchronous_commit" not in settings:
        calls.append(_DURABLE.format(is_local))

    return sql.SQL(", ").join(calls)
