"""A worker behind PgBouncer in transaction mode, where no session is one's own; and TLS, which the
pool speaks.
"""

import os
import pwd
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from redrive import enqueue
from redrive.database.embedded import free_port, guarded_process
from tests.certificates import certificate
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database
from tests.programs import missing

PROGRAM = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")


@contextmanager
def pool(
    database: Database, log: Path, *settings: str, files: Sequence[Path] = ()
) -> Iterator[str]:
    """A pool of three server connections; where it answers. Its settings find copies of `files` in
    {home}.
    """
    if PROGRAM is None:
        missing("pgbouncer", "Debian: apt-get install pgbouncer")
    target = conninfo_to_dict(database.url)
    port = free_port()
    home = (
        Path("/tmp") / f"redrive-pgbouncer-{os.getpid()}-{port}"
    )  # its user must get there
    home.mkdir(mode=0o755)
    (home / "users.txt").write_text('"postgres" ""\n')
    (home / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={target['host']} port={target['port']} user={target['user']}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"unix_socket_dir =\nauth_type = any\npidfile = {home}/pid\n"
        "pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 100\n"
        "ignore_startup_parameters = extra_float_digits\n"
        + "\n".join(settings).format(home=home)
    )
    for file in files:
        shutil.copy(file, home)
    user = []
    if os.geteuid() == 0:
        account = pwd.getpwnam("nobody")
        for path in (home, *home.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)
        user = ["-u", "nobody"]
    with log.open("wb") as output:
        pooler = subprocess.Popen(
            [PROGRAM, *user, str(home / "pgbouncer.ini")], stdout=output, stderr=output
        )
    url = make_conninfo(database.url, host="127.0.0.1", port=port)

    def answers() -> bool:
        assert pooler.poll() is None, log.read_text()
        try:
            psycopg.connect(url, prepare_threshold=None).close()
        except psycopg.OperationalError:
            return False
        return True

    with guarded_process(home, home / "pid"):
        try:
            wait_for(answers)
            yield url
        finally:
            pooler.terminate()
            pooler.wait(30)


@pytest.fixture
def pooled_url(database: Database, tmp_path: Path) -> Iterator[str]:
    with pool(database, tmp_path / "pgbouncer.log") as url:
        yield url


def test_two_workers_share_three_connections_and_do_everything(
    database: Database, workers: Workers, pooled_url: str
):
    jobs = [enqueue(database.conn, "work.async", {"seconds": 0.01}) for _ in range(150)]
    failing = enqueue(database.conn, "fail.always")
    retried = enqueue(database.conn, "fail.until", {"attempt": 3})
    keyed = [enqueue(database.conn, "work.sync", ordering_key="k") for _ in range(5)]
    both = [
        workers("--slots", "4", url=pooled_url, redrive_heartbeat_ttl=12)
        for _ in range(2)
    ]
    wait_for(lambda: look.live(database) == 0)
    began = database.value("select clock_timestamp()")
    # heartbeats and chores go through the same pool
    wait_for(
        lambda: database.value(
            "select count(*) = 2 and min(seen_at) > %s from redrive.workers", began
        )
    )
    later = enqueue(database.conn, "work.sync")
    wait_for(lambda: workers.starts(later))
    stopped = [worker.stop() for worker in both]

    assert [len(workers.starts(job)) for job in (*jobs, *keyed)] == [1] * 155
    assert [
        e.job for e in workers.ledger() if e.phase == "end" and e.job in keyed
    ] == keyed
    assert len(workers.starts(retried)) == 3
    assert list(look.reasons(database)) == [failing]
    assert [status for status, _ in stopped] == [0, 0]
    assert database.value("select count(*) from redrive.workers") == 0


def test_a_worker_in_the_pool_listens_on_a_connection_of_its_own(
    database: Database, workers: Workers, pooled_url: str
):
    workers(url=pooled_url, redrive_listen_url=database.url).wait_ready()
    listening = "select count(*) from pg_stat_activity where query = 'listen redrive'"
    wait_for(lambda: database.value(listening) == 1)
    job = enqueue(database.conn, "work.sync")

    wait_for(lambda: workers.starts(job))


FOREIGN = """
    select name || '=' || setting from pg_settings
    where source = 'session' and name not in ('application_name', 'client_encoding', 'TimeZone')
    union all select 'statement_timeout=' || current_setting('statement_timeout')
    where current_setting('statement_timeout') <> '0'
    union all select 'synchronous_commit=' || current_setting('synchronous_commit')
    where current_setting('synchronous_commit') <> 'on'
    union all select 'redrive.notified_at' where current_setting('redrive.notified_at', true) <> ''
    union all select 'listen ' || channel from pg_listening_channels() as l(channel)
    union all select 'lock ' || objid from pg_locks
    where pid = pg_backend_pid() and locktype = 'advisory'
    union all select 'prepared ' || name from pg_prepared_statements
"""
"""What somebody has changed in the session; a pooler keeps three settings apart by itself."""


