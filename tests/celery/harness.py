"""The application with Celery: its Redis, its workers, and what its tasks did."""

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from celery import Celery

from redrive.database.embedded import free_port
from tests.flow.harness import ROOT, children, wait_for

databases = itertools.count()
"""Numbers of databases in the Redis: each test has its own."""


class CeleryWorker:
    """One `celery worker`; it ends with the test."""

    def __init__(
        self, shop: "Shop", *arguments: str, pool: str = "prefork", level: str = "info"
    ) -> None:
        self.home = shop.home
        self.log = shop.home / f"celery-{len(list(shop.home.glob('celery-*')))}.log"
        command = [sys.executable, "-m", "celery", "-A", "tests.celery.shop", "worker"]
        options = (
            "-P",
            pool,
            "-c",
            "2",
            "-l",
            level,
            "--without-gossip",
            "--without-mingle",
        )
        with self.log.open("ab") as written:
            self.process = subprocess.Popen(
                [*command, *options, *arguments],
                env=shop.environment,
                cwd=ROOT,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )

    @property
    def pool(self) -> list[int]:
        """The processes that run tasks."""
        return children(self.process.pid)

    def wait_ready(self) -> "CeleryWorker":
        def is_ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return (self.home / "ready" / str(self.process.pid)).exists()

        wait_for(is_ready, 120, what="the worker of Celery is not ready")
        return self

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(120)

    def kill(self) -> None:
        """Kill all of its processes."""
        for pid in (self.process.pid, *self.pool):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Shop:
    """The application: its environment, its workers, and what its tasks did."""

    def __init__(self, home: Path, url: str, broker: str, undo: ExitStack) -> None:
        self.home = home
        self.spool = home / "spool"
        self.broker = broker
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("REDRIVE_")
        } | {
            "C_FORCE_ROOT": "1",  # a container of tests may have no other user
            "SHOP_HOME": str(home),
            "SHOP_DATABASE_URL": url,
            "SHOP_BROKER": broker,
        }
        self.app = Celery("client", broker=broker)
        self._undo = undo

    def worker(self, *arguments: str, **options: Any) -> CeleryWorker:
        """Start a worker of Celery, and wait until it takes tasks."""
        worker = CeleryWorker(self, *arguments, **options)
        self._undo.callback(worker.kill)
        return worker.wait_ready()

    def send(self, name: str, *args: Any, **options: Any) -> str:
        """Send a task, and return its id."""
        return self.app.send_task(name, args, **options).id

    def waiting(self) -> int:
        """Return the number of records in the spool."""
        return len(list(self.spool.glob("*.json")))

    def lines(self, name: str) -> list[str]:
        """Return what tasks wrote down."""
        path = self.home / name
        return path.read_text().splitlines() if path.exists() else []


@contextmanager
def redis_server(home: Path) -> Iterator[str]:
    """Run a Redis, and give its URL."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(home)]
    command += ["--bind", "127.0.0.1", "--databases", "4096"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        wait_for(lambda: _answers(port))
        yield f"redis://127.0.0.1:{port}"
        server.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
