"""Links to the database, each with a limit on waiting for the server.

A server may stop answering without closing the connection: a frozen host, or a black
hole behind a proxy. A blocking call would then hang forever. Keepalives do not notice
it while the proxy itself is alive.

So every call has a deadline. A watchdog thread shuts the socket of an overdue call,
which then fails as on any cut connection.
"""

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import LiteralString

import psycopg

from redrive.database.connections.address import Address, CannotLogIn
from redrive.database.connections.connect import (
    CALL_SECONDS,
    SETTINGS,
    OwnConnection,
    settings_of_transaction,
)
from redrive.database.connections.refusals import is_refusal
from redrive.database.connections.trouble import Trouble, refusal, trouble
from redrive.errors import SettingsError

WATCH_SECONDS = 0.2
FIRST_BACKOFF, YOUNG_BACKOFF, LONGEST_BACKOFF = 0.1, 1.0, 5.0
"""Maximum seconds before the next attempt to reach a lost server.

In order: for the first attempt, early in an outage, and at any time.
"""
YOUNG_SECONDS = 60.0

LENT_SECONDS = 0.02
"""How long a link waits for a lent connection before it opens another."""

BORROW_SECONDS = 1.0
"""How long a guest that shares its host's connection waits until it is not in use.

A claim of the host may wait for its turn almost as long.
"""

QUIET_SECONDS = 60.0
"""How long a link must have been without work before it lends its connection."""


class _State(Enum):
    """State of a link's connection."""

    FREE = "no call uses it, and it may be lent"
    IN_USE = "a call uses it"
    LENT = "a guest uses it"
    LOST = "a guest lost it, and the next call raises that error"


class Backoff:
    """Waits between the attempts to reach a lost server."""

    def __init__(self) -> None:
        self.failures = 0
        self.retry_at = 0.0
        self._failed_at = self._failing_since = float("-inf")

    def failed(self, now: float) -> None:
        """Note a failure, and choose when the next attempt may be made."""
        if not self.failures:
            self._failing_since = now

        self.failures += 1
        self._failed_at = now
        # Full jitter: workers that lost their database together must not return
        # together.
        self.retry_at = now + random.uniform(0.02, self._longest(now))

    def _longest(self, now: float) -> float:
        is_young = now - self._failing_since < YOUNG_SECONDS
        longest = YOUNG_BACKOFF if is_young else LONGEST_BACKOFF
        # 2.0 ** 1024 overflows, and an hour's outage has that many failures.
        return min(longest, FIRST_BACKOFF * 2.0 ** min(self.failures - 1, 8))

    def server_answered(self, at: float) -> None:
        """Allow an attempt at once if the server has answered since the failure."""
        if at > self._failed_at:
            self.retry_at = 0.0


