"""Commands `redrive dlq ack` and `redrive dlq unack`."""

import click

from redrive.cli.dead_letters.groups import missing
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import Change, acting_options
from redrive.cli.support.output import not_found, printable
from redrive.dead_letters import acknowledgements, groups


@click.command()
@click.argument("group")
@acting_options
def ack(group: str, change: Change) -> int:
    """Acknowledge a group: you work on it.

    \b
    redrive dlq ack 3f9a --why 'the bank is down, I am on the phone'

    It lasts until the group has no open dead letters left.
    """
    return _change(group, change, is_acknowledged=True)


@click.command()
@click.argument("group")
@acting_options
def unack(group: str, change: Change) -> int:
    """Take back the acknowledgement of a group: nobody works on it.

    \b
    redrive dlq unack 3f9a --why 'my shift is over'
    """
    return _change(group, change, is_acknowledged=False)


def _change(group: str, change: Change, *, is_acknowledged: bool) -> int:
    verb = "Acknowledge" if is_acknowledged else "Unacknowledge"
    act = (
        acknowledgements.acknowledge
        if is_acknowledged
        else acknowledgements.unacknowledge
    )
    with database(change.settings) as conn:
        found = groups.show(conn, group)
        if found is None:
            return missing(group)
        count = f"{found['open']} open dead letters of {printable(group)}"
        change.agree(f"{verb} {count}")
        actor = change.settings.who()
        done = act(conn, [found["group"]], actor=actor, why=change.why)
    if not done:
        return not_found(f"group {printable(group)} has no open dead letters")
    state = f"acknowledged by {actor}" if is_acknowledged else "not acknowledged"
    click.echo(f"{printable(group)} is {printable(state)}")
    return Exit.DONE
