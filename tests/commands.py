"""The command line as data: every command there is, by how it is typed."""

from collections.abc import Iterator

import click

from redrive.cli.main import cli


def commands(
    group: click.Group = cli, typed: str = "redrive"
) -> Iterator[tuple[str, click.Command]]:
    """What is typed, and the command it is; groups first, then what is in them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{typed} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{typed} {name}")
