"""redrive retention."""

from collections.abc import Mapping, Sequence

import click

from redrive.cli.support.options import Run, conn_options, json_option
from redrive.cli.support.output import listing
from redrive.cli.support.verbs import pairs_argument, set_each, set_options
from redrive.database import retention as stored
from redrive.database.rows import Connection
from redrive.rules.instants import typed
from redrive.rules.rows import Row
from redrive.verbs.declared import DECLARED

SET = DECLARED["set-retention"]


@click.group()
def retention() -> None:
    """Set how long data other than dead letters is kept.

    Workers delete older data in the background. redrive purge deletes it at once.
    """


@retention.command("ls")
@conn_options
@json_option
def list_retention(conn: Connection) -> None:
    """List the kinds of data, and how long each is kept.

    \b
    redrive retention ls
    """
    rows = [{"what": what, "seconds": seconds} for what, seconds in stored.read(conn)]
    listing(rows, ("what", "kept", "of"), for_people=_for_people, right=("kept",))


def _for_people(row: Row) -> Row:
    return row | {"kept": typed(row["seconds"]), "of": stored.MEANINGS[row["what"]]}


@retention.command("set")
@pairs_argument(SET)
@set_options
def set_retention(wanted: Sequence[tuple[str, Mapping[str, str]]], run: Run) -> int:
    """Set the retentions that differ; the others stay.

    \b
    redrive retention set audit=800d keys=14d --why 'the auditors ask for two years'

    Waits for the schema, as a worker does.
    """
    return set_each(SET, run, wanted)