@pytest.mark.long
def test_producers_in_the_pool_find_nothing_of_ours_in_their_sessions(
    database: Database, workers: Workers, pooled_url: str
):
    """Not a setting, not a lock, not a LISTEN, nothing prepared, in a thousand transactions."""
    stopping = threading.Event()

    def produce(_: int) -> Counter[str]:
        found: Counter[str] = Counter()
        with psycopg.connect(
            pooled_url, prepare_threshold=None, autocommit=True
        ) as conn:
            while not stopping.wait(0.005):
                with conn.transaction():
                    found["transactions"] += 1
                    found.update(name for (name,) in conn.execute(FOREIGN))
                    enqueue(conn, "work.sync")
                with conn.transaction():  # what an enqueue leaves behind counts too
                    found.update(name for (name,) in conn.execute(FOREIGN))
        return found

    both = [
        workers("--slots", "4", url=pooled_url, redrive_heartbeat_ttl=12)
        for _ in range(2)
    ]
    with ThreadPoolExecutor(3) as pool:
        producers = [pool.submit(produce, n) for n in range(3)]
        # both have registered, beaten and done their chores meanwhile
        wait_for(
            lambda: (
                database.value("select coalesce(max(id), 0) >= 1000 from redrive.jobs")
                and database.value(
                    "select count(*) >= 2 and bool_and(seen_at > started_at) from redrive.workers"
                )
            )
        )
        command = [sys.executable, "-m", "redrive", "queue", "ls"]
        subprocess.run(
            command,
            env=os.environ | {"REDRIVE_DATABASE_URL": pooled_url},
            check=True,
            timeout=300,
        )
        stopping.set()
        found = sum((producer.result(30) for producer in producers), Counter[str]())
    for worker in both:
        worker.stop()

    assert found.pop("transactions") >= 1000
    assert found == {}


def test_completing_in_a_transaction_of_ones_own_works_through_the_pool(
    database, workers, pooled_url
):
    database.conn.execute("create table effects (job bigint, delivery int)")
    job = enqueue(database.conn, "effect.sync", {"how": "commit"})
    workers(url=pooled_url, redrive_test_url=pooled_url)
    wait_for(lambda: look.live(database) == 0)

    assert database.rows("select * from effects") == [(job, 1)]
    assert look.reasons(database) == {}


def test_a_server_is_trusted_by_its_authority_and_its_name(
    database: Database, tmp_path: Path
):
    ours, theirs = (certificate(tmp_path, name) for name in ("ours", "theirs"))
    server = certificate(tmp_path, "server", names="IP:127.0.0.1", signer=ours)
    tls = (
        "client_tls_sslmode = require",
        "client_tls_cert_file = {home}/server.crt",
        "client_tls_key_file = {home}/server.key",
    )
    with pool(
        database,
        tmp_path / "pgbouncer.log",
        *tls,
        files=(server, server.with_suffix(".key")),
    ) as url:
        by_name = make_conninfo(url, host="db.example", hostaddr="127.0.0.1")
        ends = [
            look_at(url, ours),
            look_at(url, theirs),
            look_at(url, tmp_path / "none.crt"),
            look_at(by_name, ours),
        ]

    assert [code for code, _ in ends] == [0, 69, 69, 69]
    assert "SSL error: certificate verify failed" in ends[1][1]
    assert f'root certificate file "{tmp_path}/none.crt" does not exist' in ends[2][1]
    assert 'does not match host name "db.example"' in ends[3][1]
    assert [len(said.splitlines()) for _, said in ends] == [0, 1, 1, 1]


def test_a_server_without_tls_is_refused_where_it_has_to_be_verified(
    pooled_url: str, tmp_path: Path
):
    code, said = look_at(pooled_url, certificate(tmp_path, "ours"))

    assert (code, "server does not support SSL, but SSL was required" in said) == (
        69,
        True,
    )


def look_at(url: str, authority: Path) -> tuple[int, str]:
    """Run a command that verifies the server; its exit code and what it complained of."""
    done = subprocess.run(
        [sys.executable, "-m", "redrive", "queue", "ls"],
        env=os.environ
        | {
            "REDRIVE_DATABASE_URL": url,
            "PGSSLMODE": "verify-full",
            "PGSSLROOTCERT": str(authority),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stderr
