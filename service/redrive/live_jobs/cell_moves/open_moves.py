"""Moves to another cell that have stopped, with jobs that are in no cell."""

from typing import NamedTuple

from redrive.database.rows import Connection, records

STOPPED_MINUTES = 10
"""Age of a job that was taken out. A move takes seconds, unless jobs of it run."""


class Stopped(NamedTuple):
    """Move that has not ended, and how many jobs it has taken out."""

    key: str
    to: str
    jobs: int
    minutes: int


def stopped(conn: Connection) -> list[Stopped]:
    """Return the moves that took jobs out long ago; the oldest come first."""
    return records(
        conn,
        Stopped,
        "select m.tenant as key, m.cell as to, count(*) as jobs,"
        " (extract(epoch from now() - min(j.at)) / 60)::int as minutes"
        " from redrive.moved_jobs j join redrive.moves m on m.id = j.move"
        " where j.data is not null and m.ended_at is null group by m.id"
        " having min(j.at) < now() - make_interval(mins => %s) order by min(j.at)",
        STOPPED_MINUTES,
    )
