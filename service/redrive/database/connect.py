"""Connections of our own processes, each with a limit on waiting for the server.

A server may stop answering without closing the connection: a frozen host, or a black
hole behind a proxy. A blocking call would then hang forever. Keepalives do not notice
it while the proxy itself is alive.

So every call has a deadline. A watchdog thread shuts the socket of an overdue call,
which then fails as on any cut connection.
"""

import contextlib
import functools
import os
import random
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, LiteralString, Self, cast

import psycopg
from psycopg import sql
from psycopg.abc import RV, Buffer, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.datetime import TimestamptzLoader
from psycopg.waiting import Wait

from redrive.database.refusals import Refusals, is_refusal
from redrive.errors import SettingsError

CALL_SECONDS = 15.0
"""Maximum duration of a call before its connection is given up."""

CONNECT_SECONDS = 10
"""Maximum time to connect to one host, unless the URL sets connect_timeout."""

WATCH_SECONDS = 0.2
FIRST_BACKOFF, YOUNG_BACKOFF, LONGEST_BACKOFF = 0.1, 1.0, 5.0
"""Maximum seconds before the next attempt to reach a lost server.

In order: for the first attempt, early in an outage, and at any time.
"""
YOUNG_SECONDS = 60.0

LENT_SECONDS = 0.02
"""How long a link waits for a lent connection before it opens another."""

QUIET_SECONDS = 60.0
"""How long a link must have been without work before it lends its connection."""

URL_RULE = "it must be a Postgres URL, e.g. postgresql://user@host/database"

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

_refusals = Refusals()
"""Refused logins of this process."""


class Trouble(Enum):
    """Meaning of a database error for the statement that met it."""

    LOST = "the connection is gone, and whether the statement took effect is unknown"
    AGAIN = "the statement was rolled back whole and may be sent again"
    DATA = "something in the statement's values is not acceptable; sending it again cannot help"
    FATAL = "a matter of configuration or a bug"


_MEANING = {
    Trouble.LOST: (
        "08",
        "28",
        "57P",
        "25006",
        "25P03",
    ),  # class 28: the password has changed
    Trouble.AGAIN: ("40", "53", "55P03", "57014"),
    Trouble.DATA: ("22", "23", "54", "P0001"),  # P0001: raised by a user's trigger
}
"""Meaning of the first characters of a SQLSTATE. We cannot recover from any other."""


def trouble(error: psycopg.Error) -> Trouble:
    """Classify an error by its SQLSTATE.

    A cut, refused or crashed connection has none.
    """
    state = error.sqlstate
    if state is not None:
        found = (
            kind for kind, prefixes in _MEANING.items() if state.startswith(prefixes)
        )
        return next(found, Trouble.FATAL)
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return Trouble.LOST
    return Trouble.DATA if isinstance(error, psycopg.DataError) else Trouble.FATAL


_RAISED_IN = re.compile(r"PL/pgSQL function (\S{1,200}\([^)]{0,400}\))")


def refusal(error: psycopg.Error) -> str:
    """Name the constraint or trigger function behind a refusal, without values."""
    diag = error.diag
    said = f"{type(error).__name__} ({error.sqlstate})"
    if diag.constraint_name is not None:
        table = f"{diag.schema_name}.{diag.table_name}"
        return f"{said}, by constraint {diag.constraint_name} of table {table}"
    innermost = _RAISED_IN.match(diag.context or "")
    return f"{said}, in {innermost[1]}" if innermost else said


@dataclass(frozen=True, slots=True)
class Address:
    """Address of the database: a URL, or a file that holds one.

    The file is read again for each connection. If its password changes, as with a
    Secret in a pod, no restart is needed.
    """

    url: str = field(default="", repr=False)
    file: Path | None = None
    variable: str = "REDRIVE_DATABASE_URL"
    """Source of the URL as errors name it: a variable, a field or an option."""
    role: str | None = None
    """Role for SET ROLE. It limits the session to the rights of that role."""

    def connect(self, name: str, **settings: str) -> "OwnConnection":
        """Open a connection.

        Raises:
            SettingsError: the URL cannot be read or parsed.
            psycopg.OperationalError: the server is out of reach or refuses the login.
                It is also raised without asking the server, if the server has just
                refused this login to any connection of this process.
        """
        url, origin = self.read(), (self.file, self.url)
        _refusals.check(origin, url)
        try:
            conn = connect(url, name=name, **settings, **self.role_setting())
        except psycopg.OperationalError as error:
            if is_refusal(error):
                _refusals.refused(origin, url, error)
            raise
        _refusals.accepted(origin)
        return conn

    def role_setting(self) -> dict[str, str]:
        """Return the settings that begin each transaction because of the role."""
        return {"role": self.role} if self.role else {}

    def read(self) -> str:
        """Return the URL or conninfo.

        Raises:
            SettingsError: the URL cannot be read or parsed. The text does not repeat
                it, because it may hold a password.
        """
        if self.file is None:
            return _checked(self.url, self.variable)
        suffix = (
            "_FILE" if self.variable.isupper() else "_file"
        )  # as variables or fields have it
        name = f"{self.variable}{suffix} is {self.file}; it"
        try:
            text = self.file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            msg = f"{name} cannot be read: {why}"
            raise SettingsError(msg) from None
        return _checked(text.strip(), name)

    def origin(self) -> str:
        """Return where the URL comes from, and when it last changed."""
        if self.file is None:
            return f"the URL is {self.variable}, which only a restart changes"
        with contextlib.suppress(OSError):
            changed_at = datetime.fromtimestamp(self.file.stat().st_mtime, UTC)
            return (
                f"the URL is in {self.file}, written {changed_at:%Y-%m-%dT%H:%M:%SZ}"
                " and read again at each try"
            )
        return f"the URL is in {self.file}, which is gone"


