"""A migrated Postgres in a temporary directory, for tools that need a real server."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from redrive.database.embedded import EmbeddedPostgres
from redrive.database.schema.migrate import migrate


@contextlib.contextmanager
def scratch_postgres() -> Iterator[EmbeddedPostgres]:
    """Yield a server with the schema in its default database.

    Callers may write to its `home`.
    """
    with tempfile.TemporaryDirectory(prefix="redrive-tools-") as directory:
        home = Path(directory)
        home.chmod(0o755)  # as root, the server runs as another user
        postgres = EmbeddedPostgres(home)
        postgres.start()
        try:
            with psycopg.connect(postgres.url(), autocommit=True) as conn:
                migrate(conn)
            yield postgres
        finally:
            postgres.stop("immediate")
