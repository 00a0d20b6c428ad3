"""Connections of commands to a known schema, and the wait for one at start."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click
import psycopg

from redrive.cli.support.exits import Exit, NotFound
from redrive.cli.support.output import warn
from redrive.database.ask import outcomes
from redrive.database.connections.address import Address
from redrive.database.connections.trouble import first_line
from redrive.database.rows import Connection
from redrive.database.schema import migrate
from redrive.dead_letters.runs import hold_lock
from redrive.errors import Busy, InvalidJob, SchemaError, SchemaTooNew, SettingsError

if TYPE_CHECKING:
    from redrive.settings import Settings

T = TypeVar("T")

logger = logging.getLogger("redrive.cli")

UNREACHABLE_PATIENCE = 60.0
"""Minimum seconds to wait for the database, which often starts beside its workers."""

PATIENCE_SECONDS = 120.0
"""How long a command waits for what it reads; a frozen database never answers."""

RULE = "RD001"
"""SQLSTATE of Redrive's own rules, whose messages are sentences for users."""

UNREACHABLE = "the database cannot be reached"


@contextmanager
def database(
    settings: "Settings", *, any_schema: bool = False, **session: str
) -> Iterator[Connection]:
    """Yield an autocommit connection.

    Args:
        any_schema: accept a schema that this program does not know.
        session: settings of the session.

    Raises:
        SchemaError: the schema is missing, too old or too new.
    """
    with settings.address().connect(
        "redrive cli",
        # The default is for short calls. A command may read or change many rows.
        statement_timeout="0",
        **session,
    ) as conn:
        if not any_schema:
            migrate.require(conn)

        yield conn


Answer = tuple[dict[str, str], T]
"""Columns that name a cell, and the cell's answer."""


def ask_each(
    cells: Sequence["Settings"],
    read: Callable[["Settings"], T],
    seconds: float = PATIENCE_SECONDS,
) -> tuple[list[Answer[T]], Exit]:
    """Read every cell, all at once; return the rows and the exit code.

    With several cells, each row gets a column that names its cell. A cell that does not
    answer in time is reported on stderr, and the others are still shown. With one cell
    there is no such column, and its error is raised.
    """
    asked: dict[str, Callable[[], T]] = {}
    for settings in cells:
        cell = str(settings.cell)
        asked[cell] = partial(read, settings)

    answers, errors = outcomes(asked, seconds)

    if len(cells) > 1:
        rows = [({"cell": cell}, answer) for cell, answer in answers.items()]
        return rows, say_away(errors)

    # With one cell there is at most one error.
    for error in errors.values():
        raise error

    (answer,) = answers.values()
    return [({}, answer)], Exit.DONE


def say_away(away: Mapping[str, Exception]) -> Exit:
    """Report the cells that do not answer, on stderr; return the exit code."""
    worst = Exit.DONE
    for cell, error in away.items():
        code, text = explain(error)
        warn(f"cell {cell}: {text}")
        worst = max(worst, code)

    return worst


@contextmanager
def only_one(settings: "Settings", name: str) -> Iterator[None]:
    """Hold the named lock on a connection of its own, for one run at a time.

    Raises:
        Busy: another run holds it.
    """
    with database(settings) as holder, holder.transaction():
        hold_lock(holder, name)
        yield


def wait_for_schema(where: Address, patience: float) -> None:
    """Wait until the database answers with a schema that this program knows and may use.

    In a cluster, database, migration, workers and exporter all start at once.

    Args:
        patience: seconds until a missing or old schema is an error.

    Raises:
        SettingsError: the URL cannot be read.
        SchemaError: the schema is still missing or too old, or it is too new.
        psycopg.OperationalError: the database still cannot be reached.
        psycopg.errors.InsufficientPrivilege: the login still may not use the schema.
    """
    began = time.monotonic()
    logged = ""

    while (trouble := _trouble_at_start(where)) is not None:
        limit = patience
        _, text = explain(trouble)
        if isinstance(trouble, psycopg.OperationalError):
            limit = max(patience, UNREACHABLE_PATIENCE)

        if time.monotonic() - began > limit:
            raise trouble

        # Log a cause when it changes, and not every second.
        if text != logged:
            logger.warning("%s; trying again for %.0f s", text, limit)
            logged = text

        time.sleep(1.0)


def _trouble_at_start(where: Address) -> Exception | None:
    """Return why the schema cannot be used yet; None if it can be used."""
    try:
        with where.connect("redrive start") as conn:
            migrate.require(conn)
    except SchemaTooNew:
        # Waiting does not help: no migration makes a schema older.
        raise
    except (
        SchemaError,
        psycopg.OperationalError,
        # A login becomes a member of its role after the first migration, perhaps.
        psycopg.errors.InsufficientPrivilege,
    ) as error:
        return error

    return None


def explain(error: BaseException) -> tuple[Exit, str]:
    """Return the exit code and the text of an error."""
    match error:
        case click.Abort() | KeyboardInterrupt():
            return Exit.FAILED, "stopped"
        case psycopg.Error():
            return _explain_database(error)
        case OSError(strerror=str(text)):
            name = f"{error.filename}: " if error.filename else ""
            return Exit.FAILED, f"{name}{text}"
        case _:
            return _code_of(error), str(error)


def _code_of(error: BaseException) -> Exit:
    match error:
        case SettingsError() | InvalidJob():
            return Exit.USAGE
        case NotFound():
            return Exit.NOTHING_MATCHED
        case SchemaError():
            return Exit.SCHEMA
        case Busy():
            return Exit.BUSY
        case _:
            return Exit.FAILED


def _explain_database(error: psycopg.Error) -> tuple[Exit, str]:
    match error:
        case psycopg.OperationalError(sqlstate=None):
            # Without SQLSTATE, the error is about the connection, and not a query.
            return Exit.UNREACHABLE, f"{UNREACHABLE}: {first_line(error)}"

        case psycopg.errors.InsufficientPrivilege():
            hint = "docs/roles.md says which role may do it"
            return Exit.FAILED, f"{refused(error)}; {hint}"

        case _:
            return Exit.FAILED, refused(error)


def refused(error: psycopg.Error) -> str:
    """Return a database error's message without DETAIL, which holds row values."""
    message = error.diag.message_primary
    if not message:
        message = type(error).__name__
    if error.sqlstate == RULE:
        return message

    return f"the database refused: {message} ({error.sqlstate})"
