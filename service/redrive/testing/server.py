"""A temporary Postgres with Redrive's schema, for one test run."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from redrive.database.embedded import NEWEST, THROWAWAY, EmbeddedPostgres, guarded
from redrive.database.schema.migrate import migrate

UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Faster settings without durability; the data is deleted after the tests."""


@contextlib.contextmanager
def postgres(version: int = NEWEST) -> Iterator[str]:
    """Run a Postgres with Redrive's schema during the block, and yield its URL.

    The extra `embedded` must be installed. The server listens on a free port of
    loopback. Server and data are deleted after the block, or when this process ends in
    any way.

    Args:
        version: the major version, 14 to 18 if the extra contains it.

    Raises:
        SettingsError: the extra is not installed.
    """
    home = Path(tempfile.mkdtemp(prefix="redrive-testing-"))
    server = EmbeddedPostgres(
        home, version, settings={**UNSAFE, "cluster_name": THROWAWAY}
    )

    with guarded(home, version):
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            migrate(conn)

        yield server.url()
