"""A Postgres that can be crashed."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from redrive.database.connect import connect
from redrive.database.embedded import EmbeddedPostgres
from redrive.database.migrate import migrate
from tests.postgres import GUARD

SETTINGS = {
    # the machine stays up: what a crash of the server loses is what it had not written yet
    "fsync": "off",
    "max_connections": "120",
    "shared_buffers": "64MB",
    "restart_after_crash": "on",
    "log_min_messages": "fatal",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Minutes of faults are for those who ask: -m chaos, or REDRIVE_CHAOS_SECONDS."""
    if "chaos" in (config.option.markexpr or "") or "REDRIVE_CHAOS_SECONDS" in os.environ:
        return
    for item in items:
        if item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.skip(reason="faults for minutes: make chaos, or -m chaos"))


@pytest.fixture
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own with a migrated database `chaos`."""
    home = Path(tempfile.mkdtemp(prefix="redrive-chaos-"))
    server = EmbeddedPostgres(home, settings=SETTINGS)
    guard = subprocess.Popen(
        ["/bin/sh", "-c", GUARD, str(home), str(server.data / "postmaster.pid")],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute("create database chaos")
        with connect(server.url("chaos")) as conn:
            migrate(conn)
        yield server
    finally:
        guard.communicate()
