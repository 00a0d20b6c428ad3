"""A worker behind PgBouncer in transaction mode, where no session is one's own."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from redrive import enqueue
from redrive.embedded import free_port
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Database

PROGRAM = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")


@pytest.fixture
def pooled_url(database: Database, tmp_path: Path) -> Iterator[str]:
    """Where a pool of three server connections answers."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    target = conninfo_to_dict(database.url)
    port = free_port()
    home = Path("/tmp") / f"redrive-pgbouncer-{os.getpid()}-{port}"  # its user must get there
    home.mkdir(mode=0o755)
    (home / "users.txt").write_text('"postgres" ""\n')
    (home / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={target['host']} port={target['port']} user={target['user']}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 100\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    user = []
    if os.geteuid() == 0:
        account = pwd.getpwnam("nobody")
        for path in (home, *home.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)
        user = ["-u", "nobody"]
    with (tmp_path / "pgbouncer.log").open("wb") as log:
        pooler = subprocess.Popen([PROGRAM, *user, str(home / "pgbouncer.ini")], stdout=log, stderr=log)
    url = make_conninfo(database.url, host="127.0.0.1", port=port)

    def answers() -> bool:
        assert pooler.poll() is None, (tmp_path / "pgbouncer.log").read_text()
        try:
            psycopg.connect(url, prepare_threshold=None).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        wait_for(answers, 15)
        yield url
    finally:
        pooler.terminate()
        pooler.wait(10)
        shutil.rmtree(home)


def test_two_workers_share_three_connections_and_do_everything(database: Database, workers: Workers, pooled_url: str):
    jobs = [enqueue(database.conn, "work.async", {"seconds": 0.01}) for _ in range(150)]
    failing = enqueue(database.conn, "fail.always")
    retried = enqueue(database.conn, "fail.until", {"attempt": 3})
    keyed = [enqueue(database.conn, "work.sync", ordering_key="k") for _ in range(5)]
    both = [workers("--slots", "4", url=pooled_url, redrive_heartbeat_ttl=3) for _ in range(2)]
    wait_for(lambda: look.live(database) == 0)
    began = database.value("select clock_timestamp()")
    # heartbeats and chores go through the same pool
    wait_for(lambda: database.value("select count(*) = 2 and min(seen_at) > %s from redrive.workers", began))
    later = enqueue(database.conn, "work.sync")
    wait_for(lambda: workers.starts(later), 10)
    stopped = [worker.stop() for worker in both]

    assert [len(workers.starts(job)) for job in (*jobs, *keyed)] == [1] * 155
    assert [e.job for e in workers.ledger() if e.phase == "end" and e.job in keyed] == keyed
    assert len(workers.starts(retried)) == 3
    assert list(look.reasons(database)) == [failing]
    assert [status for status, _ in stopped] == [0, 0]
    assert database.value("select count(*) from redrive.workers") == 0


def test_completing_in_a_transaction_of_ones_own_works_through_the_pool(database, workers, pooled_url):
    database.conn.execute("create table effects (job bigint, delivery int)")
    job = enqueue(database.conn, "effect.sync", {"how": "commit"})
    workers(url=pooled_url, redrive_test_url=pooled_url)
    wait_for(lambda: look.live(database) == 0)

    assert database.rows("select * from effects") == [(job, 1)]
    assert look.reasons(database) == {}
