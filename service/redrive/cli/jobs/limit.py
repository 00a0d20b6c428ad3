"""redrive limit."""

import click

from redrive.cli.support.options import conn_options, json_option
from redrive.cli.support.output import listing
from redrive.cli.support.verbs import Asked, verb_options
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


@limit.command("set")
@verb_options(LIMITS["set-limit"])
def set_limit(asked: Asked) -> int:
    """Limit the jobs that count under a name, from now on.

    \b
    redrive limit set emails --concurrency 20 --why 'the provider allows 20 connections'
    redrive limit set 'customer:*' --concurrency 2 --rate 20/1m --why 'one customer took all'

    NAME is one of a handler's limits=. A name such as customer:* limits each key, and a
    key can have a limit of its own. An option that you leave out sets no limit. Running
    jobs continue. The command warns you if no handler has the name yet.
    """
    return asked.perform()


@limit.command("rm")
@verb_options(LIMITS["remove-limit"])
def remove_limit(asked: Asked) -> int:
    """Remove a limit; jobs that wait for it can run.

    \b
    redrive limit rm emails --why 'the new provider has none'
    """
    return asked.perform()
