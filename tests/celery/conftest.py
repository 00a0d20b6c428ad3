"""A Redis, an application with Celery on it, and the workers of both sides."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.celery.harness import Shop, databases, redis_server
from tests.cli.conftest import redrive, started
from tests.flow.conftest import keys, workers
from tests.flow.harness import Workers
from tests.postgres import Database

__all__ = ["keys", "redrive", "started", "workers"]


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis of the tests' own."""
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server")
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def shop(redis: str, database: Database, tmp_path: Path) -> Iterator[Shop]:
    """The application, on a database of its own in the Redis."""
    with ExitStack() as undo:
        yield Shop(tmp_path, database.url, f"{redis}/{next(databases)}", undo)


@pytest.fixture
def sending(shop: Shop, workers: Workers) -> Callable[..., Any]:
    """Start a worker of Redrive that sends tasks back."""

    def start(**environment: Any) -> Any:
        names = ("SHOP_HOME", "SHOP_DATABASE_URL", "SHOP_BROKER")
        given = {name: shop.environment[name] for name in names} | environment
        return workers(handlers="tests.celery.shop:jobs", **given)

    return start
