"""redrive owner."""

from typing import Literal

import click

from redrive.cli.support.options import Run, conn_options, json_option
from redrive.cli.support.output import listing
from redrive.cli.support.verbs import add_verbs, read_wanted, set_each, set_options
from redrive.database.rows import Connection
from redrive.dead_letters.groups import owners
from redrive.verbs.declared import DECLARED

_HOLDS = (
    'owners by pattern, as {"payments": {"owner": "team-money", "contact": "#money"}}'
)
_Wanted = dict[str, dict[Literal["owner", "contact"], str | None]]
"""Owners as `apply` reads them: pattern -> inputs."""


@click.group()
def owner() -> None:
    """Owners of queues and kinds, such as teams.

    A pattern is QUEUE, QUEUE/KIND, '*/KIND' or '*'. The most specific one decides.
    Alerts carry the owner as a label.
    """


@owner.command("ls")
@conn_options
@json_option
def list_owners(conn: Connection) -> None:
    """List the owners by pattern.

    \b
    redrive owner ls
    """
    rows = [
        {"pattern": str(each.pattern), **each._asdict()} for each in owners.find(conn)
    ]
    listing(rows, ("pattern", "owner", "contact"), empty="no owners")


add_verbs(owner, DECLARED)


@owner.command("apply")
@click.argument("wanted", metavar="JSON")
@set_options
def apply_owners(wanted: str, run: Run) -> int:
    """Set the owners that differ; the others stay.

    \b
    redrive owner apply '{"payments": {"owner": "team-money"}}' --why 'as in values.yaml'

    Waits for the schema, as a worker does.
    """
    by_pattern = read_wanted(wanted, _Wanted, _HOLDS)

    inputs = (
        (pattern, {name: text for name, text in given.items() if text})
        for pattern, given in by_pattern.items()
    )
    return set_each(DECLARED["set-owner"], run, inputs)
