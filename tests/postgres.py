"""The Postgres of the tests: a server per process and version, and databases cloned from a migrated
template.
"""

import contextlib
import fcntl
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from redrive.database.connections.connect import SETTINGS as OWN_SETTINGS
from redrive.database.connections.connect import OwnConnection
from redrive.database.embedded import EmbeddedPostgres, free_port, guarded
from redrive.database.schema.migrate import migrate

Connection = OwnConnection

CHOICE = os.environ.get("REDRIVE_TEST_POSTGRES", "embedded")
"""Which server; conftest.py has the values."""

IS_DEBIAN = CHOICE.startswith("debian")

DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian and Ubuntu keep a directory for each version of Postgres that is installed."""

VERSIONS = (16, 18)
"""What the embedded binaries bring: the oldest of them and the newest."""

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",  # so that WAL can be counted
    "autovacuum": "off",  # so that tuples and buffers can be counted
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "shared_buffers": "256MB",
    "max_connections": "200",
}

WITH_JIT = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "all",  # also the statements inside of functions
    "pg_stat_statements.max": "20000",
}
"""What a server needs so that tests see which statements it compiled."""

PATIENT = {
    "search_path": "public",  # tests make tables of their own
    "jit": "on",  # users have it on: our functions must not depend on their callers for it
    # a busy machine may stand still for longer than a worker would wait
    "statement_timeout": "120s",
    "lock_timeout": "60s",
    "idle_in_transaction_session_timeout": "120s",
}
"""What is otherwise in the sessions of tests."""

TEMPLATE = "redrive_test_template"
"""The template of a server that was made for several processes."""

VACUUM = """
    select 'vacuum (full, freeze) ' || string_agg(oid::regclass::text, ', ')
    from pg_class where relkind = 'r' and not relisshared
    and relnamespace in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
"""
"""Makes the statement that leaves nothing dead in the catalogs, and no maps of free space."""

ROOM = 8 << 30
"""Bytes that must be free in memory for the files of a server."""


def connect(url: str, **settings: str) -> Connection:
    """Open a session with what our own processes set in their transactions, and more patience."""
    conn = OwnConnection.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        application_name="test",
        client_encoding="UTF8",
    )
    chosen = OWN_SETTINGS | PATIENT | settings
    with contextlib.ExitStack() as undo:
        undo.callback(conn.close)
        conn.execute(
            "select set_config(n, v, false) from unnest(%s::text[], %s::text[]) as s(n, v)"
            " where current_setting(n, true) is not null",  # older servers lack some
            (list(chosen), list(chosen.values())),
        )
        undo.pop_all()
    return conn


def installed() -> list[int]:
    """Return the versions that Debian's packages have installed, in ascending order."""
    return sorted(
        int(found.parent.parent.name) for found in DEBIAN.glob("*/bin/postgres")
    )


def programs(version: int) -> Path | None:
    """Return the directory of Debian's programs if the tests run on them."""
    is_there = IS_DEBIAN and version in installed()
    return DEBIAN / str(version) / "bin" if is_there else None


class Session:
    """One connection, and a thread of its own for statements that block."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.pid = conn.info.backend_pid
        self._thread: ThreadPoolExecutor | None = None

    def rows(self, query: LiteralString, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows; none for one that returns nothing."""
        cursor = self.conn.execute(query, parameters or None)
        return cursor.fetchall() if cursor.description is not None else []

    def row(self, query: LiteralString, *parameters: Any) -> tuple[Any, ...]:
        """Run a statement and return its only row."""
        (row,) = self.rows(query, *parameters)
        return row

    def value(self, query: LiteralString, *parameters: Any) -> Any:
        """Run a statement and return its only value."""
        (value,) = self.row(query, *parameters)
        return value

    def column(self, query: LiteralString, *parameters: Any) -> list[Any]:
        """Run a statement and return its only column."""
        return [value for (value,) in self.rows(query, *parameters)]

    def start(self, act: Callable[[], Any]) -> Future[Any]:
        """Do something on this session's thread, for what is expected to block."""
        self._thread = self._thread or ThreadPoolExecutor(1)
        return self._thread.submit(act)

    def close(self) -> None:
        """End the session, also under a statement that hangs."""
        is_active = self.conn.info.transaction_status == TransactionStatus.ACTIVE
        if self._thread or is_active:  # to cancel takes a connection of its own
            with contextlib.suppress(psycopg.Error):
                self.conn.cancel_safe(timeout=2)
        if self._thread:
            self._thread.shutdown()
        self.conn.close()


