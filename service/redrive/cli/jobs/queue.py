"""redrive queue."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, LiteralString, NamedTuple

import click

from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.options import Run, cells_options, conn_options, json_option
from redrive.cli.support.output import (
    emit_each,
    listing,
    printable,
    table,
    wants_json,
    wrapped,
)
from redrive.cli.support.unhandled import sentence
from redrive.cli.support.verbs import add_verbs, pairs_argument, set_each, set_options
from redrive.database.rows import Connection
from redrive.database.rows import rows as rows_of
from redrive.jobs import names
from redrive.jobs.queues import queues
from redrive.jobs.unhandled import Unhandled, unhandled
from redrive.rules.instants import span
from redrive.rules.rows import Fields, Row
from redrive.verbs.declared import DECLARED
from redrive.verbs.queues import QUEUES

if TYPE_CHECKING:
    from redrive.settings import Settings

_FAIR: LiteralString = "select queue from redrive.shown_queues where lanes > 1"
_LIMITED: LiteralString = "select queue, waiting from redrive.limited_v1()"
STATES = ("ready", "scheduled", "retrying", "running", "dead")


@click.group()
def queue() -> None:
    """Queues: what they hold, pause, resume, set, limit."""


@queue.command("ls")
@cells_options()
@json_option
def list_queues(cells: "Sequence[Settings]") -> int:
    """List the queues, their jobs by state, and kinds without a worker.

    \b
    redrive queue ls
    """
    answers, code = ask_each(cells, _read)
    rows = [cell | row for cell, seen in answers for row in seen.queues]
    if wants_json():
        emit_each(rows)
        return code

    _show_queues(rows)
    for cell, seen in answers:
        for found in seen.unhandled:
            click.echo(wrapped(_named(cell) + sentence(found)))

    return code


class _Seen(NamedTuple):
    """Queues of a cell, and the kinds without a worker."""

    queues: list[Row]
    unhandled: list[Unhandled]


def _read(settings: "Settings") -> _Seen:
    with database(settings) as conn:
        fair = {row["queue"] for row in rows_of(conn, _FAIR)}
        limited = {row["queue"]: row["waiting"] for row in rows_of(conn, _LIMITED)}
        waiting = unhandled(conn)
        rows = queues(conn, waiting)

    for row in rows:
        queue = row["queue"]
        row["limited"] = limited.get(queue, 0)
        row["fair_by"] = "tenant" if queue in fair else None

    return _Seen(rows, waiting)


def _named(of_cell: Fields) -> str:
    """Return the prefix of a line about one of several cells."""
    return f"{of_cell['cell']}: " if "cell" in of_cell else ""


def _show_queues(rows: Sequence[Row]) -> None:
    """Print the table for people, and why due jobs do not run."""
    first = ["queue"]
    if any("cell" in row for row in rows):
        first.insert(0, "cell")

    counts = (*first, *STATES)
    table(
        (*counts, "paused", "fair by", "oldest ready"),
        [[*(row[name] for name in counts), *_described(row)] for row in rows],
        right=(*STATES, "oldest ready"),
        empty="no queue has held a job yet",
    )

    for row in rows:
        name = _named(row) + row["queue"]
        for reason in _reasons(row):
            click.echo(wrapped(f"{name}: {reason}"))


def _reasons(row: Row) -> Iterator[str]:
    """Yield why due jobs of a queue do not run."""
    if row["why"] and row["ready"]:
        yield printable(row["why"]["text"])
    if row["limited"]:
        yield f"due jobs that wait for limits: {row['limited']} (redrive limit ls)"


def _described(row: Row) -> tuple[str, str, str]:
    """Return, for people: paused or fair, and the age of its oldest ready job."""
    waited = row["oldest_ready_seconds"]
    paused = "yes" if row["paused"] else ""
    age = span(waited) if waited else ""

    return paused, row["fair_by"] or "", age


add_verbs(queue, QUEUES)


@queue.command("limits")
@conn_options
@json_option
def list_limits(conn: Connection) -> None:
    """List the numbers of queues and kinds in use, and their limits.

    \b
    redrive queue limits
    """
    listing(
        names.used(conn),
        {"what": "what", "in use": "used", "at most": "at_most", "counted": "counted"},
        for_people=lambda row: row | {"counted": names.COUNTED[row["what"]]},
        right=("in use", "at most"),
    )


@queue.command("limit")
@pairs_argument(DECLARED["limit-names"])
@set_options
def limit_names(wanted: Sequence[tuple[str, Mapping[str, str]]], run: Run) -> int:
    """Limit the numbers of queues and kinds that producers may use.

    \b
    redrive queue limit queues=5000 kinds=20000 --why 'a queue for each tenant'

    A name counts until nobody has used it for the time that `redrive retention` keeps
    names.
    """
    return set_each(DECLARED["limit-names"], run, wanted)
