"""Backup and restore as docs/backup.md describes them, and what becomes of each job."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from redrive.cli.main import main
from redrive.database.embedded import EmbeddedPostgres, free_port, guarded
from redrive.database.schema.migrate import migrate
from redrive.enqueue import enqueue
from tests.factories import redrive, silence
from tests.flow import look
from tests.flow.harness import Workers, wait_for, workers_on
from tests.postgres import Database, Server, Session, connect, programs
from tests.replicas import Copy

QUEUES = ("default", "reports")
ACT = ("--why", "restored from a backup", "--yes")
Run = Callable[..., str]


@pytest.fixture
def run(capsys: Any) -> Run:
    """Run a command in this process, and return what it prints."""

    def act(url: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        capsys.readouterr()
        assert main([*arguments, "--database-url", url]) in codes, arguments
        return str(capsys.readouterr().out)

    return act


def live_until_the_backup(
    session: Session, workers: Workers, run: Run
) -> dict[str, int]:
    """Enqueue a job of each fate: one ended, one runs, one waits, one is dead."""
    url, conn = workers.url, session.conn
    run(url, "queue", "pause", "reports", "--create", *ACT)
    workers().wait_ready()
    ids = {
        "ended": enqueue(conn, "work.sync", idempotency_key="before"),
        "running": enqueue(conn, "work.until-file", {"file": "go"}),
        "waiting": enqueue(conn, "work.report", queue="reports"),
        "dead": enqueue(conn, "fail.until", {"attempt": 2}, max_attempts=1),
    }
    wait_for(lambda: look.dead(session, ids["dead"]))
    wait_for(lambda: workers.starts(ids["running"]) and look.live(session) == 2)
    return ids


def live_on(session: Session, workers: Workers, run: Run) -> dict[str, int]:
    """End all of these jobs, and one more, after the backup."""
    (workers.home / "go").touch()
    run(workers.url, "queue", "resume", "reports", *ACT)
    (dead,) = session.column("select id from redrive.dead_letters")
    session.rows("update redrive.dead_letters set payload = '{\"attempt\": 1}'")
    assert redrive(session.conn, [dead]) == {dead: None}
    late = enqueue(session.conn, "work.sync", idempotency_key="after")
    wait_for(lambda: look.live(session) == 0)
    (workers.home / "go").unlink()
    workers.end()
    return {"late": late}


def check_the_restored(
    url: str, login: str, workers: Workers, run: Run, ids: dict[str, int]
) -> int:
    """Follow the page: look, pause, start workers, look, resume; then compare.

    Returns the id of the next new job.
    """
    first_key = key_of(workers, ids["waiting"])
    lines = run(url, "check", "--json", codes=(0, 1)).splitlines()
    found = {line["check"]: line["ok"] for line in map(json.loads, lines)}
    for name in ("database", "schema", "roles", "owners", "audit"):
        assert found[name], name
    for queue in QUEUES:
        run(url, "queue", "pause", queue, *ACT)

    with closing(Session(connect(url))) as session:
        for worker in session.column("select id from redrive.workers"):
            silence(session.conn, worker)  # so that nobody waits for the TTL
        workers(url=login).wait_ready()
        wait_for(lambda: states(url, run)[ids["running"]] == "ready")
        assert states(url, run) == {ids["running"]: "ready", ids["waiting"]: "ready"}
        assert look.reasons(session) == {ids["dead"]: "attempts_exhausted"}
        assert len(workers.starts(ids["running"])) == 1, "a paused queue ran a job"

        (workers.home / "go").touch()
        for queue in QUEUES:
            run(url, "queue", "resume", queue, *ACT)
        wait_for(lambda: look.live(session) == 0)
        again = enqueue(session.conn, "work.sync", idempotency_key="after")
        known = enqueue(session.conn, "work.sync", idempotency_key="before")
        wait_for(lambda: look.live(session) == 0)

        assert session.value("select state from redrive.dead_letters") == "open"
    assert len(workers.starts(ids["running"])) == 2
    assert len(workers.starts(ids["ended"])) == 1
    assert known == ids["ended"]
    assert key_of(workers, ids["waiting"]) == first_key
    assert "unchanged" in run(url, "audit", "verify")
    return again


def states(url: str, run: Run) -> dict[int, str]:
    """Return the state of each live job, as an operator sees it."""
    lines = map(json.loads, run(url, "job", "ls", "--json").splitlines())
    return {line["id"]: line["state"] for line in lines}


def key_of(workers: Workers, job: int) -> str:
    """Return the key that the job's handler saw last, and forget it."""
    report = workers.home / f"report-{job}"
    key: str = json.loads(report.read_text())["key"]
    report.unlink()
    return key


