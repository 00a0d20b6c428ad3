"""redrive breaker."""

import click

from redrive.cli.support.connection import database
from redrive.cli.support.exits import NotFound
from redrive.cli.support.options import (
    Change,
    acting_options,
    conn_options,
    json_option,
)
from redrive.cli.support.output import listing, printable
from redrive.database.rows import Connection
from redrive.live_jobs.flow_control import breakers

COLUMNS = (
    "name",
    "state",
    "failures",
    "successes",
    "opened",
    "opened_at",
    "open_until",
    "forced_by",
    "forced_why",
)


@click.group()
def breaker() -> None:
    """Dependencies that jobs need, and whether those jobs run."""


@breaker.command("ls")
@conn_options
@json_option
def list_breakers(conn: Connection) -> None:
    """List the breakers of dependencies and their states.

    \b
    redrive breaker ls
    """
    found = breakers.find(conn)

    listing(
        found,
        COLUMNS,
        right=("failures", "successes", "opened"),
        empty="no dependency has been reported yet",
    )


@breaker.command()
@click.argument("name")
@click.argument("state", type=click.Choice(["open", "closed"]))
@acting_options
def force(name: str, state: str, change: Change) -> None:
    """Hold a breaker open or closed until it is reset.

    \b
    redrive breaker force sendgrid open --why 'their status page'
    """
    change.agree(f"Hold the breaker {printable(name)} {state}")
    _force(name, state, change)


@breaker.command()
@click.argument("name")
@acting_options
def reset(name: str, change: Change) -> None:
    """Close a breaker; it opens again if jobs fail.

    \b
    redrive breaker reset smtp --why 'the provider says it is back'
    """
    change.agree(f"Reset the breaker {printable(name)}")
    _force(name, None, change)


def _force(name: str, state: str | None, change: Change) -> None:
    with database(change.settings) as conn:
        exists = breakers.force(conn, name, state, **change.signed)

    if not exists:
        raise NotFound(f"there is no breaker {name}")

    click.echo(
        f"{name} is held {state}"
        if state
        else f"{name} is closed; it opens again if jobs fail"
    )
