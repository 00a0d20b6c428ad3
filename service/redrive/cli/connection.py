"""Connections of commands: to a schema this program knows, and waiting for one at start."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from redrive.database import connect, migrate
from redrive.database.connect import Address
from redrive.dead_letters.runs import hold_lock
from redrive.errors import SchemaError, SchemaTooNew

if TYPE_CHECKING:
    from redrive.settings import Settings

logger = logging.getLogger("redrive.cli")

UNREACHABLE_PATIENCE = 60.0
"""Seconds that a database gets at least to come up: it often starts beside its workers."""


@contextmanager
def database(
    settings: "Settings", *, any_schema: bool = False
) -> Iterator[psycopg.Connection[Any]]:
    """An autocommit connection.

    Args:
        any_schema: also to a database whose schema this program does not know.

    Raises:
        SchemaError: the schema is missing, too old or too new.
    """
    with connect.connect(settings.url(), name="redrive cli", statement_timeout="0") as conn:
        if not any_schema:
            migrate.require(conn)
        yield conn


@contextmanager
def only_one(settings: "Settings", name: str) -> Iterator[None]:
    """Hold the lock of this name, on a connection of its own, so that one run works at a time.

    Raises:
        Busy: another run holds it.
    """
    with database(settings) as holder, holder.transaction():
        hold_lock(holder, name)
        yield


def wait_for_schema(where: Address, patience: float) -> None:
    """Wait until the database answers with a schema this program knows.

    In a cluster, database, migration, workers and exporter all start at once.

    Args:
        patience: seconds until a missing or old schema is an error.

    Raises:
        SettingsError: the URL cannot be read.
        SchemaError: the schema is still missing or too old, or it is too new.
        psycopg.OperationalError: the database is still out of reach.
    """
    began = time.monotonic()
    while True:
        try:
            with connect.connect(where.read(), name="redrive start") as conn:
                return migrate.require(conn)
        except SchemaTooNew:
            raise
        except SchemaError as error:
            limit, trouble = patience, error
            what = first_line(error)
        except psycopg.OperationalError as error:
            limit, trouble = max(patience, UNREACHABLE_PATIENCE), error
            what = f"the database is out of reach: {first_line(error)}"
        if time.monotonic() - began > limit:
            raise trouble
        logger.warning("%s; trying again", what)
        time.sleep(1.0)


def first_line(error: Exception) -> str:
    """The first line of an error's text. libpq's goes on with every address it tried.

    It never holds the password.
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


def refused(error: psycopg.Error) -> str:
    """What the database said, without its DETAIL, which holds values of rows."""
    message = error.diag.message_primary or type(error).__name__
    return f"the database refused: {message} ({error.sqlstate})"


def trouble_of(failures: int, fault: str | None) -> str | None:
    """What /readyz says of a link to the database; None = it is well."""
    if not failures:
        return None
    return f"{failures} calls failed in a row" + (f": {fault}" if fault else "")
