"""A password that changes while workers run: the file that holds it is read for each connection."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from redrive import enqueue
from redrive.database.connect import Address, Link, Trouble, trouble
from redrive.database.embedded import free_port
from redrive.errors import SettingsError
from tests.flow.harness import ROOT, Workers, wait_for, workers_on
from tests.postgres import Database, Server

OURS: LiteralString = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = %s"
)


@dataclass
class Login:
    """A login with a password, and the file in which processes find it, as a pod has it."""

    server: Server
    database: Database
    mount: Path
    name: str

    @property
    def file(self) -> Path:
        """What REDRIVE_DATABASE_URL_FILE names."""
        return self.mount / "url"

    def change(self, password: str) -> None:
        """Change the password in the database."""
        self.database.conn.execute(
            sql.SQL("alter role {} password {}").format(sql.Identifier(self.name), password)
        )

    def mount_url(self, password: str) -> None:
        """Write the file as the kubelet does: a new directory, to which a link is turned."""
        written = self.mount / f"..{secrets.token_hex(4)}"
        written.mkdir()
        url = make_conninfo(self.database.url, user=self.name, password=password)
        (written / "url").write_text(url + "\n")
        link = self.mount / "..new"
        link.symlink_to(written.name)
        link.rename(self.mount / "..data")

    def cut(self) -> int:
        """End all its connections."""
        return self.database.value(OURS, self.name)


@pytest.fixture
def login(server: Server, server_name: str, tmp_path: Path) -> Iterator[Login]:
    """A worker's login, on a server that asks it for its password."""
    if not server_name.startswith("pg"):
        pytest.skip("needs a server whose files are here")
    name = f"rotated_{secrets.token_hex(4)}"
    with server.database() as database:
        rules = Path(database.value("show hba_file"))
        before = rules.read_text()
        rules.write_text(f"host all {name} 127.0.0.1/32 scram-sha-256\n{before}")
        server.admin("create role {} login in role redrive_worker, redrive_operator", name)
        (tmp_path / "mount").mkdir()
        login = Login(server, database, tmp_path / "mount", name)
        login.file.symlink_to("..data/url")
        database.conn.execute("select pg_reload_conf()")
        login.change("first")
        login.mount_url("first")
        yield login
        rules.write_text(before)
        database.conn.execute("select pg_reload_conf()")
    server.drop_role(name)


@pytest.fixture
def workers(login: Login, tmp_path: Path) -> Iterator[Workers]:
    """Workers that find the URL in the login's file; their handlers use the owner's."""
    with workers_on(login.database.url, tmp_path) as started:
        yield started


def readable_by_the_file(workers: Workers, login: Login):
    return workers(redrive_database_url="", redrive_database_url_file=login.file).wait_ready()


def test_a_password_is_rotated_and_jobs_go_on(login: Login, workers: Workers):
    """O7: the URL was read once, and the workers were lost until somebody restarted them."""
    worker = readable_by_the_file(workers, login)
    before = enqueue(login.database.conn, "work.sync")
    wait_for(lambda: workers.starts(before))

    login.change("second")
    assert login.cut()
    job = enqueue(login.database.conn, "work.sync")
    # A kubelet takes a minute to bring the new file: until then the worker stays, and says why.
    status, body = wait_for(lambda: _unready(worker), what="nothing was said of the login")
    said = wait_for(lambda: [e for e in worker.events() if e.get("sqlstate") == "28P01"])[-1]
    assert not workers.starts(job)
    assert worker.process.poll() is None

    login.mount_url("second")
    wait_for(lambda: workers.starts(job), what="the new password was not read")
    worker.wait_ready()

    assert status == 503
    assert str(login.file) in body
    assert "the server refused the login" in body
    assert said["event"] == "database error"
    assert str(login.file) in said["why"]
    for text in (body, worker.log.read_text()):
        assert "first" not in text
        assert "second" not in text


def _unready(worker):
    status, body = worker.get("/readyz")
    return (status, body) if "login" in body else None


def test_every_connection_of_a_process_takes_the_new_password(login: Login, workers: Workers):
    """O7: claims, heartbeat with its listening, chores and figures each have a link."""
    worker = readable_by_the_file(workers, login)
    exporter_port = free_port()
    environment = {
        "REDRIVE_DATABASE_URL_FILE": str(login.file),
        "REDRIVE_HTTP_PORT": str(exporter_port),
        "PATH": os.environ["PATH"],
    }
    exporter = subprocess.Popen(
        [sys.executable, "-m", "redrive", "exporter"],
        env=environment,
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    names: LiteralString = (
        "select array_agg(distinct application_name order by application_name)"
        " from pg_stat_activity where usename = %s"
    )
    links = ["redrive heartbeat", "redrive maintenance", "redrive stats", "redrive worker"]

    def opened() -> bool:
        enqueue(login.database.conn, "work.sync")  # without work the chores' is the claims'
        worker.get("/metrics")
        return login.database.value(names, login.name) == links

    count: LiteralString = (
        "select count(*) from pg_stat_activity"
        " where usename = %s and application_name = 'redrive stats'"
    )
    try:
        wait_for(opened)
        wait_for(lambda: login.database.value(count, login.name) == 2, what="no exporter")
        login.change("second")
        login.mount_url("second")
        login.cut()

        wait_for(opened)
        wait_for(lambda: login.database.value(count, login.name) == 2, what="the exporter's is old")
        assert exporter.poll() is None
    finally:
        exporter.terminate()
        exporter.wait(60)


@pytest.mark.parametrize("content", [None, "", "nonsense"], ids=["gone", "empty", "no URL"])
def test_a_file_that_is_unreadable_for_a_while_is_tried_again(
    database: Database, tmp_path: Path, content: str | None
):
    """O7: an editor truncates before it writes; a worker does not end for that."""
    file = tmp_path / "url"
    file.write_text(database.url)
    link = Link(Address(file=file), "test")
    with link.use() as conn:
        conn.execute("select 1")
    link.close()
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(psycopg.OperationalError) as caught, link.use():
        pass

    assert trouble(caught.value) is Trouble.LOST
    assert str(file) in (link.fault or "")
    file.write_text(database.url)
    with link.use() as conn:
        conn.execute("select 1")
    link.close()
    assert link.fault is None


def test_an_address_without_a_file_says_that_it_is_fixed() -> None:
    with pytest.raises(SettingsError, match="REDRIVE_DATABASE_URL does not parse"):
        Address("nonsense").read()