class Database(Session):
    """A migrated database of one's own. It is a session itself, and gives more of them."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(connect(url))
        self._sessions: list[Session] = []

    def session(self, role: str | None = None, **settings: str) -> Session:
        """Another session, with the settings of our own processes."""
        opened = Session(connect(self.url, **settings))
        self._sessions.append(opened)
        if role is not None:
            opened.conn.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        return opened

    def login(self, role: str) -> Session:
        """Another session, as if this role had logged in; `set role` leaves who logged in."""
        opened = self.session()
        opened.conn.execute(
            sql.SQL("set session authorization {}").format(sql.Identifier(role))
        )
        return opened

    def transaction(
        self, query: LiteralString | None = None, *parameters: Any, **settings: str
    ) -> Session:
        """Another session, in a transaction that has run this statement, if any."""
        opened = self.session(**settings)
        opened.rows("begin")
        if query is not None:
            opened.rows(query, *parameters)
        return opened

    def connect(self, role: str | None = None, **settings: str) -> Connection:
        """The connection of another session."""
        return self.session(role, **settings).conn

    def let_wait(self, function: str) -> None:
        """Take a function's lock timeout away. A busy machine may need longer than that to see
        that the function waits, and to release it.
        """
        self.conn.execute(
            sql.SQL("alter function redrive.{} set lock_timeout = 0").format(
                sql.Identifier(function)
            )
        )

    def wait_until_blocked(self, session: Session, seconds: float = 60) -> list[int]:
        """Watch until the server says that `session` waits for a lock. Returns the pids it waits
        for.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # Never on the session's own connection, which is busy.
            found = self.column(
                "select pg_blocking_pids(pid) from pg_stat_activity"
                " where pid = %s and wait_event_type = 'Lock'",
                session.pid,
            )
            if found and found[0]:
                return list(found[0])
            time.sleep(0.002)
        msg = f"session {session.pid} never blocked"
        raise AssertionError(msg)

    def start_blocked(
        self, session: Session, act: Callable[[], Any], by: Session
    ) -> Future[Any]:
        """Do something on a session's thread, and return once it waits for `by` and nobody else."""
        call = session.start(act)
        blockers = self.wait_until_blocked(session)
        assert blockers == [by.pid], f"waits for {blockers}, and not for {by.pid}"
        return call

    def close(self) -> None:
        """End all sessions."""
        for session in self._sessions:
            session.close()
        super().close()


