"""redrive worker ls: list workers, their queues, and when each was last seen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.options import cells_options, json_option, pager_option
from redrive.cli.support.output import length, listing
from redrive.live_jobs.surroundings.workers import find
from redrive.rules.rows import Row

if TYPE_CHECKING:
    from redrive.settings import Settings

COLUMNS = (
    "name",
    "version",
    "state",
    "slots",
    "inflight",
    "started",
    "heard",
    "queues",
    "kinds",
)
KINDS_SHOWN = 3


@click.command("ls")
@cells_options()
@json_option
@pager_option
def list_workers(cells: "Sequence[Settings]") -> int:
    """List the workers, and when each was last seen.

    Each is working, draining, silent for longer than its REDRIVE_HEARTBEAT_TTL, or lost.

    \b
    redrive worker ls
    """
    answers, code = ask_each(cells, _read)
    rows = [cell | row for cell, workers in answers for row in workers]
    columns = ("cell", *COLUMNS) if len(cells) > 1 else COLUMNS
    listing(
        rows,
        columns,
        for_people=_for_people,
        right=("slots", "inflight"),
        empty="no worker",
    )

    return code


def _read(settings: "Settings") -> list[Row]:
    with database(settings) as conn:
        return find(conn)


def _for_people(row: Row) -> Row:
    return row | {
        "started": f"{length(row['uptime_seconds'])} ago",
        "heard": f"{length(row['heartbeat_age_seconds'])} ago",
        "queues": "all" if row["queues"] is None else ", ".join(row["queues"]),
        "kinds": _short(row["kinds"] or []),
    }


def _short(kinds: list[str]) -> str:
    text = ", ".join(kinds[:KINDS_SHOWN])
    more = len(kinds) - KINDS_SHOWN
    return f"{text} and {more} more" if more > 0 else text
