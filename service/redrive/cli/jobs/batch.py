"""redrive batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import click
import psycopg
from psycopg.rows import dict_row

from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import Id, database_option, json_option, settings_for
from redrive.cli.support.output import (
    emit,
    listing,
    not_found,
    printable_fields,
    shown_id,
)

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
SELECT: LiteralString = """
    select b.id,
           coalesce(b.outcome,
                    case when b.closed_at is null then 'open'
                         when n.dead > 0 and n.waiting = 0 then 'held' else 'running' end) as state,
           n.total, n.waiting, n.succeeded, n.dead, n.cancelled,
           b.created_at, b.close_by, b.closed_at, b.ended_at, b.over_at, b.on_success, b.on_end
    from redrive.batches b
    cross join lateral (
        select coalesce(sum(d.total), 0)::bigint as total,
               coalesce(sum(d.total - d.succeeded - d.dead - d.cancelled), 0)::bigint as waiting,
               coalesce(sum(d.succeeded), 0)::bigint as succeeded,
               coalesce(sum(d.dead), 0)::bigint as dead,
               coalesce(sum(d.cancelled), 0)::bigint as cancelled
        from redrive.batch_deltas d where d.batch = b.id) n"""


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
    query = SELECT + " where b.over_at is null or %s order by b.id desc limit %s"
    right = ("id", *COUNTS)
    empty = "every batch is over"
    with _cursor(database_url) as cursor:
        rows = cursor.execute(query, (show_all, limit))
        listing(
            rows,
            COLUMNS,
            as_json=as_json,
            right=right,
            empty=empty,
        )


@contextmanager
def _cursor(database_url: str | None) -> Iterator[psycopg.Cursor[dict[str, Any]]]:
    with database(settings_for(database_url)) as conn:
        yield conn.cursor(row_factory=dict_row)


@batch.command()
@click.argument("id", type=Id())
@database_option
@json_option
def show(id: int, database_url: str | None, as_json: bool) -> int:  # noqa: A002 # its name everywhere
    """Show one batch: the outcomes of its jobs, and its callbacks.

    \b
    redrive batch show 4
    """
    with _cursor(database_url) as cursor:
        row = cursor.execute(SELECT + " where b.id = %s", (id,)).fetchone()
    if row is None:
        return not_found(f"there is no batch {id}")
    if as_json:
        emit(row)
        return Exit.DONE
    row["id"] = shown_id(row["id"])
    for name, text in printable_fields(row).items():
        click.echo(f"{name:<12}{text}")
    return Exit.DONE
