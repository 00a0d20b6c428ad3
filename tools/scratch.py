"""A migrated Postgres that goes with its directory, for what asks a real one."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from redrive.database.embedded import EmbeddedPostgres
from redrive.database.migrate import migrate


@contextlib.contextmanager
def scratch_postgres() -> Iterator[EmbeddedPostgres]:
    """A server with the schema in its default database; `home` is there to be written to."""
    with tempfile.TemporaryDirectory(prefix="redrive-tools-") as directory:
        home = Path(directory)
        home.chmod(0o755)  # the server runs as somebody else when we are root
        postgres = EmbeddedPostgres(home)
        postgres.start()
        try:
            with psycopg.connect(postgres.url(), autocommit=True) as conn:
                migrate(conn)
            yield postgres
        finally:
            postgres.stop("immediate")
