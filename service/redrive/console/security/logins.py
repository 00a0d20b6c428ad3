"""Connections to Postgres: a login for each role, so that Postgres enforces what a role may do.

What only reads runs in transactions that Postgres knows to be read-only, whatever the login could
do: no page and no preview changes anything.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg

from redrive.console.security.access import Role
from redrive.database import migrate
from redrive.database.connect import Address, OwnConnection

MOST_CONNECTIONS = 8
"""Of one role that read, and as many that change something."""
PATIENCE_SECONDS = 5.0
STATEMENT_SECONDS = "8s"
HANGS_SECONDS, AWAY_SECONDS = 2.0, 5.0
"""Where connecting failed after so long, others are refused for so long: each would hold a thread
meanwhile, and of several databases one that hangs must not take those of the others."""

Key = tuple[Role, bool]


class Crowded(Exception):
    """All connections of a role are in use."""


class Logins:
    """A few connections for each role, kept open between requests."""

    def __init__(self, addresses: Mapping[Role, Address]) -> None:
        self._addresses = addresses
        self._away_until = 0.0
        self._idle: defaultdict[Key, list[OwnConnection]] = defaultdict(list)
        self._room = {
            (role, reads): threading.BoundedSemaphore(MOST_CONNECTIONS)
            for role in addresses
            for reads in (True, False)
        }

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that have a login."""
        return frozenset(self._addresses)

    @contextmanager
    def reading(self, role: Role) -> Iterator[OwnConnection]:
        """A connection whose transactions are read-only.

        Raises:
            Crowded: there is none free.
            SchemaError: the schema is missing, too old or too new.
            psycopg.Error: the database is out of reach.
        """
        with self._use((role, True)) as conn:
            yield conn

    @contextmanager
    def changing(self, role: Role) -> Iterator[OwnConnection]:
        """A connection that may change what the role's login may. Raises as `reading`."""
        with self._use((role, False)) as conn:
            yield conn

    @contextmanager
    def _use(self, key: Key) -> Iterator[OwnConnection]:
        if not self._room[key].acquire(timeout=PATIENCE_SECONDS):
            raise Crowded
        try:
            conn = self._open(key)
            try:
                yield conn
            finally:
                if conn.closed or not conn.is_idle:  # e.g. cut under a statement
                    conn.close()
                else:
                    self._idle[key].append(conn)
        finally:
            self._room[key].release()

    def _open(self, key: Key) -> OwnConnection:
        """One that answers: the server may have been restarted since it was used."""
        while self._idle[key]:
            conn = self._idle[key].pop()
            try:
                conn.execute("select")
            except psycopg.Error:
                conn.close()
            else:
                return conn
        role, reads = key
        settings = {"transaction_read_only": "on"} if reads else {}
        conn = self._connect(role, settings | {"statement_timeout": STATEMENT_SECONDS})
        try:
            migrate.require(conn)
        except BaseException:
            conn.close()
            raise
        return conn

    def _connect(self, role: Role, settings: Mapping[str, str]) -> OwnConnection:
        began = time.monotonic()
        if began < self._away_until:
            msg = "the database did not answer a moment ago"
            raise psycopg.OperationalError(msg)
        try:
            return self._addresses[role].connect(f"redrive console {role.word}", **settings)
        except psycopg.OperationalError:
            now = time.monotonic()
            if now - began > HANGS_SECONDS:
                self._away_until = now + AWAY_SECONDS
            raise

    def close(self) -> None:
        """Close those that nobody uses."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()
