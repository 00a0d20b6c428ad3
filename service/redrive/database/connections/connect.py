"""Connections of our own processes, which also work behind a pooler."""

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, LiteralString, Self, cast

import psycopg
from psycopg import sql
from psycopg.abc import RV, Buffer, PQGen
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
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
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
    "exit_on_error": "off",
    "restrict_nonsystem_relation_kind": "",
    # These change the text of results, or how text is read.
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    # These change results.
    "gin_fuzzy_search_limit": "0",
    "transform_null_equals": "off",
    "jit": "off",
    # only a hint behind a pooler: applies to the next transaction
    "default_transaction_isolation": "read committed",
}
"""Settings of each of our transactions, whatever the database or the role has set."""

_NOT_EVERYWHERE = {"transaction_timeout", "restrict_nonsystem_relation_kind"}
"""Settings that older servers do not have."""

_SET = sql.SQL("set_config({}, {}, {})")
_SET_IF_KNOWN = sql.SQL(
    "case when current_setting({0}, true) is not null then set_config({0}, {1}, {2}) end"
)
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
        used = gen if self.meanwhile is None else _with(self.meanwhile, gen)

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
            ours, _given(settings, is_local)
        )
        is_ours, *_ = psycopg.Cursor(self).execute(given).fetchone() or (False,)

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


class _UtcLoader(Loader):
    """Loads instants in UTC.

    psycopg's own loaders go by what the session reports after the transaction, when our
    settings may be gone.
    """

    def load(self, data: Buffer) -> datetime:
        text = str(data, "ascii")
        try:
            return datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError):
            msg = f"Python has no instant {text}"
            raise psycopg.DataError(msg) from None


class _TimestampLoader(Loader):
    def load(self, data: Buffer) -> datetime:
        return datetime.fromisoformat(str(data, "ascii"))


class _DateLoader(Loader):
    def load(self, data: Buffer) -> date:
        return date.fromisoformat(str(data, "ascii"))


UNREADABLE = "$unreadable"
"""Field of what stands for a stored value that Python cannot read: why."""

_MOST_DIGITS = 310
_MOST_LEVELS = 100
_FEW_CONTAINERS = 200


class _JsonLoader(Loader):
    """Loads any JSON that Postgres has stored, so that no row ends a reader.

    jsonb holds numbers of any length, and more levels than Python reads and writes.
    """

    def load(self, data: Buffer) -> Any:
        text = bytes(data)
        try:
            found = json.loads(text)
        except RecursionError:
            return {UNREADABLE: "it is nested too deeply"}
        except ValueError:
            found = _with_long_numbers(text)

        # Redaction and output need more frames for each level than this.
        if text.count(b"{") + text.count(b"[") > _FEW_CONTAINERS and _is_deep(found):
            return {UNREADABLE: "it is nested too deeply"}

        return found


def _with_long_numbers(text: bytes) -> Any:
    """Read JSON; an integer that is longer than any double becomes a text."""

    def integer(digits: str) -> int | str:
        return int(digits) if len(digits) <= _MOST_DIGITS else digits

    try:
        return json.loads(text, parse_int=integer)
    except RecursionError:
        return {UNREADABLE: "it is nested too deeply"}


def _is_deep(found: Any) -> bool:
    level: list[Any] = [found]
    for _ in range(_MOST_LEVELS):
        level = [inner for value in level for inner in _contents(value)]
        if not level:
            return False

    return True


def _contents(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return cast("dict[str, Any]", value).values()
        case list():
            return cast("list[Any]", value)
        case _:
            return ()


_LOADERS = {
    "json": _JsonLoader,
    "jsonb": _JsonLoader,
    "timestamptz": _UtcLoader,
    "timestamp": _TimestampLoader,
    "date": _DateLoader,
}


class _OwnCursor(psycopg.Cursor[Any]):
    """Runs a statement that is outside a transaction in one that has our settings."""

    def execute(self, *args: Any, **options: Any) -> Self:
        conn: Any = self.connection
        is_bare = conn.has_settings or not conn.is_idle
        with contextlib.nullcontext() if is_bare else conn.pipeline():
            return super().execute(*args, **options)


def connect(url: str, *, name: str = "redrive", **settings: str) -> OwnConnection:
    """Open an autocommit connection that also works behind a transaction pooler.

    This includes PgBouncer in transaction mode, because every pooler keeps these
    startup parameters separate for each client. No statement is prepared: a pooler's
    session is shared, and our functions cache their own plans. `hold` prepares the most
    frequent statements.

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

    for type_name, loader in _LOADERS.items():
        conn.adapters.register_loader(type_name, loader)

    conn.settings = settings_of_transaction(SETTINGS | settings)

    return conn


def settings_of_transaction(settings: Mapping[str, str]) -> LiteralString:
    """Return the statement that applies settings to one transaction."""
    given = _given(settings, sql.SQL("true"))
    return cast("LiteralString", sql.SQL("select {}").format(given).as_string())


def _given(settings: Mapping[str, str], is_local: sql.Composable) -> sql.Composed:
    calls: list[sql.Composable] = [
        (_SET_IF_KNOWN if name in _NOT_EVERYWHERE else _SET).format(
            name, value, is_local
        )
        for name, value in settings.items()
    ]
    if "synchronous_commit" not in settings:
        calls.append(_DURABLE.format(is_local))

    return sql.SQL(", ").join(calls)
