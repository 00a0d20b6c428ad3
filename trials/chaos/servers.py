"""Two Postgres servers that can be crashed, failed over and filled up, and a pooler before them."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from redrive.database.embedded import (
    NEWEST,
    EmbeddedPostgres,
    free_port,
    guarded_process,
)
from tests.flow.proxy import Proxy
from tests.postgres import IS_DEBIAN, guarded, installed
from tests.replicas import Replicas

DATABASE = "chaos"
VERSION = max(installed(), default=NEWEST) if IS_DEBIAN else NEWEST
"""Debian's Postgres has JIT, and the embedded one has none."""
ROOM = 1 << 30
"""Bytes that are free again after a disk was full."""
POOLER = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")

# As in tests.postgres: it waits for the end of this process, however that ends.
UNMOUNT = """
cat > /dev/null
n=0; while [ -e "$0/home" ] && [ $n -lt 200 ]; do sleep 0.1; n=$((n + 1)); done
umount -l "$0" && rmdir "$0"
"""


class Servers:
    """A primary and a synchronous standby, and proxies that lead to whichever is the primary."""

    def __init__(self, disks: tuple[Path, Path]) -> None:
        self.disks = disks
        homes = (disks[0] / "home", disks[1] / "home")
        self.replicas = Replicas(
            homes, VERSION, is_synchronous=True, wal_level="logical"
        )
        self._proxies: list[Proxy] = []
        self._aimed: list[Proxy] = []
        with psycopg.connect(self.primary.url(), autocommit=True) as conn:
            conn.execute(f"create database {DATABASE}")

    @property
    def primary(self) -> EmbeddedPostgres:
        """The server that may write."""
        return self.replicas.primary

    @property
    def url(self) -> str:
        """The primary of this moment, with nothing in between."""
        return self.primary.url(DATABASE)

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of the harness."""
        return psycopg.connect(
            self.url, autocommit=True, connect_timeout=5, application_name="monkey"
        )

    def proxy(self) -> Proxy:
        """A way to the primary that a failover does not change."""
        proxy = Proxy(self.url)
        self._proxies.append(proxy)
        self._aimed.append(proxy)
        return proxy

    def leave_alone(self, proxy: Proxy) -> None:
        """Do not aim this one again: it leads to somebody who comes back through another."""
        self._aimed.remove(proxy)

    def stop_at_once(self) -> None:
        """`pg_ctl stop -m immediate`, and start."""
        self.primary.stop("immediate")
        self.primary.start()

    def kill_postmaster(self) -> None:
        """SIGKILL; its backends see that it is gone, and only then a new one can start."""
        os.kill(self._postmaster(), signal.SIGKILL)
        self._start_when_possible()

    def kill_backend(self) -> None:
        """SIGKILL of one, upon which the postmaster ends all of them and recovers."""
        with self.connect() as conn:
            pid = conn.info.backend_pid
            os.kill(pid, signal.SIGKILL)
        self._wait_until_it_writes()

    def fail_over(self) -> None:
        """The primary crashes, the standby takes over, and what was the primary follows it."""
        self.replicas.fail_over("immediate")
        for proxy in self._aimed:
            proxy.aim(self.url)
        self.replicas.rejoin()

    def split(self, seconds: float) -> None:
        """Cut the network in two halves that both go on, and then end the old primary.

        The standby takes over, and half of the clients are on its side. The others stay with the
        old primary, which runs and believes that it is the primary.
        """
        self.replicas.promote()
        for proxy in self._aimed[::2]:
            proxy.aim(self.url)
        time.sleep(seconds)
        for proxy in self._aimed[1::2]:
            proxy.aim(self.url)
        self.replicas.rejoin()

    def fill_disk(self, seconds: float) -> None:
        """Leave the primary not a block for some seconds."""
        disk = (
            self.disks[0]
            if self.primary.home.parent == self.disks[0]
            else self.disks[1]
        )
        ballast = disk / "ballast"
        try:
            with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
                for size in (1 << 20, 1 << 12):
                    with contextlib.suppress(OSError):
                        while file.write(b"\0" * size) == size:
                            pass
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(0.1)
        finally:
            # what stays makes the next time quicker
            os.truncate(ballast, max(0, ballast.stat().st_size - ROOM))
        if not self.primary.is_running():
            self._start_when_possible()
        self._wait_until_it_writes()

    def read_only(self, seconds: float) -> None:
        """As after a failover that came to the wrong server."""
        for value in ("on", "off"):
            with self.connect() as conn:
                conn.execute("set default_transaction_read_only = off")
                conn.execute(
                    f"alter system set default_transaction_read_only = {value}"
                )
                conn.execute("select pg_reload_conf()")
            time.sleep(seconds if value == "on" else 0)

    def _postmaster(self) -> int:
        return int((self.primary.data / "postmaster.pid").read_text().split()[0])

    def _start_when_possible(self) -> None:
        for _ in range(60):
            with contextlib.suppress(subprocess.SubprocessError, OSError):
                self.primary.start()
                return
            time.sleep(0.25)
        self.primary.start()

    def _wait_until_it_writes(self) -> None:
        until = time.monotonic() + 60
        while True:
            try:
                with self.connect() as conn:
                    conn.execute("select pg_current_wal_insert_lsn(), txid_current()")
            except psycopg.Error as error:
                if time.monotonic() > until:
                    error.add_note((self.primary.data / "log").read_text()[-4000:])
                    raise
                time.sleep(0.1)
            else:
                return

    def close(self) -> None:
        """End the proxies; the servers end with their homes."""
        for proxy in self._proxies:
            proxy.stop()


class Pooler:
    """PgBouncer in transaction mode, which can be killed and started on the same port.

    It ends with this process.
    """

    def __init__(self, url: str, home: Path) -> None:
        target = conninfo_to_dict(url)
        port = free_port()
        self._ended = contextlib.ExitStack()
        self.url = make_conninfo(url, host="127.0.0.1", port=port)
        self._home = Path(tempfile.mkdtemp(prefix="redrive-pgbouncer-"))
        self._home.chmod(0o755)
        self._ended.enter_context(guarded_process(self._home, self._home / "pid"))
        self._log = home / "pgbouncer.log"
        (self._home / "users.txt").write_text('"postgres" ""\n')
        (self._home / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={target['host']} port={target['port']} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            "unix_socket_dir =\nauth_type = any\nso_reuseport = 0\n"
            f"pidfile = {self._home}/pid\n"
            "pool_mode = transaction\ndefault_pool_size = 8\nmax_client_conn = 100\n"
            "server_login_retry = 0.2\nignore_startup_parameters = extra_float_digits\n"
        )
        self._user: list[str] = []
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            for path in (self._home, *self._home.iterdir()):
                os.chown(path, account.pw_uid, account.pw_gid)
            self._user = ["-u", account.pw_name]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        assert POOLER is not None
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [POOLER, *self._user, str(self._home / "pgbouncer.ini")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL, and start."""
        self._kill()
        self._process = self._start()

    def close(self) -> None:
        """End it, and what it has on disk."""
        self._kill()
        self._ended.close()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        (self._home / "pid").unlink(
            missing_ok=True
        )  # its id may be another process's by now


@contextlib.contextmanager
def _disk(megabytes: int) -> Iterator[Path]:
    """A directory; as root a small file system of its own, so that it can be filled."""
    path = Path(tempfile.mkdtemp(prefix="redrive-chaos-"))
    path.chmod(0o755)
    if os.geteuid() == 0:
        options = ["-t", "tmpfs", "-o", f"size={megabytes}m,mode=755"]
        subprocess.run(["mount", *options, "redrive-chaos", path], check=True)
        guard = subprocess.Popen(
            ["/bin/sh", "-c", UNMOUNT, str(path)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        ended = guard.communicate
    else:
        ended = lambda: shutil.rmtree(path, ignore_errors=True)  # noqa: E731 # the other way to end
    home = path / "home"
    home.mkdir()
    try:
        with guarded(home, VERSION):
            yield path
    finally:
        ended()


@contextlib.contextmanager
def servers(disk_mb: int) -> Iterator[Servers]:
    """Both, with an empty database, until the block or this process ends."""
    with _disk(disk_mb) as one, _disk(disk_mb) as two:
        started = Servers((one, two))
        try:
            yield started
        finally:
            started.close()


def is_small() -> bool:
    """Whether a server's disk is one that may be filled."""
    return os.geteuid() == 0
