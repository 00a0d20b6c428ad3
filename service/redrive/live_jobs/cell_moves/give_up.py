"""Give up a move to another cell: jobs on the way return to the cell that they left.

First the destination refuses the move. From then on it is certain which jobs have come,
even if a stopped mover wakes up. These are dropped here. The others get their old rows
and ids back. A run that was killed is continued by the next one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from redrive.database.rows import Connection, value
from redrive.encryption import configured
from redrive.live_jobs.cell_moves.documents import renumbered
from redrive.live_jobs.cell_moves.moves import CHUNK, Move, drop, end

_WAITING: LiteralString = """
    select array(select id from redrive.moved_jobs where move = %s and data is not null)"""
_CAME: LiteralString = """
    select count(*) from redrive.imports i
    join redrive.moves m on i.source = redrive.move_source_v1(m.cell, m.id)
    where m.id = %s and i.source_id = any (%s::text[])"""
_LEFT: LiteralString = """
    select id, data::text from redrive.moved_jobs where move = %s and data is not null
    order by id limit %s"""


@dataclass(slots=True)
class Returned:
    """Numbers of a move that is given up.

    Attributes:
        put_back: jobs and dead letters that are back in the source.
        known: jobs that were left out, because the source has their idempotency key.
        there: jobs and dead letters that the destination has.
    """

    put_back: int = 0
    known: int = 0
    there: int = 0


def find(source: Connection, move: Move) -> UUID | None:
    """Return the id of the move, unless it has ended or never began."""
    return value(
        source,
        "select (select id from redrive.moves where tenant = %s and cell = %s"
        " and not is_incoming and ended_at is null)",
        *(move.key, move.to),
    )


def look(source: Connection, there: Connection | None, number: UUID) -> Returned:
    """Preview the return of a move's jobs; `there`: None if it is lost."""
    ids: list[int] = value(source, _WAITING, number)
    came: int = 0
    if there is not None:
        names = list(map(str, ids))
        came = value(there, _CAME, number, names)

    left = len(ids) - came
    return Returned(put_back=left, there=came)


def run(
    source: Connection, there: Connection | None, move: Move, number: UUID
) -> Iterator[Returned]:
    """Return the jobs and end the move; yield the numbers after each commit.

    Args:
        there: connection to the destination; None: it is lost for good.
        number: id of the move, from `find`.
    """
    done = Returned()
    while True:
        left = dict(source.execute(_LEFT, (number, CHUNK)).fetchall())
        if there is None:
            came = {}
        else:
            came = _refuse(there, move, number, list(left))

        yield done
        drop(source, number, came)
        done.there += len(came)
        yield done

        rest = {job: data for job, data in left.items() if job not in came}
        if rest:
            known = _put_back(source, move, number, rest)
            done.known += known
            done.put_back += len(rest) - known
            yield done
        # A stopped mover that woke up may have taken out more.
        elif end(source, number, is_incoming=False):
            yield done
            break

    if there is not None:
        end(there, number, is_incoming=True)

    yield done


def _refuse(
    there: Connection, move: Move, number: UUID, ids: list[int]
) -> dict[int, int]:
    """Let the destination refuse the move; return the ids there of jobs that came."""
    return dict(
        there.execute(
            "select source_id, id from redrive.refuse_move_v1(%s, %s, %s, %s)",
            (number, move.key, move.origin, ids),
        ).fetchall()
    )


def _put_back(
    source: Connection, move: Move, number: UUID, documents: dict[int, str]
) -> int:
    """Put documents back; return how many jobs were left out."""
    keyring = configured()
    rows = [
        renumbered(data, old=job, new=job, keyring=keyring)
        for job, data in documents.items()
    ]
    return source.execute(
        "select redrive.put_back_v1(%s, %s, %s, %s)",
        (number, f"[{','.join(rows)}]", move.actor, move.why),
    ).rowcount