class Server:
    """A running Postgres where databases may be made and dropped."""

    def __init__(self, url: str) -> None:
        self.url = url
        with psycopg.connect(url, autocommit=True) as conn:
            self.version = conn.info.server_version // 10_000
            preloaded = conn.execute("show shared_preload_libraries").fetchone()
            self.has_jit = preloaded == (WITH_JIT["shared_preload_libraries"],)
            if self.has_jit:
                conn.execute("create extension if not exists pg_stat_statements")
        self._names = (f"redrive_test_{os.getpid()}_{n}" for n in itertools.count())
        self._template = TEMPLATE if self._has(TEMPLATE) else None
        self._admin: psycopg.Connection | None = None
        self._used: list[str] = []

    def _has(self, database: str) -> bool:
        with psycopg.connect(self.url) as conn:
            found = "select from pg_database where datname = %s"
            return conn.execute(found, (database,)).fetchone() is not None

    def url_of(self, database: str) -> str:
        """Where to connect for one of its databases."""
        return make_conninfo(self.url, dbname=database)

    def compiled(self) -> list[str]:
        """Return the statements inside of functions that JIT has compiled since the last call."""
        if not self.has_jit:
            return []
        with psycopg.connect(self.url, autocommit=True) as conn:
            found = conn.execute(
                "select query from pg_stat_statements where jit_functions > 0 and not toplevel"
            ).fetchall()
            conn.execute("select pg_stat_statements_reset()")
        return [query for (query,) in found]

    def admin(self, statement: LiteralString, *names: str) -> None:
        """Run a statement about databases or roles, `{}` standing for each name."""
        if self._admin is None:
            self._admin = psycopg.connect(self.url, autocommit=True)
        self._admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def roles(self) -> list[str]:
        """The roles somebody has made."""
        with psycopg.connect(self.url) as conn:
            made = "select rolname from pg_roles where oid >= 16384"
            return [name for (name,) in conn.execute(made)]

    def drop_role(self, name: str) -> None:
        """Drop a role, and first the databases in which something may be its own."""
        self._drop_used()
        self.admin("drop role {}", name)

    @contextlib.contextmanager
    def empty(self, options: LiteralString = "") -> Iterator[str]:
        """The URL of a new database without a schema."""
        with self._made("create database {} " + options) as name:
            yield self.url_of(name)

    @contextlib.contextmanager
    def database(self) -> Iterator[Database]:
        """A fresh clone of the migrated template."""
        clone = "create database {} strategy file_copy template {}"
        with (
            self._made(clone, self.template()) as name,
            contextlib.closing(Database(self.url_of(name))) as database,
        ):
            yield database

    @contextlib.contextmanager
    def _made(self, statement: str, *names: str) -> Iterator[str]:
        """A database for a while."""
        self._drop_used(keep=1)
        name = next(self._names)
        self.admin(cast("LiteralString", statement), name, *names)
        try:
            yield name
        finally:
            self._used.append(name)

    def _drop_used(self, keep: int = 0) -> None:
        """Drop databases of earlier tests, but not the last `keep`.

        The backends of the newest may still be there, and the server waits 0.1 s for each.
        """
        while len(self._used) > keep:
            self.admin("drop database {} with (force)", self._used.pop(0))

    def template(self) -> str:
        """The name of a database that holds what `redrive migrate` makes; made on first use."""
        if self._template is None:
            self._template = self.make_template(next(self._names))
        return self._template

    def make_template(self, name: str) -> str:
        """Migrate a database, and leave in its files only what each clone needs."""
        self.admin("create database {}", name)
        with psycopg.connect(self.url_of(name), autocommit=True) as conn:
            migrate(conn)
            for (vacuum,) in conn.execute(VACUUM).fetchall():
                conn.execute(vacuum)
        with psycopg.connect(self.url_of(name)) as conn:
            conn.execute("select")  # the first session writes a cache of the catalogs
        return name

    def close(self) -> None:
        """Drop all it has made; the next call of `template` makes another one."""
        self._drop_used()
        if self._template is not None:
            self.admin("drop database {} with (force)", self._template)
            self._template = None
        self.leave()

    def leave(self) -> None:
        """Close the connection, and drop nothing."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None


@contextlib.contextmanager
def embedded(
    version: int, like: Path | None = None, **settings: str
) -> Iterator[Server]:
    """A server of the embedded binaries, or of Debian's, in a directory that goes with it, on a
    free port of loopback. `like` is a data directory that it gets a copy of.
    """
    with _stopped(version, **settings) as postgres:
        if like is not None:
            _copy(like, postgres.data)
        postgres.start()
        with contextlib.closing(Server(postgres.url())) as server:
            yield server


def migrated(version: int, home: Path) -> Path:
    """Return a data directory with a template in it, which the first process makes in `home`."""
    made = home / f"postgres-{version}"
    with (home / f"postgres-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make_migrated(version, made)
    return made


def _make_migrated(version: int, made: Path) -> None:
    with _stopped(version) as postgres:
        postgres.start()
        server = Server(postgres.url())
        server.make_template(TEMPLATE)
        server.leave()
        postgres.stop()
        part = made.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        _copy(postgres.data, part)
        part.rename(made)


def _copy(data: Path, to: Path) -> None:
    """Copy a data directory with its owner and its modes."""
    to.parent.mkdir(exist_ok=True)
    subprocess.run(["cp", "-Rp", str(data), str(to)], check=True)


@contextlib.contextmanager
def _stopped(version: int, **settings: str) -> Iterator[EmbeddedPostgres]:
    """A server that has not started, in a directory that goes with it."""
    home = Path(tempfile.mkdtemp(prefix="redrive-tests-", dir=_memory()))
    bin_directory = programs(version)
    settings = SETTINGS | (WITH_JIT if bin_directory else {}) | settings
    postgres = EmbeddedPostgres(
        home, version, free_port(), settings=settings, programs=bin_directory
    )
    with guarded(home, version):
        yield postgres


def _memory() -> Path | None:
    """Where files are kept in memory, if there is room: a database per test is mostly copying."""
    memory = Path("/dev/shm")  # a directory of its own is made below it
    is_roomy = memory.is_dir() and shutil.disk_usage(memory).free > ROOM
    return memory if is_roomy and os.access(memory, os.W_OK) else None


@contextlib.contextmanager
def external(url: str) -> Iterator[Server]:
    """A server that somebody else runs."""
    with contextlib.closing(Server(url)) as server:
        yield server


@contextlib.contextmanager
def container(image: str) -> Iterator[Server]:
    """A server in a container."""
    from testcontainers.community.postgres import PostgresContainer  # wants Docker

    options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
    with (
        PostgresContainer(image, driver=None).with_command(
            f"postgres {options}"
        ) as running,
        contextlib.closing(Server(running.get_connection_url())) as server,
    ):
        yield server
