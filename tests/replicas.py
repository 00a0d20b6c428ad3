"""Two servers of which one follows the other: streaming replication, a primary that is fenced, and
a standby that takes over.
"""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from redrive.database.connections.connect import connect
from redrive.database.embedded import NEWEST, EmbeddedPostgres, free_port
from redrive.database.schema.migrate import migrate
from tests.flow.harness import children, wait_for
from tests.postgres import guarded, programs

DATABASE = "redrive"
SETTINGS = {
    # The machine stays up: what a crash of the server loses is what it had not written yet. Pages
    # are written whole to the WAL all the same: without, one that was promoted did not recover.
    "fsync": "off",
    "shared_buffers": "64MB",
    "max_connections": "120",
    "wal_keep_size": "512MB",  # a standby whose stream was cut finds its place again
    "wal_retrieve_retry_interval": "100ms",
    "log_min_messages": "fatal",
}


class Copy(EmbeddedPostgres):
    """A server whose data directory is a base backup of another, which it follows."""

    source: EmbeddedPostgres

    def prepare(self) -> None:
        """Take the base backup, and do not start."""
        self._make_directory()
        self._initialise()

    def _initialise(self) -> None:
        # -R leaves standby.signal; where to stream from is one of our settings
        arguments = ["-c", "fast", "-X", "stream", "-R", "-D", str(self.data)]
        self._run("pg_basebackup", "-d", self.source.url(), *arguments)
        self.data.chmod(0o700)


class Replicas:
    """A primary and its standby. With `is_synchronous`, a commit returns when both have it."""

    def __init__(
        self,
        homes: tuple[Path, Path],
        version: int,
        *,
        is_synchronous: bool,
        **settings: str,
    ) -> None:
        self._version = version
        self._is_synchronous = is_synchronous
        self._settings = SETTINGS | settings
        options: Any = {"settings": self._settings, "programs": programs(version)}
        self.primary = EmbeddedPostgres(homes[0], version, free_port(), **options)
        self.standby: EmbeddedPostgres = Copy(homes[1], version, free_port(), **options)
        self._hosts = [f"127.0.0.1:{one.port}" for one in (self.primary, self.standby)]
        self.primary.start()
        self.execute("create database redrive", database="postgres")
        with connect(self.primary.url(DATABASE)) as conn:
            migrate(conn)
        self._follow(self.standby)

    @property
    def url(self) -> str:
        """Both servers; a client takes the server that may write."""
        hosts = ",".join(self._hosts)
        return (
            f"postgresql://postgres@{hosts}/{DATABASE}?target_session_attrs=read-write"
        )

    def execute(
        self, statement: LiteralString, *parameters: Any, database: str = DATABASE
    ) -> list[tuple[Any, ...]]:
        """Run a statement on the primary. Returns its rows."""
        return _execute(self.primary.url(database), statement, *parameters)

    def wait_until_in_step(self) -> None:
        """Wait until the standby has replayed all that the primary has written."""
        ((written,),) = self.execute("select pg_current_wal_lsn()::text")
        replayed: LiteralString = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        url = self.standby.url()
        wait_for(
            lambda: _execute(url, replayed, written)[0][0], what="the standby is behind"
        )

    def cut_stream(self) -> None:
        """What is committed from here on dies with the primary; to be mended by `rejoin` only."""
        self.wait_until_in_step()
        _set(self.standby, "primary_conninfo", "")
        gone: LiteralString = "select count(*) = 0 from pg_stat_replication"
        wait_for(lambda: self.execute(gone)[0][0], what="the stream never ended")

    def fail_over(self, fence: str = "immediate") -> None:
        """Fence the primary, and promote the standby: each is then the other.

        The fence is a way to stop a server (`immediate` is a crash, `fast` a planned switch), or
        `freeze`: a host that hangs with all its connections open, until `rejoin`.
        """
        if fence == "freeze":
            _signal(self.primary, signal.SIGSTOP)
        else:
            self.primary.stop(fence)
        self.promote()

    def promote(self) -> None:
        """Make the standby the primary, where the primary is fenced already."""
        ((is_promoted,),) = _execute(self.standby.url(), "select pg_promote()")
        assert is_promoted, "the standby did not become a primary"
        self.primary, self.standby = self.standby, self.primary

    def rejoin(self) -> None:
        """Let the server that was fenced follow the other, as a new copy of it."""
        _signal(self.standby, signal.SIGKILL)
        shutil.rmtree(self.standby.data)
        home, port = self.standby.home, self.standby.port
        self.standby = Copy(home, self._version, port, programs=programs(self._version))
        self._follow(self.standby)

    def _follow(self, standby: EmbeddedPostgres) -> None:
        assert isinstance(standby, Copy)
        standby.source = self.primary
        stream = f"host=127.0.0.1 port={self.primary.port} user=postgres"
        standby.settings = {**self._settings, "primary_conninfo": stream}
        standby.start()
        streams: LiteralString = (
            "select count(*) = 1 from pg_stat_replication where state = %s"
        )
        wait_for(lambda: self.execute(streams, "streaming")[0][0], what="no stream")
        if self._is_synchronous:
            _set(self.primary, "synchronous_standby_names", "*")


def _execute(
    url: str, statement: LiteralString, *parameters: Any
) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []


def _set(server: EmbeddedPostgres, name: str, value: str) -> None:
    """Change a setting now, and for when the server is started again."""
    server.settings = {**server.settings, name: value}
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(
            sql.SQL("alter system set {} = {}").format(sql.Identifier(name), value)
        )
        conn.execute("select pg_reload_conf()")


def _signal(server: EmbeddedPostgres, number: int) -> None:
    """Signal every process of a server that runs."""
    with contextlib.suppress(OSError):
        postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)  # from here on it makes no more of them
        for pid in (*children(postmaster), postmaster):
            os.kill(pid, number)


@contextlib.contextmanager
def replicas(*, is_synchronous: bool, version: int = NEWEST) -> Iterator[Replicas]:
    """Two servers with a migrated database, which end with the block or this process."""
    one, two = (Path(tempfile.mkdtemp(prefix="redrive-replica-")) for _ in range(2))
    with guarded(one, version), guarded(two, version):
        yield Replicas((one, two), version, is_synchronous=is_synchronous)
