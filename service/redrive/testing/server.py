"""A migrated Postgres that a test run has to itself."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from redrive.database.embedded import NEWEST, THROWAWAY, EmbeddedPostgres, guarded
from redrive.database.migrate import migrate

UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Faster, and none of it outlives the tests."""


@contextlib.contextmanager
def postgres(version: int = NEWEST) -> Iterator[str]:
    """Serve a Postgres with Redrive's schema while the block runs, and give its URL.

    It wants the extra `embedded` and listens on a free port of loopback. Server and data are gone
    with the block, or with this process, however that ends.

    Args:
        version: the major version, 14 to 18 as far as the extra brings it.

    Raises:
        SettingsError: the extra is not installed.
    """
    home = Path(tempfile.mkdtemp(prefix="redrive-testing-"))
    server = EmbeddedPostgres(home, version, settings={**UNSAFE, "cluster_name": THROWAWAY})
    with guarded(home, version):
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            migrate(conn)
        yield server.url()
