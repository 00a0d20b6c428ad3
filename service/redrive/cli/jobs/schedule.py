"""redrive schedule: jobs that are enqueued at set times."""

from collections.abc import Sequence

import click

from redrive.cli.support.options import conn_options, json_option
from redrive.cli.support.output import listing, printable, wants_json
from redrive.cli.support.verbs import add_verbs
from redrive.database.rows import Connection
from redrive.jobs import schedules
from redrive.rules.rows import Row
from redrive.verbs.schedules import SCHEDULES

COLUMNS = ("name", "kind", "cron", "tz", "state", "next_at", "last_at", "last_job")


@click.group()
def schedule() -> None:
    """Schedules: list, pause, resume, run one now."""


@schedule.command("ls")
@conn_options
@json_option
def list_schedules(conn: Connection) -> None:
    """List the schedules, with their next and last runs.

    \b
    redrive schedule ls

    A schedule is `undeclared` while no live worker declares it. It is not fired then.
    """
    _show(schedules.find(conn))


def _show(rows: Sequence[Row]) -> None:
    listing(
        rows,
        COLUMNS,
        right=("last_job",),
        empty="no schedule; a handler declares one: @jobs.every('0 7 * * 1-5')",
    )

    for row in rows:
        if row["paused_at"] and not wants_json():
            text = f"{row['name']}: paused by {row['paused_by']}: {row['paused_why']}"
            click.echo(printable(text))


add_verbs(schedule, SCHEDULES)
