"""redrive schedule: jobs that are enqueued at set times."""

from collections.abc import Sequence

import click

from redrive.cli.support.options import conn_options, json_option
from redrive.cli.support.output import listing, printable, wants_json
from redrive.cli.support.verbs import Asked, verb_options
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


@schedule.command()
@verb_options(SCHEDULES["pause-schedule"], several=True)
def pause(asked: Asked) -> int:
    """Stop firing schedules until they are resumed.

    \b
    redrive schedule pause report.daily --why 'the warehouse is being moved' --yes

    Jobs that they have enqueued continue. Shows what it would do, then asks, unless you give
    --yes.
    """
    return asked.perform()


@schedule.command()
@verb_options(SCHEDULES["resume-schedule"], several=True)
def resume(asked: Asked) -> int:
    """Fire paused schedules again from their next slot.

    \b
    redrive schedule resume report.daily --why 'the model is fixed' --yes

    Slots that passed while they were paused are skipped, whatever their catch_up. Shows
    what it would do, then asks, unless you give --yes.
    """
    return asked.perform()


@schedule.command("now")
@verb_options(SCHEDULES["run-schedule"], several=True)
def run_now(asked: Asked) -> int:
    """Enqueue the jobs of schedules now; their slots stay.

    \b
    redrive schedule now report.daily --why 'the numbers were late'

    Paused schedules run, too. `last at` of a schedule is its last slot, so this does
    not change it. Shows what it would do, then asks, unless you give --yes.
    """
    return asked.perform()
