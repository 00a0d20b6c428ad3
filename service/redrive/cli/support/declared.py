"""Values that a deployment declares: a command sets the differing ones."""

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

import click

from redrive.cli.support.connection import database, wait_for_schema
from redrive.cli.support.options import Change
from redrive.database.rows import Connection

T = TypeVar("T")


def set_differing(
    change: Change,
    wanted: Iterable[T],
    *,
    read: Callable[[Connection], Collection[T]],
    put: Callable[[Connection, T], None],
    describe: Callable[[T], str] = str,
    question: str = "Set {}",
) -> None:
    """Set the values that the database does not have, after consent, and print them.

    Waits for the schema, as a worker does.

    Args:
        read: returns the values in the database.
        put: sets one value.
    """
    wait_for_schema(change.settings.address(), change.settings.startup_timeout)
    with database(change.settings) as conn:
        held = read(conn)
        changed = [value for value in wanted if value not in held]
        described = [describe(value) for value in changed]

        if changed:
            listed = ", ".join(described)
            change.agree(question.format(listed))

        # It begins after the answer, so that nothing stays locked until then.
        with conn.transaction():
            for value in changed:
                put(conn, value)

    click.echo("\n".join(described) or "nothing to do")
