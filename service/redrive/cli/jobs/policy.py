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
    """Retry policies of handlers."""


@policy.command()
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Registry of the handlers. [env: REDRIVE_HANDLERS]",
)
@click.option(
    "--since",
    type=Instant(),
    default="1d",
    show_default=True,
    metavar="TIME",
    help="Only failures since this time.",
)
@database_option
@json_option
def simulate(
    handlers: str | None, since: datetime, database_url: str | None, as_json: bool
) -> None:
    """Judge the failures on record by the policies in the code.

    \b
    redrive policy simulate --handlers app.jobs:jobs --since 7d

    This changes nothing. It lists the failures that would be treated differently: the outcome
    then, and the outcome now.
    """
    settings = settings_for(database_url, handlers=handlers)
    found = _handlers(settings)
    with database(settings) as conn:
        seen, changes = simulation.simulate(conn, found, since)
    frequent = changes.most_common()
    rows = [{"count": count, **asdict(change)} for change, count in frequent]
    listing(
        rows,
        COLUMNS,
        as_json=as_json,
        right=("count",),
        empty="",
    )
    if not as_json:
        click.echo(_summary(seen, changes.total()))


def _summary(seen: int, changed: int) -> str:
    return f"{seen} failures judged again, {changed or 'none'} would be treated differently"


def _handlers(settings: Settings) -> registry.Handlers:
    if settings.handlers is None:
        raise SettingsError(
            "REDRIVE_HANDLERS is not set; it must be module:attribute, such as app.jobs:jobs"
        )
    return registry.load(settings.handlers, settings.name_of("handlers"))
