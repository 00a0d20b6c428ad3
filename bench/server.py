"""The one Postgres all systems run against, and what it wrote meanwhile."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg import sql

from redrive.database.embedded import EmbeddedPostgres

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "replica",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "max_connections": "2500",
}

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True)
class Written:
    """What one database's server wrote: bytes and full-page images of WAL, commits."""

    wal: int
    images: int
    commits: int

    def __sub__(self, other: "Written") -> "Written":
        return Written(
            self.wal - other.wal,
            self.images - other.images,
            self.commits - other.commits,
        )


class Server:
    """A running server; every run of a system gets a database of its own."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self._postgres = postgres
        self.url_of = postgres.url
        self.port = postgres.port
        self.log = postgres.data / "log"
        self.pid = int((postgres.data / "postmaster.pid").read_text().split()[0])

    def program(self, name: str) -> str:
        """A program that came with the server."""
        return str(self._postgres.program(name))

    def connect(self, database: str = "postgres") -> Connection:
        """A connection of the harness."""
        return psycopg.connect(
            self.url_of(database), autocommit=True, application_name="bench"
        )

    def fresh(self, database: str) -> None:
        """An empty database; an older one of the name goes."""
        with self.connect() as conn:
            name = sql.Identifier(database)
            conn.execute(
                sql.SQL("drop database if exists {} with (force)").format(name)
            )
            conn.execute(sql.SQL("create database {}").format(name))

    def settle_down(self, database: str) -> None:
        """Let what came before a measurement have no part in it."""
        with self.connect(database) as conn:
            conn.execute("vacuum analyze")
            conn.execute("checkpoint")

    def written(self, conn: Connection) -> Written:
        """What has been written so far. Takes a second: until all sessions have reported."""
        (wal,) = conn.execute(
            "select pg_current_wal_insert_lsn() - '0/0'"
        ).fetchone() or (0,)
        time.sleep(1.1)
        row = conn.execute(
            "select (select wal_fpi from pg_stat_wal),"
            " (select xact_commit from pg_stat_database where datname = current_database())"
        ).fetchone()
        images, commits = row or (0, 0)
        return Written(int(wal), int(images), int(commits))

    def dead_tuples(self, conn: Connection) -> int:
        """Dead rows not yet vacuumed, in all tables, as reported."""
        row = conn.execute(
            "select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables"
        ).fetchone()
        return int(row[0]) if row else 0


@contextlib.contextmanager
def running(settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[Server]:
    """A new server in a directory that goes with it, with settings besides SETTINGS."""
    with tempfile.TemporaryDirectory(
        prefix="redrive-bench-", ignore_cleanup_errors=True
    ) as home:
        postgres = EmbeddedPostgres(Path(home), settings=SETTINGS | dict(settings))
        Path(home).chmod(0o755)  # the server runs as somebody else when we are root
        postgres.start()
        try:
            yield Server(postgres)
        finally:
            postgres.remove()