def _checked(url: str, name: str) -> str:
    if not url.strip():
        msg = f"{name} is empty; {URL_RULE}"
        raise SettingsError(msg)
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        msg = f"{name} does not parse; {URL_RULE}"
        raise SettingsError(msg) from None
    return url


class CannotLogIn(psycopg.OperationalError):
    """The server refused the login, or the file with the URL cannot be read.

    This error's text may be shown: it holds no address, user or password.
    """

    def __init__(self, why: str, sqlstate: str | None = None) -> None:
        super().__init__(why)
        self.sqlstate = sqlstate


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

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        """Wait for the server; psycopg calls this for everything it does.

        A lost connection is closed here. If its socket fails before libpq has read from
        it, psycopg would leave it open and busy forever.
        """
        used = gen if self.meanwhile is None else _with(self.meanwhile, gen)
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
            self._held = _of_transaction(settings)
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


@contextlib.contextmanager
def doing(
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
        return super().load(data).astimezone(UTC)


class _OwnCursor(psycopg.Cursor[Any]):
    """Runs a statement that is outside a transaction in one that has our settings."""

    def execute(self, *args: Any, **options: Any) -> Self:
        conn: Any = self.connection
        is_bare = conn.has_settings or not conn.is_idle
        with contextlib.nullcontext() if is_bare else conn.pipeline():
            return super().execute(*args, **options)


def connect(url: str, *, name: str = "redrive", **settings: str) -> OwnConnection:
    """Open an autocommit connection that also works behind a transaction pooler.

    This includes PgBouncer in transaction mode: the startup parameters are those that
    every pooler keeps apart by client. No statement is prepared, because a pooler's
    session is shared and our functions cache their own plans. `hold` prepares the most
    frequent statements.
    """
    conn = OwnConnection.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        cursor_factory=_OwnCursor,
        # Each host gets this long, so that a standby behind a hanging host is reached.
        connect_timeout=int(
            conninfo_to_dict(url).get("connect_timeout") or CONNECT_SECONDS
        ),
        application_name=name,
        client_encoding="UTF8",
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=int(CALL_SECONDS * 1000),
    )
    conn.adapters.register_loader("timestamptz", _UtcLoader)
    conn.settings = _of_transaction(SETTINGS | settings)
    return conn


def _of_transaction(settings: Mapping[str, str]) -> LiteralString:
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


