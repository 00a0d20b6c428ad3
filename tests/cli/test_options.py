"""Options that many commands share, and what `--help` shows of them."""

from dataclasses import fields
from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from redrive.cli.main import cli
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import find
from tests.factories import make_dead_letter
from tests.postgres import Database

COMMANDS = cli.list_commands(click.Context(cli))

NOT_OF_A_RUN = {"--repeat", "--cell", "--actor", "--database-url", "--json"}
NOTHING = {
    "ids": [-1],
    "group": "nothing",
    "owner": "nobody",
    "holds": ["payload.nothing=1"],
    "since": datetime(9999, 1, 1, tzinfo=UTC),
    "until": datetime(2000, 1, 1, tzinfo=UTC),
}


def _command(*path: str) -> click.Command:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command


def _variables(command: click.Command) -> dict[str, object]:
    """Each option -> its environment variable."""
    return {p.opts[0]: p.envvar for p in command.params if isinstance(p, click.Option)}


@pytest.mark.parametrize("path", [("dlq", "ls"), ("dlq", "redrive"), ("purge",)])
def test_every_filter_is_an_option(path: tuple[str, ...]) -> None:
    names = {"ids": "id", "holds": "where"}
    filters = {
        f"--{names.get(f.name, f.name).replace('_', '-')}" for f in fields(Filter)
    }

    assert filters <= _variables(_command(*path)).keys()


@pytest.mark.parametrize(
    ("path", "prefix"),
    [(("dlq", "redrive"), "REDRIVE_REDRIVE"), (("purge",), "REDRIVE_PURGE")],
)
def test_every_option_of_a_run_is_a_variable_of_its_name(
    path: tuple[str, ...], prefix: str
) -> None:
    variables = _variables(_command(*path))

    for flag in variables.keys() - NOT_OF_A_RUN:
        assert variables[flag] == f"{prefix}_{flag[2:].replace('-', '_').upper()}"


def test_every_filter_narrows(database: Database) -> None:
    make_dead_letter(database.conn)
    conditions = [f.name for f in fields(Filter) if f.name != "limit"]

    assert len(find(database.conn, Filter(limit=1))) == 1
    for name in conditions:
        assert (
            find(database.conn, Filter(**{name: NOTHING.get(name, ["nothing"])})) == []
        ), name


def test_every_command_has_a_help_and_fits_on_a_line_of_the_list() -> None:
    runner = CliRunner()
    groups = [n for n in COMMANDS if isinstance(_command(n), click.Group)]
    lists = [
        runner.invoke(cli, [*path, "--help"]).output
        for path in ([], *([g] for g in groups))
    ]

    for name in COMMANDS:
        assert runner.invoke(cli, [name, "--help"]).exit_code == 0, name
    for shown in lists:
        assert "..." not in shown.partition("Commands:")[2], shown