class Link:
    """One connection that is opened on first use, and again after it was lost.

    A Watchdog limits every call. The class is not thread-safe: use one link per thread.
    Only `shut`, `server_answered`, and the methods that a GuestLink calls, may be
    called from another thread.

    Args:
        where: address of the database.
        name: application_name of the connection, as pg_stat_activity shows it.
        settings: settings of each transaction, besides the usual ones.
    """

    def __init__(self, where: Address | str, name: str, **settings: str) -> None:
        self.where = Address(where) if isinstance(where, str) else where
        self._name = name
        self._settings = settings
        self._begin_with: LiteralString = settings_of_transaction(self._all_settings())

        self._conn: OwnConnection | None = None
        self._backoff = Backoff()
        self._turn = threading.Condition()
        self._state = _State.FREE
        self._lends_from = 0.0

        self.answered_at = float("-inf")
        self.overdue_at = float("inf")
        self.fault: str | None = None
        """Reason why calls fail at the moment, in words that may be shown."""

    @property
    def failures(self) -> int:
        """Return how many attempts in a row failed to reach the server."""
        return self._backoff.failures

    @property
    def retry_at(self) -> float:
        """Return the monotonic instant of the earliest next attempt."""
        return self._backoff.retry_at

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
        try:
            self._begin()
            conn = self._current()
            # The last user of the connection may be another link, with other settings.
            conn.settings = self._begin_with
            yield conn
        except psycopg.Error as error:
            if trouble(error) is Trouble.LOST:
                self._lost(error)

            raise
        else:
            self._backoff.failures = 0
            self.fault = None
            self.answered_at = time.monotonic()
        finally:
            self._end()
            self.overdue_at = float("inf")

    def _all_settings(self) -> dict[str, str]:
        return SETTINGS | self._settings | self.where.role_setting()

    def _current(self) -> OwnConnection:
        conn = self._conn
        if conn is None or conn.closed:
            return self._open()
        return conn

    def _lost(self, error: psycopg.Error) -> None:
        self.fault = refusal(error)
        self._backoff.failed(time.monotonic())
        self.close()

    def trouble(self) -> str | None:
        """Return the text of /readyz about this link; None if it works."""
        if not self.failures:
            return None
        reason = f": {self.fault}" if self.fault else ""
        return f"{self.failures} calls failed in a row{reason}"

    def server_answered(self, at: float) -> None:
        """Note that the server answered another link, so that this one retries."""
        self._backoff.server_answered(at)

    # ------------------------------------------------------------------ lending

    def keep(self) -> None:
        """Lend the connection to no link for QUIET_SECONDS, because there is work."""
        self._lends_from = time.monotonic() + QUIET_SECONDS

    def _begin(self) -> None:
        """Wait briefly for a lent connection.

        If the guest hangs, it keeps it and we open another.

        Raises:
            psycopg.OperationalError: a guest lost the connection.
        """
        with self._turn:
            if not self._turn.wait_for(
                lambda: self._state is not _State.LENT, LENT_SECONDS
            ):
                # The guest keeps that connection, so the new one is not lent soon.
                self.keep()

            was_lost = self._state is _State.LOST
            self._state = _State.IN_USE

        if was_lost:
            msg = "the connection was lost while it was lent"
            raise psycopg.OperationalError(msg)

    def _end(self) -> None:
        with self._turn:
            # A loss during the call is one of the connection before, and still counts.
            if self._state is _State.IN_USE:
                self._state = _State.FREE
                self._turn.notify()

    def lend(self, *, anyway: bool = False, wait: float = 0.0) -> OwnConnection | None:
        """Lend our connection if it is quiet.

        With `anyway`, lend it even if it is merely not in use, or within `wait` seconds
        no longer in use.
        """
        with self._turn:
            if anyway and wait and self._conn is not None:
                self._turn.wait_for(lambda: self._state is not _State.IN_USE, wait)

            conn = self._conn
            is_quiet = anyway or time.monotonic() >= self._lends_from
            if self._state is not _State.FREE or not is_quiet:
                return None
            # A closed connection is not lent: the guest would reopen it with its own
            # settings.
            if conn is None or conn.closed:
                return None

            self._conn = None
            self._state = _State.LENT

            return conn

    def take_back(self, conn: OwnConnection | None) -> bool:
        """Take the connection back; None if it was lost.

        If the guest lost the connection, this link's next call raises that error,
        because the link's last writes may be lost with the server. Returns False if the
        link has another connection by now.
        """
        with self._turn:
            is_unused = self._state in {_State.FREE, _State.LENT}
            is_wanted = conn is not None and self._conn is None and is_unused
            if is_wanted:
                self._conn = conn
                self._state = _State.FREE
            elif conn is None:
                self._state = _State.LOST

            self._turn.notify()
            return is_wanted

    # -------------------------------------------------------- opening and closing

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
        # The link's own thread may close the connection at any moment.
        with contextlib.suppress(Exception):
            if conn is not None:
                # A duplicate: closing this object must leave libpq's descriptor open.
                with socket.socket(fileno=os.dup(conn.fileno())) as sock:
                    sock.shutdown(socket.SHUT_RDWR)


class GuestLink(Link):
    """Link that borrows another link's connection while it is quiet, or opens its own.

    Neither link waits long for the other. The guest does not, because a connection in
    use is not lent. The host does not, because it opens another connection and leaves
    the old one to the guest.

    Attributes:
        shares: True: its calls are short, so it borrows the connection of a host with
            work, too.
    """

    shares = False

    def __init__(self, host: Link, name: str, **settings: str) -> None:
        super().__init__(host.where, name, **settings)
        self._host = host

    @contextlib.contextmanager
    def use(self, bound: float = CALL_SECONDS) -> Iterator[OwnConnection]:
        """Yield the connection for one call, like `Link.use`."""
        # If the server accepts no new login, borrow the host's connection even if it is
        # not quiet.
        lent = (
            self._host.lend(anyway=True, wait=BORROW_SECONDS)
            if self.shares
            else self._host.lend(anyway=self.failures > 0)
        )
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
