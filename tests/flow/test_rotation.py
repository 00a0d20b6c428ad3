"""A password that changes while workers run: the file that holds it is read for each connection."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from redrive import enqueue, enqueue_many
from redrive.database.connections.address import Address
from redrive.database.connections.link import Link
from redrive.database.connections.trouble import Trouble, trouble
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
            sql.SQL("alter role {} password {}").format(
                sql.Identifier(self.name), password
            )
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
        server.admin(
            "create role {} login in role redrive_worker, redrive_operator", name
        )
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
    return workers(
        redrive_database_url="", redrive_database_url_file=login.file
    ).wait_ready()


def test_a_password_is_rotated_and_jobs_go_on(login: Login, workers: Workers):
    """The URL was read once, and the workers were lost until somebody restarted them."""
    worker = readable_by_the_file(workers, login)
    before = enqueue(login.database.conn, "work.sync")
    wait_for(lambda: workers.starts(before))

    login.change("second")
    assert login.cut()
    job = enqueue(login.database.conn, "work.sync")
    # A kubelet takes a minute to bring the new file: until then the worker stays, and says why.
    status, body = wait_for(
        lambda: _unready(worker), what="nothing was said of the login"
    )
    said = wait_for(
        lambda: [e for e in worker.events() if e.get("sqlstate") == "28P01"]
    )[-1]
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


def test_every_connection_of_a_process_takes_the_new_password(
    login: Login, workers: Workers
):
    """Claims, heartbeat with its listening, chores and figures each have a link."""
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
    # The chores may keep a connection that they borrowed from the claims: its name stays.
    names: LiteralString = (
        "select array_agg(replace(application_name, 'maintenance', 'worker') "
        " order by replace(application_name, 'maintenance', 'worker'))"
        " from pg_stat_activity where usename = %s and not pid = any (%s)"
    )
    pids: LiteralString = (
        "select array_agg(pid) from pg_stat_activity where usename = %s"
    )
    links = [
        "redrive heartbeat",
        *["redrive stats"] * 2,  # of the exporter, and of the worker
        *["redrive worker"] * 2,
    ]

    def are_opened(beside: list[int]) -> bool:
        worker.get("/metrics")
        return login.database.value(names, login.name, beside) == links

    # A worker whose claims have nothing to do lends their connection to the chores.
    busy = [
        {"kind": "work.sync", "delay": timedelta(seconds=tenth / 10)}
        for tenth in range(1200)
    ]
    enqueue_many(login.database.conn, busy)
    try:
        wait_for(lambda: are_opened([]), what="a connection is missing")
        old = login.database.value(pids, login.name)
        login.change("second")
        login.mount_url("second")
        login.cut()

        wait_for(lambda: are_opened(old), what="a connection was not opened again")
        assert exporter.poll() is None
    finally:
        exporter.terminate()
        exporter.wait(60)


@pytest.mark.waits
def test_a_refused_login_is_tried_ever_more_rarely_and_a_new_one_at_once(
    login: Login, workers: Workers
):
    """Each worker sent 4.4 wrong passwords a second, for as long as it took to mend."""
    worker = readable_by_the_file(workers, login)
    log = Path(login.database.value("show data_directory")) / "log"
    refused = f'password authentication failed for user "{login.name}"'

    def refusals() -> int:
        return log.read_text(errors="replace").count(refused)

    login.change("second")
    login.cut()
    began = time.monotonic()
    wait_for(lambda: refusals() >= 4, what="it has stopped trying")
    wait_for(lambda: time.monotonic() - began > 20)
    tried = refusals()

    login.mount_url("second")
    job = enqueue(login.database.conn, "work.sync")
    wait_for(lambda: workers.starts(job), what="the new password was not tried")
    worker.wait_ready()
    # After 0, 1, 3, 7 and 15 s; more if all links try before the first has an answer,
    # and if the machine is busy. It was 4.4 a second.
    assert tried <= 25, f"{tried} in {time.monotonic() - began:.0f} s"


def test_a_login_that_is_mended_in_the_database_is_found_out(
    login: Login, workers: Workers
):
    """The backoff ends although the file never changed."""
    worker = readable_by_the_file(workers, login)
    login.change("second")
    login.cut()
    wait_for(lambda: _unready(worker), what="nothing was said of the login")

    login.change("first")
    job = enqueue(login.database.conn, "work.sync")
    wait_for(lambda: workers.starts(job), what="the mended password was not tried")
    worker.wait_ready()


@pytest.mark.parametrize(
    "content", [None, "", "nonsense"], ids=["gone", "empty", "no URL"]
)
def test_a_file_that_is_unreadable_for_a_while_is_tried_again(
    database: Database, tmp_path: Path, content: str | None
):
    """An editor truncates before it writes; a worker does not end for that."""
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
