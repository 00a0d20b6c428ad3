"""Kinds whose jobs wait while no living worker handles them."""

from typing import NamedTuple

from redrive.database.rows import Connection, records


class Unhandled(NamedTuple):
    """Due jobs of one kind that no worker handles, and the kinds handled there."""

    queue: str
    kind: str
    jobs: int
    handled: list[str]


def unhandled(conn: Connection) -> list[Unhandled]:
    """Return the kinds whose jobs wait while no live worker handles them.

    Kinds with the most jobs come first.
    """
    return records(
        conn, Unhandled, "select queue, kind, jobs, handled from redrive.unhandled_v1()"
    )
