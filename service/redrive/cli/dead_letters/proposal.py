"""redrive proposal: what agents propose, for a person to start or reject."""

from typing import TYPE_CHECKING

import click

from redrive import handlers as registry
from redrive.cli.support.connection import database
from redrive.cli.support.exits import NotFound
from redrive.cli.support.options import (
    Change,
    InOrder,
    acting_options,
    conn_options,
    json_option,
)
from redrive.cli.support.output import answer, listing, printable, wants_json
from redrive.database.rows import Connection
from redrive.dead_letters import proposals
from redrive.handlers import Handlers
from redrive.rules.payloads.escape import escaped, escaped_lines
from redrive.rules.rows import Row

if TYPE_CHECKING:
    from redrive.settings import Settings

COLUMNS = ("action", "what", "proposed_by", "created_at", "start", "why")

_number = click.argument("which", metavar="ID", type=click.IntRange(1, 2**63 - 1))


@click.group(cls=InOrder)
def proposal() -> None:
    """Start or reject what agents propose.

    An agent that is connected through redrive mcp cannot change anything. It proposes a redrive,
    an edit or a mute. If nobody starts a proposal within a day, it expires.
    """


@proposal.command("ls")
@conn_options
@json_option
def list_proposals(conn: Connection) -> None:
    """List open proposals and the commands that start them.

    \b
    redrive proposal ls
    """
    found = proposals.find(conn)
    rows = [row | {"what": proposals.what(row), "start": command(row)} for row in found]
    listing(rows, COLUMNS, empty="no proposals")


def command(row: Row) -> str:
    """Return the command that starts a proposal."""
    if row["campaign"]:
        return f"redrive campaign start {row['campaign']}"
    return f"redrive proposal start {row['proposal']}"


@proposal.command()
@_number
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Check edited payloads with these handlers. [env: REDRIVE_HANDLERS]",
)
@acting_options
@json_option
def start(which: int, handlers: str | None, change: Change) -> None:
    """Start a proposed edit or mute.

    \b
    redrive proposal start 7 --why 'the importer wrote EURO'

    The command shows the changes and asks. Only payloads that are as the agent saw them are
    edited. To start a proposed redrive, type redrive campaign start.
    """
    checked_by = _handlers(handlers, change.settings)
    with database(change.settings) as conn:
        found = _proposal(conn, which)
        lines = _shown(conn, found, checked_by)
        # With --json, standard output has the report only.
        click.echo(lines, err=wants_json())

        proposer = printable(found["proposed_by"])
        change.agree(f"Start proposal {which} of {proposer}")

        changed = proposals.start(
            conn,
            which,
            checked_by,
            actor=change.settings.who(),
            why=proposals.reason(found, change.why),
        )

    report = {
        "proposal": which,
        "action": found["action"],
        "changed": changed,
    }
    text = f"started proposal {which}: {printable(proposals.what(found))}"
    answer(report, text)


def _handlers(given: str | None, settings: "Settings") -> Handlers:
    """Return the handlers that check edited payloads; none if no registry is named."""
    target = given or settings.handlers
    if target is None:
        return Handlers()
    return registry.load(target, "--handlers" if given else "REDRIVE_HANDLERS")


def _shown(conn: Connection, found: Row, handlers: Handlers) -> str:
    """Return what the person should read before the start."""
    lines = [
        escaped(proposals.what(found)),
        escaped(f"why: {found['why']}"),
        *map(escaped_lines, proposals.effects(conn, found, handlers)),
    ]
    return "\n".join(lines)


@proposal.command()
@_number
@acting_options
@json_option
def reject(which: int, change: Change) -> None:
    """Reject a proposed edit or mute.

    \b
    redrive proposal reject 7 --why 'the importer is right'

    To reject a proposed redrive, type redrive campaign cancel.
    """
    with database(change.settings) as conn:
        found = _proposal(conn, which)
        change.agree(f"Reject proposal {which}: {printable(proposals.what(found))}")
        why = proposals.reason(found, change.why)
        proposals.reject(
            conn,
            which,
            actor=change.settings.who(),
            why=why,
        )

    report = {"proposal": which, "rejected": True}
    answer(report, f"rejected proposal {which}")


def _proposal(conn: Connection, which: int) -> Row:
    """Return an open proposal of an edit or a mute. Raises NotFound."""
    found = proposals.show(conn, which)
    if found is None:
        raise NotFound(f"there is no open proposal {which} of an edit or a mute")
    return found
