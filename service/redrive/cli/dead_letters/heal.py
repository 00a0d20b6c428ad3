"""redrive campaign heal: groups that the running version may have fixed."""

import click

from redrive.cli.support.options import conn_options, json_option
from redrive.cli.support.output import listing
from redrive.database.rows import Connection
from redrive.dead_letters.campaigns.heal import healing, worded

COLUMNS = ("group", "kind", "failing", "open", "version", "why")


@click.command()
@conn_options
@json_option
def heal(conn: Connection) -> None:
    """List the groups that workers try again, and why not the others.

    \b
    redrive campaign heal

    After a deploy, workers try the groups whose handler is registered with heal=. This
    command changes nothing.
    """
    listing(
        healing(conn),
        COLUMNS,
        for_people=lambda g: g | {"why": worded(g["why"], g["version"])},
        right=("failing", "open"),
        empty="no jobs fail, and no group of bugs or invalid payloads is open",
    )
