"""redrive queue."""

from typing import Any

import click

from redrive.cli.common import (
    acting_options,
    database,
    database_option,
    emit,
    json_option,
    require_why,
    settings_for,
    table,
)
from redrive.rules.limits import check_name

FAIR_LANES = 16
"""Tenants take turns by their share of these: two in the same one are served in order."""
COLUMNS = (
    "queue",
    "ready",
    "scheduled",
    "retrying",
    "running",
    "dead",
    "paused",
    "oldest_ready_seconds",
)


@click.group()
def queue() -> None:
    """Queues: what they hold, pause, resume, set."""


@queue.command("ls")
@database_option
@json_option
def list_queues(database_url: str | None, as_json: bool) -> None:
    """Show what each queue holds, by state."""
    with database(settings_for(database_url)) as conn:
        rows = conn.execute(
            "select queue, ready, scheduled, retrying, running, dead, paused, oldest_ready_seconds"
            " from redrive.depths_v1()"
        ).fetchall()
    if as_json:
        for row in rows:
            emit(dict(zip(COLUMNS, row, strict=True)))
        return
    shown = [
        (*row[:6], "yes" if row[6] else "", f"{row[7]:.0f} s" if row[7] else "") for row in rows
    ]
    table(
        (*COLUMNS[:7], "oldest ready"),
        shown,
        right=(*COLUMNS[1:6], "oldest ready"),
        empty="no queue has held a job yet",
    )


def _act(
    statement: Any,
    name: str,
    database_url: str | None,
    why: str | None,
    actor: str | None,
    *values: Any,
) -> Any:
    reason = require_why(why)
    check_name("queue", name)
    settings = settings_for(database_url, actor=actor)
    with database(settings) as conn:
        row = conn.execute(statement, (name, *values, settings.who(), reason)).fetchone()
        return row[0] if row else None


@queue.command()
@click.argument("name")
@acting_options
@database_option
def pause(name: str, why: str | None, actor: str | None, database_url: str | None) -> None:
    """Claim nothing more from a queue; what runs there ends."""
    _act("select redrive.pause_v1(%s, %s, %s)", name, database_url, why, actor)
    click.echo(f"{name} is paused; workers stop claiming from it within a second")


@queue.command()
@click.argument("name")
@acting_options
@database_option
@click.pass_context
def resume(
    ctx: click.Context, name: str, why: str | None, actor: str | None, database_url: str | None
) -> None:
    """Claim from a paused queue again."""
    if _act("select redrive.resume_v1(%s, %s, %s)", name, database_url, why, actor):
        click.echo(f"{name} is resumed")
    else:
        click.echo(f"{name} was not paused", err=True)
        ctx.exit(2)


@queue.command("set")
@click.argument("name")
@click.option(
    "--fair-by",
    type=click.Choice(["tenant", "none"]),
    required=True,
    help="Whose jobs take turns, of those enqueued from now on.",
)
@acting_options
@database_option
def set_options(
    name: str, fair_by: str, why: str | None, actor: str | None, database_url: str | None
) -> None:
    """Set how a queue is served.

    \b
    redrive queue set mail --fair-by tenant --why 'one customer imports a million addresses'
    """
    lanes = FAIR_LANES if fair_by == "tenant" else 1
    _act("select redrive.set_lanes_v1(%s, %s, %s, %s)", name, database_url, why, actor, lanes)
    turns = "its tenants take turns" if fair_by == "tenant" else "jobs run in order of their time"
    click.echo(f"{name} is set: {turns}, of jobs enqueued from now on")
