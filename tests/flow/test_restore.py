"""A database that is restored to an earlier moment while workers run: what they know of it since is
of jobs and identities that never were, and their numbers come again.
"""

import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive import enqueue
from redrive.database.embedded import EmbeddedPostgres
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database, Server, Session, connect, programs


class Backup:
    """A dump of a database, to be restored aside and put in its place."""

    def __init__(self, server: Server, url: str, home: Path) -> None:
        self._server = server
        self._url = url
        self._file = home / "dump"
        self._programs = EmbeddedPostgres(
            home, server.version, programs=programs(server.version)
        )
        self.name = str(conninfo_to_dict(url)["dbname"])
        self._run("pg_dump", "--format=custom", f"--file={self._file}", url)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs.program(program), *arguments], check=True, timeout=300
        )

    def restore(self) -> None:
        """Replace the database by an earlier copy."""
        fresh, old = f"{self.name}_new", f"{self.name}_old"
        self._server.admin("create database {}", fresh)
        self._run(
            "pg_restore", f"--dbname={self._server.url_of(fresh)}", str(self._file)
        )
        self._server.admin("alter database {} allow_connections false", self.name)
        with closing(Session(connect(self._server.url))) as session:
            session.rows(
                "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s",
                self.name,
            )
        self._server.admin("alter database {} rename to {}", self.name, old)
        self._server.admin("alter database {} rename to {}", fresh, self.name)
        self._server.admin("drop database {} with (force)", old)


@pytest.fixture
def backed_up(server: Server, server_name: str) -> Server:
    """A server whose programs are here."""
    if not server_name.startswith("pg"):
        pytest.skip("needs the server's own pg_dump")
    return server


def test_workers_go_on_with_a_database_that_was_restored(
    backed_up: Server, database: Database, workers: Workers, tmp_path: Path
):
    """Nothing that came after the backup is settled for a stranger, and nothing is stuck."""
    both = [workers("--slots", "4").wait_ready() for _ in range(2)]
    held = enqueue(database.conn, "work.until-file", {"file": "go"})
    wait_for(lambda: workers.starts(held))
    waiting = [enqueue(database.conn, "work.sync") for _ in range(20)]
    wait_for(lambda: look.live(database) == 1)
    backup = Backup(backed_up, database.url, tmp_path)

    forgotten = [
        enqueue(database.conn, "work.until-file", {"file": "go"}) for _ in range(2)
    ]
    wait_for(lambda: all(workers.starts(job) for job in forgotten))
    done = [enqueue(database.conn, "work.sync") for _ in range(40)]
    wait_for(lambda: look.live(database) == 3)
    backup.restore()
    restored_at = time.monotonic()

    with closing(Session(connect(database.url))) as session:
        again = [enqueue(session.conn, "work.sync") for _ in range(60)]
        (workers.home / "go").touch()
        wait_for(lambda: look.live(session) == 0, what="a job is stuck")
        for worker in both:
            worker.wait_ready()
        present = (
            "select count(*) = 2 and bool_and(lost_at is null) from redrive.workers"
        )
        wait_for(lambda: session.value(present), what="an identity is left behind")
        dead, counted = look.reasons(session), look.counted(session)
    ledger = workers.ledger()

    assert set(again) & {*done, *forgotten}, (
        "ids did not come again: nothing was tried here"
    )
    assert dead == {}
    assert counted["completed"] == 1 + len(waiting) + len(again)
    for job in again:
        starts = [
            e
            for e in ledger
            if e.job == job and e.phase == "start" and e.at > restored_at
        ]
        assert len(starts) == 1, job
    assert [worker.stop()[0] for worker in both] == [0, 0]
