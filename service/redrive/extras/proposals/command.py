"""redrive proposal: what agents propose, for a person to start or reject."""

import click

from redrive.cli.support.options import InOrder, conn_options, json_option
from redrive.cli.support.output import listing
from redrive.cli.support.verbs import add_verbs
from redrive.database.rows import Connection
from redrive.extras.proposals import store as proposals
from redrive.extras.proposals.verbs import PROPOSALS
from redrive.rules.rows import Row

COLUMNS = ("action", "what", "proposed_by", "created_at", "start", "why")


@click.group(cls=InOrder)
def proposal() -> None:
    """Start or reject what agents propose.

    An agent that is connected through redrive mcp cannot change anything. It proposes a
    redrive, an edit, a mute, or a change of failing jobs. If nobody starts a proposal
    within a day, it expires.
    """


@proposal.command("ls")
@conn_options
@json_option
def list_proposals(conn: Connection) -> None:
    """List open proposals and the commands that start them.

    \b
    redrive proposal ls
    """
    rows: list[Row] = []
    for row in proposals.find(conn):
        what = proposals.what(row)
        rows.append(row | {"what": what, "start": command(row)})

    listing(rows, COLUMNS, empty="no proposals")


def command(row: Row) -> str:
    """Return the command that starts a proposal."""
    if row["campaign"]:
        return f"redrive campaign start {row['campaign']}"
    return f"redrive proposal start {row['proposal']}"


add_verbs(proposal, PROPOSALS)