class Link:
    """One connection that is opened on first use, and again after it was lost.

    A Watchdog limits every call. The class is not thread-safe: use one link per thread.
    Only `shut`, and the methods that a GuestLink calls, may be called from another
    thread.
    """

    def __init__(self, where: Address | str, name: str, **settings: str) -> None:
        self.where = Address(where) if isinstance(where, str) else where
        self._name = name
        self._settings = settings
        self._begin_with: LiteralString = _of_transaction(self._all_settings())
        self._conn: OwnConnection | None = None
        self._failures = 0
        self._failed_at = self._failing_since = float("-inf")
        self._retry_at = 0.0
        self._turn = threading.Condition()
        self._is_used = self._is_lent = self._was_cut = False
        self._lends_from = 0.0
        self.answered_at = float("-inf")
        self.overdue_at = float("inf")
        self.fault: str | None = None
        """Reason why the login fails at the moment, in words that may be shown."""

    @property
    def failures(self) -> int:
        """Return how many attempts in a row failed to reach the server."""
        return self._failures

    @property
    def retry_at(self) -> float:
        """Return the monotonic instant of the earliest next attempt."""
        return self._retry_at

    @property
    def is_closed(self) -> bool:
        """Return True if there is no connection at the moment."""
        return self._conn is None

    @contextlib.contextmanager
    def use(self, bound: float = CALL_SECONDS) -> Iterator[OwnConnection]:
        """Yield the connection for one call of at most `bound` seconds.

        Raises:
            psycopg.Error: the call failed. A lost connection is dropped.
        """
        self.overdue_at = time.monotonic() + bound
        self._begin()
        try:
            conn = self._current()
            conn.settings = self._begin_with
            yield conn
        except psycopg.Error as error:
            if trouble(error) is Trouble.LOST:
                self.fault = str(error) if isinstance(error, CannotLogIn) else None
                self._failed(time.monotonic())
                self.close()
            raise
        else:
            self._failures = 0
            self.fault = None
            self.answered_at = time.monotonic()
        finally:
            self._is_used = False
            self.overdue_at = float("inf")

    def _all_settings(self) -> dict[str, str]:
        return SETTINGS | self._settings | self.where.role_setting()

    def _current(self) -> OwnConnection:
        if self._was_cut:
            self._was_cut = False
            msg = "the connection was lost while it was lent"
            raise psycopg.OperationalError(msg)
        return (
            self._conn
            if self._conn is not None and not self._conn.closed
            else self._open()
        )

    def _failed(self, now: float) -> None:
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        self._failed_at = now
        # Full jitter: workers that lost their database together must not return
        # together. The exponent is limited too: 2.0 ** 1024 overflows, and an hour's
        # outage has that many failures.
        is_young = now - self._failing_since < YOUNG_SECONDS
        longest = YOUNG_BACKOFF if is_young else LONGEST_BACKOFF
        longest = min(longest, FIRST_BACKOFF * 2.0 ** min(self._failures - 1, 8))
        self._retry_at = now + random.uniform(0.02, longest)

    def server_answered(self, at: float) -> None:
        """Note that the server answered another link, so that this one retries.

        From any thread.
        """
        if at > self._failed_at:
            self._retry_at = 0.0

    # ------------------------------------------------------------------ lending

    def keep(self) -> None:
        """Lend the connection to no link for QUIET_SECONDS, because there is work."""
        self._lends_from = time.monotonic() + QUIET_SECONDS

    def _begin(self) -> None:
        """Wait briefly for a lent connection.

        If the guest hangs, it keeps it and we open another.
        """
        with self._turn:
            if not self._turn.wait_for(
                lambda: self._conn or not self._is_lent, LENT_SECONDS
            ):
                self.keep()
            self._is_used = True

    def lend(self, *, anyway: bool = False) -> OwnConnection | None:
        """Lend our connection if it is quiet.

        With `anyway`, lend it even if it is merely not in use.
        """
        with self._turn:
            conn = self._conn
            is_quiet = anyway or time.monotonic() >= self._lends_from
            # A closed connection is not lent: the guest would reopen it with its own
            # settings.
            if conn is None or conn.closed or self._is_used or not is_quiet:
                return None
            self._conn, self._is_lent = None, True
            return conn

    def take_back(self, conn: OwnConnection | None) -> bool:
        """Take the connection back; None if it was lost.

        If the guest lost the connection, this link's next call raises that error,
        because the link's last writes may be lost with the server. Returns False if the
        link has another connection by now.
        """
        with self._turn:
            self._is_lent, self._was_cut = False, self._was_cut or conn is None
            is_wanted = self._conn is None and not self._is_used
            if is_wanted:
                self._conn = conn
            self._turn.notify()
            return is_wanted

    # ------------------------------------------------------------------ opening and
    # closing

    def _open(self) -> OwnConnection:
        try:
            conn = self.where.connect(self._name, **self._settings)
        except SettingsError as error:  # the file may be mid-write
            raise CannotLogIn(str(error)) from None
        except psycopg.OperationalError as error:
            if not is_refusal(error):
                raise
            why = f"the server refused the login; {self.where.origin()}"
            raise CannotLogIn(why, sqlstate="28P01") from None
        self._conn = conn
        conn.hold(self._all_settings())
        return conn

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(Exception):
                conn.close()

    def shut(self) -> None:
        """Shut the socket under a call that hangs. May be called from any thread."""
        conn = self._conn
        with contextlib.suppress(Exception):
            if conn is not None:
                with socket.socket(fileno=os.dup(conn.fileno())) as sock:
                    sock.shutdown(socket.SHUT_RDWR)


class GuestLink(Link):
    """Link that borrows another link's connection while it is quiet, or opens its own.

    Neither link waits long for the other. The guest does not, because a connection in
    use is not lent. The host does not, because it opens another connection and leaves
    the old one to the guest.
    """

    def __init__(self, host: Link, name: str, **settings: str) -> None:
        super().__init__(host.where, name, **settings)
        self._host = host

    @contextlib.contextmanager
    def use(self, bound: float = CALL_SECONDS) -> Iterator[OwnConnection]:
        """Yield the connection for one call, like `Link.use`."""
        # If the server accepts no new login, borrow the host's connection even if it is
        # not quiet.
        lent = self._host.lend(anyway=self.failures > 0)
        if lent is not None:
            self.close()
            self._conn = lent
        try:
            with super().use(bound) as conn:
                yield conn
        finally:
            if lent is not None and self._host.take_back(self._conn):
                self._conn = None


class Watchdog(threading.Thread):
    """Thread that never waits for the server.

    It shuts links whose call is overdue. It tells all links when the server has
    answered one of them, and runs other checks.
    """

    def __init__(
        self, *links: Link, checks: Sequence[Callable[[float], None]] = ()
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._links = links
        self._checks = checks

    def run(self) -> None:
        """Check every WATCH_SECONDS, until the process ends."""
        while True:
            time.sleep(WATCH_SECONDS)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Run all checks once."""
        answered_at = max((link.answered_at for link in self._links), default=now)
        for link in self._links:
            if link.overdue_at < now:
                link.shut()
            link.server_answered(answered_at)
        for check in self._checks:
            check(now)
