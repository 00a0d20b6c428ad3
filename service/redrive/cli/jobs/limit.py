"""redrive limit."""

import click

from redrive.cli.support.options import conn_options, json_option
from redrive.cli.support.output import listing
from redrive.cli.support.verbs import add_verbs
from redrive.database.rows import Connection
from redrive.jobs import limits
from redrive.verbs.limits import LIMITS

COLUMNS = {
    "limit": "name",
    "running": "used",
    "at once": "concurrency",
    "rate": "rate",
    "waiting": "waiting",
}


@click.group()
def limit() -> None:
    """Limit how many jobs run at once, or start in a period."""


@limit.command("ls")
@conn_options
@json_option
def list_limits(conn: Connection) -> None:
    """List the limits, and the jobs that run and wait under each.

    \b
    redrive limit ls
    """
    listing(
        limits.find(conn),
        COLUMNS,
        right=("running", "at once", "waiting"),
        empty="there are no limits",
    )


add_verbs(limit, LIMITS)