def add_login(url: str) -> str:
    """Add a worker's login. Its rights are those that the backup brought."""
    with connect(url) as conn:
        conn.execute("create role restored_jobs login password 'x'")
        conn.execute("grant redrive_worker to restored_jobs")
    return make_conninfo(url, user="restored_jobs", password="x")


def test_a_dump_is_restored_on_another_server_under_another_name(
    server: Server,
    server_name: str,
    fresh_server: Server,
    database: Database,
    workers: Workers,
    tmp_path: Path,
    run: Run,
) -> None:
    """A page says how to back up and restore, and what happens to jobs then."""
    if not server_name.startswith("pg"):
        pytest.skip("needs the server's own pg_dump")
    at = EmbeddedPostgres(tmp_path, server.version, programs=programs(server.version))
    dump, roles = tmp_path / "app.dump", tmp_path / "roles.sql"

    def do(program: str, *arguments: str) -> None:
        command = [at.program(program), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=300)

    ids = live_until_the_backup(database, workers, run)
    do("pg_dumpall", "--roles-only", f"--file={roles}", f"--dbname={server.url}")
    do("pg_dump", "--format=custom", f"--file={dump}", database.url)
    ids |= live_on(database, workers, run)

    fresh_server.admin("create database {}", "app_restored")
    url = fresh_server.url_of("app_restored")
    try:
        do("psql", "--quiet", f"--file={roles}", f"--dbname={fresh_server.url}")
        do("pg_restore", "--single-transaction", f"--dbname={url}", str(dump))
        run(url, "migrate")
        next_id = check_the_restored(url, add_login(url), workers, run, ids)
    finally:
        workers.end()
        fresh_server.admin("drop database {} with (force)", "app_restored")
    assert next_id == ids["late"], "the id of a lost job was not used again"


class Archived:
    """A server that archives its WAL, and a base backup of it."""

    def __init__(self, version: int, home: Path, archive: Path) -> None:
        settings = {
            "fsync": "off",
            "archive_mode": "on",
            "archive_command": f"cp %p {archive}/%f",
        }
        options: Any = {"programs": programs(version)}
        self.server = EmbeddedPostgres(
            home / "source", version, free_port(), settings=settings, **options
        )
        self.copy = Copy(home / "copy", version, free_port(), **options)
        self.copy.source = self.server
        self._archive = archive

    def back_up(self) -> None:
        """Take a base backup. The copy is not started."""
        self.copy.prepare()

    def restore(self, moment: str) -> None:
        """Start the copy at the moment, from the base backup and the archive."""
        self.copy.settings = {
            "fsync": "off",
            "restore_command": f"cp {self._archive}/%f %p",
            "recovery_target_time": moment,
            "recovery_target_action": "promote",
        }
        (self.copy.data / "standby.signal").rename(self.copy.data / "recovery.signal")
        self.copy.start()


@pytest.fixture
def archived(server_name: str) -> Iterator[Archived]:
    """A server whose WAL is archived, with a migrated database."""
    if not server_name.startswith("pg"):
        pytest.skip("needs the server's own pg_basebackup")
    version = int(server_name.removeprefix("pg"))
    home = Path(tempfile.mkdtemp(prefix="redrive-archive-"))
    home.chmod(0o755)
    archive = home / "wal"
    archive.mkdir()
    archive.chmod(0o777)
    found = Archived(version, home, archive)
    with guarded(found.server.home, version), guarded(found.copy.home, version):
        found.server.start()
        with closing(Session(connect(found.server.url()))) as session:
            session.rows("create database redrive")
        with connect(found.server.url("redrive")) as conn:
            migrate(conn)
        yield found
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.long
def test_a_database_is_restored_to_a_point_in_time(
    archived: Archived, tmp_path: Path, run: Run
) -> None:
    """The same jobs, from a base backup and archived WAL."""
    url, restored = archived.server.url("redrive"), archived.copy.url("redrive")
    with workers_on(url, tmp_path) as workers:
        with closing(Session(connect(url))) as session:
            archived.back_up()
            ids = live_until_the_backup(session, workers, run)
            moment = session.value("select clock_timestamp()::text")
            ids |= live_on(session, workers, run)
            session.rows("select pg_switch_wal()")
        archived.server.stop()
        archived.restore(moment)
        in_recovery = "select pg_is_in_recovery()"
        with closing(Session(connect(restored))) as session:
            wait_for(lambda: not session.value(in_recovery))
            run(restored, "migrate")

        check_the_restored(restored, add_login(restored), workers, run, ids)
