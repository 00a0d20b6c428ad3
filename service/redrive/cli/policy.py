"""redrive policy."""

from dataclasses import asdict
from datetime import datetime

import click

from redrive import handlers as registry
from redrive.cli.common import (
    Instant,
    database,
    database_option,
    emit,
    json_option,
    settings_for,
    table,
)
from redrive.dead_letters import simulation
from redrive.errors import SettingsError

COLUMNS = ("count", "kind", "error_class", "category_then", "category_now", "then", "now")


@click.group()
def policy() -> None:
    """Retry policies of the handlers."""


@policy.command()
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="The registry of handlers. [env: REDRIVE_HANDLERS]",
)
@click.option(
    "--since",
    type=Instant(),
    default="1d",
    show_default=True,
    metavar="TIME",
    help="Failures since then.",
)
@database_option
@json_option
def simulate(
    handlers: str | None, since: datetime, database_url: str | None, as_json: bool
) -> None:
    """Show what the policies as they are in the code now would have done with the failures on
    record.

    Nothing is changed. Lines are failures that would be treated otherwise: what was done then, and
    what would be now.
    """
    settings = settings_for(database_url, handlers=handlers)
    if settings.handlers is None:
        msg = "REDRIVE_HANDLERS is not set; it must be module:attribute, e.g. app.jobs:jobs"
        raise SettingsError(msg)
    found = registry.load(settings.handlers)
    with database(settings) as conn:
        seen, changes = simulation.simulate(conn, found, since)
    if as_json:
        for change, count in changes.most_common():
            emit({"count": count, **asdict(change)})
        return
    rows = [(count, *asdict(change).values()) for change, count in changes.most_common()]
    table(COLUMNS, rows, right=("count",), empty="")
    changed = sum(changes.values())
    click.echo(f"{seen} failures judged again, {changed or 'none'} would be treated otherwise")
