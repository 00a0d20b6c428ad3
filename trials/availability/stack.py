"""Three Postgres under Patroni, three etcd, HAProxy and PgBouncer on loopback, as
docs/high-availability.md sets them. Each can be killed, frozen and cut off.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from redrive.database.embedded import free_port, guarded_process
from tests.flow.harness import children, wait_for
from tests.postgres import DEBIAN, installed
from trials.chaos.servers import Pooler

PROGRAMS = ("patroni", "etcd", "haproxy", "pgbouncer", "setpriv")
ACCOUNT = "postgres"
"""Debian's account; Postgres refuses to run as root."""
DATABASE = "chaos"
HEALTHY_SECONDS = 240.0
TTL, LOOP, RETRY = 30, 10, 10
"""Patroni's defaults: seconds of the leader's lease, between two looks, and of patience with etcd."""

BALANCER = """
global
    maxconn 1000
defaults
    mode tcp
    timeout connect 3s
    timeout client 1m
    timeout server 1m
"""
PRIMARY = """
listen primary
    bind 127.0.0.1:{port}
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 3s fall 3 rise 2 on-marked-down shutdown-sessions
"""
TO_ETCD = """
listen etcd
    bind 127.0.0.1:{port}
    timeout check 1s
    default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
"""


def absent() -> list[str]:
    """Return what is not installed and without which nothing here runs."""
    names = [name for name in PROGRAMS if _program(name) is None]
    return names if installed() else [*names, "postgresql"]


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


class Process:
    """A program that ends with this process, and can be killed and started again."""

    def __init__(self, home: Path, *command: str, account: str | None = None) -> None:
        self._log = home / f"{command[0]}.log"
        program, *arguments = command
        own = ["setpriv", "--pdeathsig", "KILL"]
        if account is not None and os.geteuid() == 0:
            own += ["--reuid", account, "--regid", account, "--clear-groups"]
        self._command = [*own, str(_program(program)), *arguments]
        self.start()

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.pid = self._process.pid

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self._process.kill()
        self._process.wait()

    def tail(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-3000:]


class Etcd:
    """Three members of one cluster."""

    def __init__(self, home: Path) -> None:
        self.ports = [free_port() for _ in range(3)]
        peers = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
        cluster = ",".join(f"etcd{n}={peer}" for n, peer in enumerate(peers))
        self.members: list[Process] = []
        for n, (port, peer) in enumerate(zip(self.ports, peers, strict=True)):
            place = home / f"etcd{n}"
            place.mkdir()
            client = f"http://127.0.0.1:{port}"
            arguments = ["--name", f"etcd{n}", "--data-dir", str(place / "data")]
            arguments += [
                "--listen-client-urls",
                client,
                "--advertise-client-urls",
                client,
            ]
            arguments += [
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
            ]
            arguments += [
                "--initial-cluster",
                cluster,
                "--initial-cluster-state",
                "new",
            ]
            arguments += ["--logger", "zap", "--log-level", "warn"]
            self.members.append(Process(place, "etcd", *arguments))

    def leader(self) -> int:
        """Return the number of the member that leads."""

        def find() -> list[int]:
            return [n for n, port in enumerate(self.ports) if _leads(port)]

        return int(wait_for(find, what="no etcd leads", every=0.2)[0])


def _leads(port: int) -> bool:
    status = _ask(f"http://127.0.0.1:{port}/v3/maintenance/status", b"{}")
    return bool(status) and status.get("leader") == status["header"]["member_id"]


