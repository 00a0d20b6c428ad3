"""redrive policy."""

from dataclasses import asdict
from datetime import datetime

import click

from redrive import handlers as registry
from redrive.cli.support.connection import database
from redrive.cli.support.options import (
    Instant,
    database_option,
    json_option,
    settings_for,
)
from redrive.cli.support.output import listing
from redrive.dead_letters import simulation
from redrive.errors import SettingsError
from redrive.settings import Settings

COLUMNS = (
    "count",
    "kind",
    "error_class",
    "category_then",
    "category_now",
    "then",
    "now",
)


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
    """Judge the failures on record by the policies in the code.

    \b
    redrive policy simulate --handlers app.jobs:jobs --since 7d

    Changes nothing. Lists the failures that would be treated differently: what was done with them
    then, and what would be done now.
    """
    settings = settings_for(database_url, handlers=handlers)
    found = _handlers(settings)
    with database(settings) as conn:
        seen, changes = simulation.simulate(conn, found, since)
    rows = [
        {"count": count, **asdict(change)} for change, count in changes.most_common()
    ]
    listing(rows, COLUMNS, as_json=as_json, right=("count",), empty="")
    if not as_json:
        click.echo(_summary(seen, changes.total()))


def _summary(seen: int, changed: int) -> str:
    return f"{seen} failures judged again, {changed or 'none'} would be treated differently"


def _handlers(settings: Settings) -> registry.Handlers:
    if settings.handlers is None:
        raise SettingsError(
            "REDRIVE_HANDLERS is not set; it must be module:attribute, e.g. app.jobs:jobs"
        )
    return registry.load(settings.handlers, settings.name_of("handlers"))
