"""redrive batch."""

import click

from redrive.cli.support.exits import NotFound
from redrive.cli.support.options import Id, conn_options, json_option
from redrive.cli.support.output import answer, listing, printable_fields, shown_id
from redrive.database.rows import Connection
from redrive.jobs import batches

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
    "--limit", type=Id(), default=100, help="At most this many. [default: 100]"
)
@conn_options
@json_option
def list_batches(*, show_all: bool, limit: int, conn: Connection) -> None:
    """List the batches that are not over, the newest first.

    \b
    redrive batch ls --all
    """
    rows = batches.newest(conn, show_all=show_all, limit=limit)
    listing(rows, COLUMNS, right=("id", *COUNTS), empty="every batch is over")


@batch.command()
@click.argument("id", type=Id())
@conn_options
@json_option
def show(id: int, conn: Connection) -> None:  # noqa: A002 # its name everywhere
    """Show one batch: the outcomes of its jobs, and its callbacks.

    \b
    redrive batch show 4
    """
    row = batches.show(conn, id)
    if row is None:
        raise NotFound(f"there is no batch {id}")

    shown = row | {"id": shown_id(row["id"])}
    lines: list[str] = []
    for name, text in printable_fields(shown).items():
        lines.append(f"{name:<12}{text}")

    answer(row, "\n".join(lines))
