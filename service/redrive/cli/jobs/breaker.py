"""redrive breaker."""

import click

from redrive.cli.support.options import conn_options, json_option
from redrive.cli.support.output import listing
from redrive.cli.support.verbs import Asked, add_verbs, verb_options
from redrive.database.rows import Connection
from redrive.jobs import breakers
from redrive.verbs.breakers import BREAKERS

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
    listing(
        breakers.find(conn),
        COLUMNS,
        right=("failures", "successes", "opened"),
        empty="no dependency has been reported yet",
    )


@breaker.command()
@verb_options(BREAKERS["hold-open"])
@click.argument("state", type=click.Choice(["open", "closed"]))
def force(state: str, asked: Asked) -> int:
    """Hold a breaker open or closed until it is reset.

    \b
    redrive breaker force sendgrid open --why 'their status page'
    """
    return asked.perform(BREAKERS[f"hold-{state}"])


add_verbs(breaker, BREAKERS)
