"""A Redis, an application with Celery on it, and the workers of both sides."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from redrive.database.embedded import free_port
from tests.celery import client
from tests.cli.conftest import redrive, started
from tests.flow.conftest import workers
from tests.flow.harness import ROOT, Workers, children, wait_for
from tests.postgres import Database

__all__ = ["redrive", "started", "workers"]


class CeleryWorker:
    """One `celery worker`; it ends with the test."""

    def __init__(self, shop: "Shop", *arguments: str, pool: str = "prefork") -> None:
        self.log = shop.home / f"celery-{len(list(shop.home.glob('celery-*')))}.log"
        command = [sys.executable, "-m", "celery", "-A", "tests.celery.shop", "worker"]
        options = (
            "-P",
            pool,
            "-c",
            "2",
            "-l",
            "info",
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
            return " ready." in self.log.read_text()

        wait_for(is_ready, 120, what=self.log.read_text)
        return self

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(120)

    def kill(self) -> None:
        """Kill all of its processes."""
        for pid in (self.process.pid, *self.pool):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
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
        self._undo = undo

    def worker(self, *arguments: str, **options: Any) -> CeleryWorker:
        """Start a worker of Celery, and wait until it takes tasks."""
        worker = CeleryWorker(self, *arguments, **options)
        self._undo.callback(worker.kill)
        return worker.wait_ready()

    def send(self, name: str, *args: Any, **options: Any) -> str:
        """Send a task, and return its id."""
        return client.app(self.broker).send_task(name, args, **options).id

    def waiting(self) -> int:
        """Return the number of records in the spool."""
        return len(list(self.spool.glob("*.json")))

    def lines(self, name: str) -> list[str]:
        """Return what tasks wrote down."""
        path = self.home / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis of the tests' own."""
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server")
    port = free_port()
    home = tmp_path_factory.mktemp("redis")
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(home)]
    command += ["--bind", "127.0.0.1", "--databases", "4096"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        answers = lambda: client.answers(port)  # noqa: E731
        wait_for(answers, 60)
        yield f"redis://127.0.0.1:{port}"
        server.terminate()


@pytest.fixture
def shop(redis: str, database: Database, tmp_path: Path) -> Iterator[Shop]:
    """The application, on a database of its own in the Redis."""
    with ExitStack() as undo:
        yield Shop(tmp_path, database.url, f"{redis}/{client.next_database()}", undo)


@pytest.fixture
def sending(shop: Shop, workers: Workers) -> Callable[..., Any]:
    """Start a worker of Redrive that sends tasks back."""

    def start(**environment: Any) -> Any:
        names = ("SHOP_HOME", "SHOP_DATABASE_URL", "SHOP_BROKER")
        given = {name: shop.environment[name] for name in names} | environment
        return workers(handlers="tests.celery.shop:jobs", **given)

    return start
