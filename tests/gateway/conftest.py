"""A broker for all tests of this directory, and gateways in processes of their own."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import redrive, started
from tests.flow.conftest import keys
from tests.flow.harness import Worker
from tests.gateway.broker import Broker
from tests.postgres import Database

__all__ = ["keys", "redrive", "started"]

Gateway = Callable[..., Worker]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    home = tmp_path_factory.mktemp("broker")
    running = Broker(home)
    yield running
    running.end()


@pytest.fixture
def queue(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A work queue of the test's own, with a dead letter queue."""
    name = request.node.name.split("[")[0].removeprefix("test_")
    broker.declare(name, f"{name}.dead")
    return name


@pytest.fixture
def sources(tmp_path: Path) -> Callable[..., Path]:
    """Write the file of sources."""

    def write(**systems: Any) -> Path:
        path = tmp_path / "gateway.yaml"
        path.write_text(json.dumps(systems))
        return path

    return write


@pytest.fixture
def gateway(database: Database, tmp_path: Path) -> Iterator[Gateway]:
    """Start gateways; they end with the test."""
    with ExitStack() as stack:

        def start(sources: Path, **environment: object) -> Worker:
            running = Worker(
                database.url,
                tmp_path,
                forked=True,
                command="gateway",
                redrive_gateway=sources,
                **environment,
            )
            stack.callback(running.end)
            return running

        yield start
