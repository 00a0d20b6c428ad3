"""redrive dlq explain: what the dead letters of a group have in common."""

import click

from redrive.cli.connection import database
from redrive.cli.exits import Exit
from redrive.cli.groups import missing
from redrive.cli.options import database_option, json_option, settings_for
from redrive.cli.output import emit, printable
from redrive.dead_letters import explain as explaining
from redrive.rules.explain import told


@click.command()
@click.argument("group")
@database_option
@json_option
def explain(group: str, database_url: str | None, as_json: bool) -> int:
    """Say what a group's dead letters have in common.

    \b
    redrive dlq explain 3f9a

    Which values of payload and headers, which version, node or hour set them apart from jobs of
    the kind that succeeded, or else from other dead letters: the clearest first, and nothing that
    may well be chance. Secrets are redacted.
    """
    with database(settings_for(database_url)) as conn:
        found = explaining.explain(conn, group)
    if found is None:
        return missing(group)
    if as_json:
        emit(found)
    else:
        click.echo("\n".join(map(printable, told(found))))
    return Exit.DONE