class Node:
    """One Postgres, the Patroni that manages it, and that Patroni's way to etcd."""

    def __init__(self, n: int, home: Path, etcd: Etcd, *, is_synchronous: bool) -> None:
        self.name = f"node{n}"
        self.port, self.api = free_port(), free_port()
        self.home = home
        self.data = home / "data"
        way = free_port()
        servers = [
            f"    server etcd{i} 127.0.0.1:{port} check"
            for i, port in enumerate(etcd.ports)
        ]
        file = home / "etcd.cfg"
        file.write_text("\n".join([BALANCER, TO_ETCD.format(port=way), *servers, ""]))
        self.way = Process(home, "haproxy", "-db", "-f", str(file))
        own = home / "patroni.json"  # which is YAML, too
        own.write_text(json.dumps(self._settings(way, is_synchronous=is_synchronous)))
        if os.geteuid() == 0:
            shutil.chown(home, ACCOUNT, ACCOUNT)
        self.patroni = Process(home, "patroni", str(own), account=ACCOUNT)

    def _settings(self, way: int, *, is_synchronous: bool) -> dict[str, Any]:
        timing = {"ttl": TTL, "loop_wait": LOOP, "retry_timeout": RETRY}
        parameters = {
            "fsync": "off",  # the machine stays up
            "shared_buffers": "64MB",
            "max_connections": "120",
            "unix_socket_directories": "",
        }
        postgres = {"use_pg_rewind": True, "parameters": parameters}
        return {
            "scope": "redrive",
            "name": self.name,
            "restapi": _at(self.api),
            # no member but through the way, so that it can be cut
            "etcd3": {"hosts": [f"127.0.0.1:{way}"], "use_proxies": True},
            "bootstrap": {
                "dcs": timing
                | {"synchronous_mode": is_synchronous, "postgresql": postgres},
                "initdb": [
                    {"encoding": "UTF8"},
                    {"locale": "C.UTF-8"},
                    "data-checksums",
                ],
            },
            "postgresql": {
                **_at(self.port),
                "data_dir": str(self.data),
                "bin_dir": str(DEBIAN / str(installed()[-1]) / "bin"),
                "pgpass": str(self.home / "pgpass"),
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "postgres"},
                },
                "pg_hba": [
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
            },
        }

    @property
    def postmaster(self) -> int:
        """The process id of its Postgres."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def is_primary(self) -> bool:
        """Whether its Patroni says that it is the primary."""
        return _ask(f"http://127.0.0.1:{self.api}/primary") is not None

    def freeze(self) -> None:
        """SIGSTOP of everything, all connections open: a host that hangs."""
        self.patroni.signal(signal.SIGSTOP)
        os.kill(
            self.postmaster, signal.SIGSTOP
        )  # first, so that it makes no more of them
        for pid in children(self.postmaster):
            _kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT; Postgres is first, as nobody can choose on a host that hung."""
        for pid in (*children(self.postmaster), self.postmaster, self.patroni.pid):
            _kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL of everything: a host that is gone."""
        self.patroni.kill()
        self.kill_postgres()

    def kill_postgres(self) -> None:
        """SIGKILL of Postgres, and not of its Patroni."""
        postmaster = self.postmaster
        _kill(postmaster, signal.SIGSTOP)
        for pid in (*children(postmaster), postmaster):
            _kill(pid, signal.SIGKILL)


class Stack:
    """All of them, with an empty database."""

    def __init__(self, homes: list[Path], *, is_synchronous: bool) -> None:
        self._is_synchronous = is_synchronous
        home = homes[0]
        self.etcd = Etcd(home)
        self.etcd.leader()
        self.nodes = [
            Node(n, own, self.etcd, is_synchronous=is_synchronous)
            for n, own in enumerate(homes[1:], 1)
        ]
        port = free_port()
        servers = [
            f"    server {node.name} 127.0.0.1:{node.port} check port {node.api}"
            for node in self.nodes
        ]
        file = home / "primary.cfg"
        file.write_text("\n".join([BALANCER, PRIMARY.format(port=port), *servers, ""]))
        self.wait_healthy()
        self.haproxy = Process(home, "haproxy", "-db", "-f", str(file))
        with psycopg.connect(
            self._url(f"127.0.0.1:{self.primary().port}", "postgres"), autocommit=True
        ) as conn:
            conn.execute(f"create database {DATABASE}")
        self.balanced = self._url(f"127.0.0.1:{port}")
        self.pooler = Pooler(self.balanced, home)
        self.pooled = self.pooler.url
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        self.direct = (
            f"{self._url(hosts)}?target_session_attrs=read-write&connect_timeout=3"
        )

    @staticmethod
    def _url(hosts: str, database: str = DATABASE) -> str:
        return f"postgresql://postgres@{hosts}/{database}"

    def primary(self) -> Node:
        """The node that is the primary."""
        found = wait_for(
            lambda: [node for node in self.nodes if node.is_primary()],
            HEALTHY_SECONDS,
            every=0.3,
            what="no node is the primary",
        )
        return found[0]

    def switch_over(self) -> None:
        """Ask Patroni for a planned switchover."""
        primary = self.primary()
        wish: dict[str, str] = {"leader": primary.name}
        if not self._is_synchronous:
            wish["candidate"] = next(n.name for n in self.nodes if n is not primary)
        answer = _ask(
            f"http://127.0.0.1:{primary.api}/switchover", json.dumps(wish).encode()
        )
        assert answer is not None, "Patroni refused the switchover"

    def configure(self, **settings: object) -> None:
        """Change Patroni's settings of the whole cluster."""
        where = f"http://127.0.0.1:{self.primary().api}/config"
        assert _ask(where, json.dumps(settings).encode(), "PATCH") is not None

    def is_healthy(self) -> bool:
        """Whether there is a primary, and both others follow it on its timeline."""
        for node in self.nodes:
            members = (_ask(f"http://127.0.0.1:{node.api}/cluster") or {}).get(
                "members", []
            )
            roles = sorted(member["role"] for member in members)
            standbys = [
                "replica",
                "sync_standby" if self._is_synchronous else "replica",
            ]
            if roles != sorted(["leader", *standbys]):
                return False
            if len({member.get("timeline") for member in members}) != 1:
                return False
            # bytes; "unknown" of a standby that is not up
            if any(member.get("lag", 0) not in range(1 << 20) for member in members):
                return False
            if any(
                member["state"] not in {"running", "streaming"} for member in members
            ):
                return False
        return True

    def wait_healthy(self) -> None:
        """Wait until all three are there, and again in step."""
        try:
            wait_for(
                self.is_healthy, HEALTHY_SECONDS, every=0.5, what="not healthy again"
            )
        except AssertionError as error:
            for node in self.nodes:
                error.add_note(f"{node.name}: {node.patroni.tail()}")
            raise

    def close(self) -> None:
        """End everything; each Postgres ends with its home."""
        self.pooler.close()
        for node in self.nodes:
            node.patroni.kill()
            node.way.kill()
        self.haproxy.kill()
        for member in self.etcd.members:
            member.kill()


def _at(port: int) -> dict[str, str]:
    return {"listen": f"127.0.0.1:{port}", "connect_address": f"127.0.0.1:{port}"}


def _ask(
    url: str, body: bytes | None = None, method: str | None = None
) -> dict[str, Any] | None:
    """Return the JSON that a program of the stack answers with status 200; None otherwise."""
    request = urllib.request.Request(url, body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20 if body else 2) as answer:
            text = answer.read().decode()
    except OSError:
        return None
    try:
        return dict(json.loads(text))
    except ValueError:  # a sentence
        return {}


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@contextlib.contextmanager
def stack(*, is_synchronous: bool) -> Iterator[Stack]:
    """All of it until the block or this process ends."""
    homes = [Path(tempfile.mkdtemp(prefix="redrive-ha-")) for _ in range(4)]
    with contextlib.ExitStack() as ends:
        for home in homes:
            home.chmod(0o755)
            ends.enter_context(guarded_process(home, home / "data" / "postmaster.pid"))
        started = Stack(homes, is_synchronous=is_synchronous)
        ends.callback(started.close)
        yield started
