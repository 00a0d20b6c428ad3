"""Meaning of database errors for the statement that met them."""

import re
from enum import Enum

import psycopg


class Trouble(Enum):
    """Meaning of a database error for the statement that met it."""

    LOST = "the connection is gone, and whether the statement took effect is unknown"
    AGAIN = "the statement was rolled back whole and may be sent again"
    DATA = "the database rejects a value; sending the statement again cannot help"
    FATAL = "a matter of configuration or a bug"


_MEANING = {
    # Class 28: the password has changed.
    Trouble.LOST: ("08", "28", "57P", "25006", "25P03"),
    Trouble.AGAIN: ("40", "53", "55P03", "57014"),
    # P0001: raised by a user's trigger.
    Trouble.DATA: ("22", "23", "54", "P0001"),
}
"""Meaning of the first characters of a SQLSTATE. We cannot recover from any other."""


def trouble(error: psycopg.Error) -> Trouble:
    """Classify an error by its SQLSTATE.

    A cut, refused or crashed connection has none.
    """
    state = error.sqlstate
    if state is not None:
        return _meaning(state)

    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return Trouble.LOST

    if isinstance(error, psycopg.DataError):
        return Trouble.DATA

    return Trouble.FATAL


def _meaning(sqlstate: str) -> Trouble:
    for meaning, prefixes in _MEANING.items():
        if sqlstate.startswith(prefixes):
            return meaning
    return Trouble.FATAL


_RAISED_IN = re.compile(r"PL/pgSQL function (\S{1,200}\([^)]{0,400}\))")


def first_line(error: Exception) -> str:
    """Return the first line of an error's text.

    libpq adds every address that it tried on further lines. The line never holds the
    password.
    """
    return (str(error).strip() or type(error).__name__).partition("\n")[0]


def refusal(error: psycopg.Error) -> str:
    """Return why a call failed, without values.

    It names the constraint, the trigger function, the missing right, or what keeps us
    from the server, without its address.
    """
    diag = error.diag
    if (diag.message_primary or "").startswith("permission denied for "):
        return f"{diag.message_primary} ({error.sqlstate})"
    if isinstance(error, psycopg.OperationalError) and not diag.sqlstate:
        return first_line(error).rpartition("failed: ")[2]

    name = f"{type(error).__name__} ({error.sqlstate})"
    if diag.constraint_name is not None:
        table = f"{diag.schema_name}.{diag.table_name}"
        return f"{name}, by constraint {diag.constraint_name} of table {table}"

    innermost = _RAISED_IN.match(diag.context or "")
    if innermost:
        return f"{name}, in {innermost[1]}"
    return name
