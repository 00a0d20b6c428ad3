"""Results of a statement: its rows by column, or its single value."""

from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row, scalar_row

Connection = psycopg.Connection[Any]


def rows(
    conn: Connection, statement: LiteralString, *values: object
) -> list[dict[str, Any]]:
    """Run a statement and return its rows."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement, values).fetchall()


def value(conn: Connection, statement: LiteralString, *values: object) -> Any:
    """Run a statement and return its single value."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute(statement, values).fetchone()
