"""Connections of our own processes, each with a bound on how long it may wait for the server.

A server that stops answering without closing the connection (a frozen host, a black hole behind a
proxy) would hold a blocking call for ever: keepalives do not see it when the proxy itself is alive.
So every call runs under a deadline, and a watchdog thread shuts the socket of a call that is
overdue; the call then fails like any cut connection.
"""

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from redrive.errors import SettingsError

CALL_SECONDS = 15.0
"""How long a call may take before its connection is given up."""

CONNECT_SECONDS = 10
"""How long one host may take to let us in, where the URL does not say (connect_timeout)."""

WATCH_SECONDS = 0.2
FIRST_BACKOFF, LONGEST_BACKOFF = 0.2, 5.0
"""Seconds until a lost server is tried again, at most; the bound doubles with each failure."""

URL_RULE = "it must be a Postgres URL, e.g. postgresql://user@host/database"

SESSION_SETTINGS = {
    "statement_timeout": "12s",
    "lock_timeout": "8s",
    "idle_in_transaction_session_timeout": "10s",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "client_encoding": "UTF8",
    "jit": "off",
}


class Trouble(Enum):
    """What an error of the database means for the statement that met it."""

    LOST = "the connection is gone, and whether the statement took effect is unknown"
    AGAIN = "the statement was rolled back whole and may be sent again"
    DATA = "something in the statement's values is not acceptable; sending it again cannot help"
    FATAL = "a matter of configuration or a bug"


_MEANING = {
    Trouble.LOST: ("08", "57P", "25006", "25P03"),
    Trouble.AGAIN: ("40", "53", "55P03", "57014"),
    Trouble.DATA: ("22", "23", "54"),
}
"""What the beginning of a SQLSTATE means; of the rest nothing can be mended here."""


def trouble(error: psycopg.Error) -> Trouble:
    """Classify by SQLSTATE; a cut, refused or crashed connection has none."""
    state = error.sqlstate
    if state is not None:
        found = (kind for kind, prefixes in _MEANING.items() if state.startswith(prefixes))
        return next(found, Trouble.FATAL)
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return Trouble.LOST
    return Trouble.DATA if isinstance(error, psycopg.DataError) else Trouble.FATAL


def check_conninfo(url: str) -> str:
    """Return a libpq URL or conninfo that parses.

    Raises:
        SettingsError: it does not. The text does not repeat the URL, which may hold a password.
    """
    if not url.strip():
        msg = f"REDRIVE_DATABASE_URL is empty; {URL_RULE}"
        raise SettingsError(msg)
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        msg = f"REDRIVE_DATABASE_URL does not parse; {URL_RULE}"
        raise SettingsError(msg) from None
    return url


def connect(
    url: str, *, name: str = "redrive", **settings: str
) -> psycopg.Connection[tuple[Any, ...]]:
    """Open an autocommit connection that works through PgBouncer in transaction mode too.

    Statements are functions with plans of their own, so nothing is prepared on the client. The
    settings are sent as statements and not as startup options, which PgBouncer refuses.
    """
    conn = _open(url, name)
    _set_up(conn, settings)
    return conn


def _open(url: str, name: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        # for each host in turn: with several, a standby is waiting behind one that hangs
        connect_timeout=int(conninfo_to_dict(url).get("connect_timeout") or CONNECT_SECONDS),
        application_name=name,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=int(CALL_SECONDS * 1000),
    )


def _set_up(conn: psycopg.Connection[tuple[Any, ...]], settings: Mapping[str, str]) -> None:
    chosen = SESSION_SETTINGS | dict(settings)
    conn.execute(
        "select set_config(n, v, false) from unnest(%s::text[], %s::text[]) as s(n, v)",
        (list(chosen), list(chosen.values())),
    )


class Link:
    """One connection that comes back: opened on first use, and again after it was lost.

    A Watchdog bounds every call. Not thread-safe: one thread, one link. Only `shut` may come from
    another.
    """

    def __init__(self, url: str, name: str, **settings: str) -> None:
        self._url = url
        self._name = name
        self._settings = settings
        self._conn: psycopg.Connection[tuple[Any, ...]] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self.overdue_at = float("inf")

    @property
    def failures(self) -> int:
        """Attempts to reach the server that failed in a row."""
        return self._failures

    @property
    def retry_at(self) -> float:
        """Monotonic instant before which nobody should try again."""
        return self._retry_at

    @contextlib.contextmanager
    def use(self, bound: float = CALL_SECONDS) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """The connection, for one call of at most `bound` seconds.

        Raises:
            psycopg.Error: that of the call. A connection that was lost is dropped.
        """
        self.overdue_at = time.monotonic() + bound
        try:
            yield self._conn if self._conn is not None and not self._conn.closed else self._open()
        except psycopg.Error as error:
            if trouble(error) is Trouble.LOST:
                self._failures += 1
                self._retry_at = time.monotonic() + self._backoff()
                self.close()
            raise
        else:
            self._failures = 0
        finally:
            self.overdue_at = float("inf")

    def _backoff(self) -> float:
        # Full jitter: workers that lost their database together must not come back together. The
        # power is bounded too: 2.0 ** 1024 overflows, and in an hour's outage there are that many.
        longest = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(self._failures, 8))
        return random.uniform(0.05, longest)

    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        # Known to `shut` before its first statement: a server may accept a connection and never
        # answer on it.
        conn = self._conn = _open(self._url, self._name)
        try:
            _set_up(conn, self._settings)
        except psycopg.Error:
            self.close()
            raise
        return conn

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(Exception):
                conn.close()

    def shut(self) -> None:
        """Break the socket under a call that hangs; from any thread."""
        conn = self._conn
        with contextlib.suppress(Exception):
            if conn is not None:
                with socket.socket(fileno=os.dup(conn.fileno())) as sock:
                    sock.shutdown(socket.SHUT_RDWR)


class Watchdog(threading.Thread):
    """The one thread that never waits: shuts links whose call is overdue, runs other checks."""

    def __init__(self, *links: Link, checks: Sequence[Callable[[float], None]] = ()) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._links = links
        self._checks = checks

    def run(self) -> None:
        """Look every WATCH_SECONDS, until the process ends."""
        while True:
            time.sleep(WATCH_SECONDS)
            now = time.monotonic()
            for link in self._links:
                if link.overdue_at < now:
                    link.shut()
            for check in self._checks:
                check(now)
