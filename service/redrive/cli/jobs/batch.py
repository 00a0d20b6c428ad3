"""redrive batch."""

import click

from redrive.cli.support.connection import database
from redrive.cli.support.exits import NotFound
from redrive.cli.support.options import Id, database_option, json_option, settings_for
from redrive.cli.support.output import (
    answer,
    listing,
    printable_fields,
    shown_id,
)
from redrive.live_jobs import batches

COLUMNS = (
    "id",
    "state",
    "total",
    "waiting",
    "succeeded",
    "dead",
    "cancelled",
    "created_at",
)
COUNTS = ("total", "waiting", "succeeded", "dead", "cancelled")


@click.group()
def batch() -> None:
    """Batches: jobs with a callback that runs when all have ended."""


@batch.command("ls")
@click.option("--all", "show_all", is_flag=True, help="Include batches that are over.")
@click.option(
    "--limit",
    type=Id(),
    default=100,
    help="At most this many. [default: 100]",
)
@database_option
@json_option
def list_batches(
    *, show_all: bool, limit: int, database_url: str | None, as_json: bool
) -> None:
    """List the batches that are not over, the newest first.

    \b
    redrive batch ls --all
    """
    right = ("id", *COUNTS)
    empty = "every batch is over"
    with database(settings_for(database_url)) as conn:
        rows = batches.newest(conn, show_all=show_all, limit=limit)
        listing(
            rows,
            COLUMNS,
            as_json=as_json,
            right=right,
            empty=empty,
        )


@batch.command()
@click.argument("id", type=Id())
@database_option
@json_option
def show(id: int, database_url: str | None, as_json: bool) -> None:  # noqa: A002 # its name everywhere
    """Show one batch: the outcomes of its jobs, and its callbacks.

    \b
    redrive batch show 4
    """
    with database(settings_for(database_url)) as conn:
        row = batches.show(conn, id)
    if row is None:
        raise NotFound(f"there is no batch {id}")
    fields = printable_fields(row | {"id": shown_id(row["id"])})
    lines = (f"{name:<12}{text}" for name, text in fields.items())
    answer(row, "\n".join(lines), as_json=as_json)
