"""Kinds whose jobs wait while no living worker handles them."""

from typing import Any, NamedTuple

import psycopg
from psycopg.rows import class_row


class Unhandled(NamedTuple):
    """Jobs that are due on a queue with workers, and what those handle instead of their kind."""

    queue: str
    kind: str
    jobs: int
    handled: list[str]


def unhandled(conn: psycopg.Connection[Any]) -> list[Unhandled]:
    """The kinds whose jobs wait while no living worker handles them, those of most jobs first."""
    with conn.cursor(row_factory=class_row(Unhandled)) as cursor:
        return cursor.execute(
            "select queue, kind, jobs, handled from redrive.unhandled_v1()"
        ).fetchall()
