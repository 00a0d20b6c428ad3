"""Workers in processes of their own, on the test's database."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.harness import Workers, workers_on
from tests.postgres import Database


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("REDRIVE_") and not name.startswith("REDRIVE_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture
def workers(database: Database, tmp_path: Path) -> Iterator[Workers]:
    """Start workers by calling it; they end with the test."""
    with workers_on(database.url, tmp_path) as started:
        yield started
