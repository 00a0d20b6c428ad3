"""Database of the jobs: one of settings.DATABASES."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo

from redrive.cli import main


def alias() -> str:
    """Return the name of the database: the setting REDRIVE_DATABASE, or "default"."""
    return getattr(settings, "REDRIVE_DATABASE", "default")


def conninfo() -> str:
    """Return the same database for psycopg, without OPTIONS that only Django knows.

    Raises:
        ImproperlyConfigured: the database is not PostgreSQL.
    """
    connection = connections[alias()]
    if connection.vendor != "postgresql":
        msg = (
            f"Redrive needs PostgreSQL, and DATABASES[{alias()!r}] is {connection.vendor};"
            " let REDRIVE_DATABASE name another one"
        )
        raise ImproperlyConfigured(msg)

    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    parameters = connection.get_connection_params().items()

    return make_conninfo(**{name: value for name, value in parameters if name in known})


def run(arguments: list[str]) -> int:
    """Run a command of Redrive for this project, and return its exit code."""
    with _defaults():
        return main(arguments)


@contextmanager
def _defaults() -> Iterator[None]:
    """Set the variables that the environment does not set.

    The environment may name another login, for example with fewer rights.
    """
    missing: dict[str, str] = {}
    if "REDRIVE_HANDLERS" not in os.environ:
        missing["REDRIVE_HANDLERS"] = "redrive.django.worker:jobs"

    if not os.environ.keys() & {"REDRIVE_DATABASE_URL", "REDRIVE_DATABASE_URL_FILE"}:
        missing["REDRIVE_DATABASE_URL"] = conninfo()

    os.environ |= missing
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]
