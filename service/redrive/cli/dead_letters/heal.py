"""redrive campaign heal: groups that the running version may have fixed."""

import click

from redrive.cli.support.connection import database
from redrive.cli.support.options import database_option, json_option, settings_for
from redrive.cli.support.output import listing
from redrive.dead_letters.campaign import healing
from redrive.rules.dead_letters.heal import worded

COLUMNS = ("group", "kind", "open", "version", "why")


@click.command()
@database_option
@json_option
def heal(database_url: str | None, as_json: bool) -> None:
    """List the groups that workers try again, and why not the others.

    \b
    redrive campaign heal

    After a deploy, workers try the groups whose handler is registered with heal=. This command
    changes nothing.
    """
    with database(settings_for(database_url)) as conn:
        found = healing(conn)

    if not as_json:
        for group in found:
            group["why"] = worded(group["why"], group["version"])

    empty = "no group of bugs or invalid payloads is open"
    listing(
        found,
        COLUMNS,
        as_json=as_json,
        right=("open",),
        empty=empty,
    )
