"""Results of a statement: its rows by column, its records, or its values.

The parameters of a statement are given by position or by name, and not both.
"""

from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.rows import class_row, dict_row, scalar_row

from redrive.rules.rows import Row

Connection = psycopg.Connection[Any]
T = TypeVar("T")


def rows(
    conn: Connection, statement: LiteralString, /, *values: object, **named: object
) -> list[Row]:
    """Run a statement and return its rows."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement, named or values or None).fetchall()


def first_row(
    conn: Connection, statement: LiteralString, /, *values: object, **named: object
) -> Row | None:
    """Run a statement and return its first row, if there is one."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement, named or values or None).fetchone()


def records(
    conn: Connection,
    of: type[T],
    statement: LiteralString,
    /,
    *values: object,
    **named: object,
) -> list[T]:
    """Run a statement and return its rows as objects of a class."""
    with conn.cursor(row_factory=class_row(of)) as cursor:
        return cursor.execute(statement, named or values or None).fetchall()


def first_record(
    conn: Connection,
    of: type[T],
    statement: LiteralString,
    /,
    *values: object,
    **named: object,
) -> T | None:
    """Run a statement and return its first row as an object, if there is one."""
    with conn.cursor(row_factory=class_row(of)) as cursor:
        return cursor.execute(statement, named or values or None).fetchone()


def column(
    conn: Connection, statement: LiteralString, /, *values: object, **named: object
) -> list[Any]:
    """Run a statement and return its only column."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(statement, named or values or None).fetchall()


def value(
    conn: Connection, statement: LiteralString, /, *values: object, **named: object
) -> Any:
    """Run a statement and return its single value; None if it has no row."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(statement, named or values or None).fetchone()
