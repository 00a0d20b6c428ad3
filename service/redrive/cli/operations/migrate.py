"""redrive migrate."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from redrive.cli.support.connection import database
from redrive.cli.support.options import (
    Decorator,
    Duration,
    Every,
    json_option,
    settings_options,
)
from redrive.cli.support.output import emit, wants_json
from redrive.database.schema import migrate as migrations
from redrive.dead_letters.runs import expect
from redrive.observability.logs import set_up

if TYPE_CHECKING:
    from redrive.settings import Settings


def _every_option(task: str) -> Decorator:
    variable = f"REDRIVE_{task.upper()}_EVERY"
    return click.option(
        f"--{task}-every",
        envvar=variable,
        type=Every(),
        metavar="SCHEDULE",
        help=f"Expect scheduled runs of {task}: 1d, a cron expression, or never."
        f" [env: {variable}; default: unchanged]",
    )


@click.command()
@_every_option("purge")
@_every_option("redrive")
@click.option(
    "--patience",
    envvar="REDRIVE_MIGRATE_PATIENCE",
    type=Duration(),
    default=f"{migrations.PATIENCE_SECONDS / 60:.0f}m",
    show_default=True,
    metavar="DURATION",
    help="Give up after this time if another session keeps a table locked."
    " [env: REDRIVE_MIGRATE_PATIENCE]",
)
@settings_options()
@json_option
def migrate(settings: "Settings", patience: float, **every: float | None) -> None:
    """Bring the schema up to date. Safe to repeat, to run twice at once, and to kill.

    While another session keeps a table locked, a line every 10 s names that session.

    \b
    redrive migrate
    redrive migrate --patience 3m
    redrive migrate --purge-every '17 3 * * *' --redrive-every never
    """
    set_up(settings.log_format, settings.log_level)
    with database(settings, any_schema=True) as conn:
        report = migrations.migrate(conn, patience=patience)
        for task, seconds in every.items():
            # Without the option, the expected interval stays as it is.
            if seconds is not None:
                expect(conn, task.removesuffix("_every"), seconds)

    if wants_json():
        emit(asdict(report))
    else:
        _show(report)


def _show(report: migrations.Report) -> None:
    for name in report.applied:
        click.echo(f"applied {name}")

    remark = "" if report.applied else ", nothing to do"
    click.echo(f"schema version {report.after}{remark}")
    if report.without_roles:
        click.echo(f"without roles: {report.without_roles}", err=True)
