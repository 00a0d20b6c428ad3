"""redrive migrate."""

from dataclasses import asdict

import click

from redrive.cli.connection import database
from redrive.cli.options import database_option, json_option, settings_for
from redrive.cli.output import emit
from redrive.database import migrate as migrations


@click.command()
@database_option
@json_option
def migrate(database_url: str | None, as_json: bool) -> None:
    """Bring the schema up to date. Safe to repeat, to run twice at once, and to kill."""
    with database(settings_for(database_url), any_schema=True) as conn:
        report = migrations.migrate(conn)
    if as_json:
        emit(asdict(report))
        return
    for name in report.applied:
        click.echo(f"applied {name}")
    click.echo(f"schema version {report.after}" + ("" if report.applied else ", nothing to do"))
    if report.without_roles:
        click.echo(f"without roles: {report.without_roles}", err=True)
