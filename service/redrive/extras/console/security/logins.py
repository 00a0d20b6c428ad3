"""Connections to Postgres: a login for each role, whose rights Postgres enforces.

Pages and previews run in read-only transactions, so they change nothing, even if their
login could.
"""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg

from redrive.database.connections.address import Address
from redrive.database.connections.connect import OwnConnection
from redrive.database.schema import migrate
from redrive.extras.console.security.access import Role

MOST_CONNECTIONS = 8
"""Connections of one role for reading, and as many for writing."""
PATIENCE_SECONDS = 5.0
STATEMENT_SECONDS = "8s"
READ_SECONDS, CHANGE_SECONDS = 10.0, 70.0
"""Maximum wait for a statement that reads, and for one that changes something.

They are longer than every statement timeout, which a frozen server does not apply.
"""
CHECK_SECONDS = 3.0
"""Maximum wait for an idle connection to answer."""
HANGS_SECONDS, AWAY_SECONDS = 2.0, 5.0
"""If the database fails to answer for HANGS_SECONDS, refuse requests for AWAY_SECONDS.

Each attempt holds a thread. One cell that hangs must not use up the threads of others.
"""

Key = tuple[Role, bool]
"""A role, and True if the connection only reads."""


class Crowded(Exception):
    """All connections of a role are in use."""


class Logins:
    """A few connections for each role, kept open between requests."""

    def __init__(self, addresses: Mapping[Role, Address]) -> None:
        self._addresses = addresses
        self._away_until = 0.0
        self._idle: defaultdict[Key, list[OwnConnection]] = defaultdict(list)

        keys = itertools.product(addresses, (True, False))
        self._room = {key: threading.BoundedSemaphore(MOST_CONNECTIONS) for key in keys}

    @property
    def roles(self) -> frozenset[Role]:
        """Return the roles that have a login."""
        return frozenset(self._addresses)

    @contextmanager
    def reading(self, role: Role) -> Iterator[OwnConnection]:
        """Yield a connection whose transactions are read-only.

        Raises:
            Crowded: all connections are in use.
            SchemaError: the schema is missing, too old or too new.
            psycopg.Error: the database is out of reach.
        """
        with self._use((role, True)) as conn:
            yield conn

    @contextmanager
    def changing(self, role: Role) -> Iterator[OwnConnection]:
        """Yield a connection that may write. Raises what `reading` raises."""
        with self._use((role, False)) as conn:
            yield conn

    @contextmanager
    def _use(self, key: Key) -> Iterator[OwnConnection]:
        room = self._room[key]
        if not room.acquire(timeout=PATIENCE_SECONDS):
            raise Crowded

        try:
            conn = self._open(key)
            try:
                yield conn
            finally:
                self._keep(key, conn)
        finally:
            room.release()

    def _keep(self, key: Key, conn: OwnConnection) -> None:
        """Keep a connection for the next request, unless a statement broke it."""
        if conn.closed or not conn.is_idle:
            conn.close()
        else:
            self._idle[key].append(conn)

    def _open(self, key: Key) -> OwnConnection:
        """Return an idle connection that answers, or a new one."""
        conn = self._idle_one(key) or self._new(key)
        _, reads = key
        conn.patience = READ_SECONDS if reads else CHANGE_SECONDS

        return conn

    def _idle_one(self, key: Key) -> OwnConnection | None:
        while True:
            self._refuse_if_away()

            try:
                conn = self._idle[key].pop()
            except IndexError:  # another thread may have taken the last one
                return None

            conn.patience = CHECK_SECONDS

            try:
                with self._noting_hangs():
                    conn.execute("select")
            except psycopg.Error:  # for example, after a restart of the server
                conn.close()
            else:
                return conn

    def _new(self, key: Key) -> OwnConnection:
        with self._noting_hangs():
            conn = self._connect(*key)

        conn.patience = READ_SECONDS
        migrate.require_or_close(conn)

        return conn

    def _connect(self, role: Role, reads: bool) -> OwnConnection:  # noqa: FBT001 # a key
        settings = {"statement_timeout": STATEMENT_SECONDS}
        if reads:
            settings["transaction_read_only"] = "on"

        return self._addresses[role].connect(f"redrive console {role.word}", **settings)

    def _refuse_if_away(self) -> None:
        if time.monotonic() < self._away_until:
            msg = "the database did not answer a moment ago"
            raise psycopg.OperationalError(msg)

    @contextmanager
    def _noting_hangs(self) -> Iterator[None]:
        """Note that the database is away if a call fails after a long time."""
        began = time.monotonic()

        try:
            yield
        except psycopg.OperationalError:
            now = time.monotonic()
            # A connection that is refused at once holds no thread for long.
            if now - began > HANGS_SECONDS:
                self._away_until = now + AWAY_SECONDS

            raise

    def close(self) -> None:
        """Close the idle connections."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()
