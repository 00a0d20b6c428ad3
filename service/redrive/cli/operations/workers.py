"""redrive worker ls: list workers, their queues, and when each was last seen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.options import cells_options, json_option, pager_option
from redrive.cli.support.output import listing
from redrive.jobs.workers import find
from redrive.rules.instants import span
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

    Each is working, draining, silent for longer than its REDRIVE_HEARTBEAT_TTL, or
    lost.

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
    uptime = span(row["uptime_seconds"])
    silence = span(row["heartbeat_age_seconds"])
    kinds: list[str] = row["kinds"] or []
    queues = "all"
    if row["queues"] is not None:
        queues = ", ".join(row["queues"])

    return row | {
        "started": f"{uptime} ago",
        "heard": f"{silence} ago",
        "queues": queues,
        "kinds": _short(kinds),
    }


def _short(kinds: list[str]) -> str:
    text = ", ".join(kinds[:KINDS_SHOWN])
    more = len(kinds) - KINDS_SHOWN
    if more > 0:
        text += f" and {more} more"

    return text
