"""Connections to Postgres: a login for each role, whose rights Postgres enforces.

Pages and previews run in read-only transactions, so they change nothing, even if their
login could.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from weakref import WeakValueDictionary

import psycopg

from redrive.database.connections.address import Address
from redrive.database.connections.connect import OwnConnection
from redrive.database.schema import migrate
from redrive.extras.console.security.access import Role
from redrive.verbs.refusal import Refused

MOST_CONNECTIONS = 8
"""Connections of one role for reading, and as many for writing."""
MOST_OF_ONE, MOST_ASKED = 4, 8
"""Connections of one person, and requests that use or wait for them.

Each request that waits holds a thread, which others need.
"""
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


class Logins:
    """A few connections for each role, kept open between requests."""

    def __init__(self, addresses: Mapping[Role, Address]) -> None:
        self._addresses = addresses
        self._away_until = 0.0
        self._idle: defaultdict[Key, list[OwnConnection]] = defaultdict(list)

        self._lock = threading.Lock()
        self._rooms = WeakValueDictionary[object, threading.Semaphore]()

    @property
    def roles(self) -> frozenset[Role]:
        """Return the roles that have a login."""
        return frozenset(self._addresses)

    def reading(
        self, role: Role, person: str = ""
    ) -> AbstractContextManager[OwnConnection]:
        """Return a connection whose transactions are read-only.

        Args:
            person: name of the user for whom it is; "" for the console itself.

        Raises:
            Refused: all connections of the role or of the person are in use.
            SchemaError: the schema is missing, too old or too new.
            psycopg.Error: the database is out of reach.
        """
        return self._use((role, True), person)

    def changing(
        self, role: Role, person: str = ""
    ) -> AbstractContextManager[OwnConnection]:
        """Return a connection that may write. Raises what `reading` raises."""
        return self._use((role, False), person)

    @contextmanager
    def _use(self, key: Key, person: str) -> Iterator[OwnConnection]:
        with ExitStack() as stack:
            if person:
                self._take(stack, ("asked", person), MOST_ASKED, seconds=0)
                self._take(stack, person, MOST_OF_ONE)

            self._take(stack, key, MOST_CONNECTIONS)
            conn = self._open(key)
            stack.callback(self._keep, key, conn)

            yield conn

    def _take(
        self, stack: ExitStack, of: object, most: int, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Take one of some places until the stack ends, if one is free in time."""
        # A request that waits or is inside keeps the room, and nothing else does.
        with self._lock:
            room = self._rooms.setdefault(of, threading.Semaphore(most))

        if not room.acquire(timeout=seconds):
            fault = "too many requests run at once; try again in a moment"
            raise Refused(503, fault)

        stack.callback(room.release)

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
            if time.monotonic() < self._away_until:
                msg = "the database did not answer a moment ago"
                raise psycopg.OperationalError(msg)

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
        role, reads = key
        settings = {"statement_timeout": STATEMENT_SECONDS}
        if reads:
            settings["transaction_read_only"] = "on"

        with self._noting_hangs():
            name = f"redrive console {role.word}"
            conn = self._addresses[role].connect(name, **settings)

        conn.patience = READ_SECONDS
        migrate.require_or_close(conn)

        return conn

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
