"""Workers in processes of their own, on the test's database."""

import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive.encryption import configured
from tests.flow.harness import Workers, workers_on
from tests.postgres import Database


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("REDRIVE_") and not name.startswith("REDRIVE_TEST_"):
            monkeypatch.delenv(name)


KEYS = {
    name: f"{name} {base64.b64encode(bytes([n]) * 32).decode()}"
    for n, name in enumerate(("old", "new"))
}


@pytest.fixture
def keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Path]]:
    """Write a keyring of these keys and make it this process's own; give its path, for workers."""
    path = tmp_path / "keys"

    def write(*names: str) -> Path:
        monkeypatch.setenv("REDRIVE_ENCRYPTION_KEYS_FILE", str(path))
        path.touch(0o600)
        path.write_text("".join(f"{KEYS[name]}\n" for name in names))
        configured.cache_clear()
        return path

    yield write
    monkeypatch.undo()
    configured.cache_clear()


@pytest.fixture
def database(database: Database) -> Database:
    """A database whose tables are all published."""
    database.rows("create publication everything for tables in schema redrive")
    return database


@pytest.fixture
def workers(database: Database, tmp_path: Path) -> Iterator[Workers]:
    """Start workers by calling it; they end with the test."""
    with workers_on(database.url, tmp_path) as started:
        yield started
