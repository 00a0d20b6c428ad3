"""redrive objective."""

from typing import Annotated

import click
import msgspec

from redrive.cli.common import (
    acting_options,
    database,
    database_option,
    emit,
    json_option,
    require_why,
    settings_for,
    table,
    wait_for_schema,
)
from redrive.rules.limits import check_name

NAMES = {
    "dlq_added_5m": "dead letters in 5 minutes that page somebody",
    "dlq_added_1h": "dead letters in an hour that make a ticket",
    "dlq_oldest_age_seconds": "how long a dead letter may lie unattended",
    "dead_ratio": "share of jobs that may die, for the error budget",
    "ready_age_seconds": "how long a ready job may wait",
    "page_on_first_dead_letter": "1: the first dead letter of this queue pages somebody",
}


@click.group()
def objective() -> None:
    """Thresholds of the alerts, kept as data: per queue, or '*' for all others."""


@objective.command("ls")
@database_option
@json_option
def list_objectives(database_url: str | None, as_json: bool) -> None:
    """Show them."""
    with database(settings_for(database_url)) as conn:
        rows = conn.execute(
            "select queue, objective, value from redrive.objectives order by queue, objective"
        ).fetchall()
    if as_json:
        for queue, name, value in rows:
            emit({"queue": queue, "objective": name, "value": value})
    else:
        table(
            ("queue", "objective", "value", "what"),
            [(*row[:2], f"{row[2]:g}", NAMES[row[1]]) for row in rows],
        )


@objective.command("set")
@click.argument("queue")
@click.argument("name", metavar="OBJECTIVE", type=click.Choice(list(NAMES)))
@click.argument("value", type=click.FloatRange(0), required=False)
@click.option("--default", "to_default", is_flag=True, help="Take the queue's own value away.")
@acting_options
@database_option
def set_objective(
    queue: str,
    name: str,
    value: float | None,
    to_default: bool,
    why: str | None,
    actor: str | None,
    database_url: str | None,
) -> None:
    """Set one: redrive objective set payments page_on_first_dead_letter 1 --why 'each one is
    money'.
    """
    reason = require_why(why)
    if (value is None) != to_default:
        msg = "give a VALUE, or --default to take the queue's own away"
        raise click.UsageError(msg)
    if queue != "*":
        check_name("queue", queue)
    elif to_default:
        msg = "the values of '*' are the defaults themselves; set them to something"
        raise click.UsageError(msg)
    settings = settings_for(database_url, actor=actor)
    with database(settings) as conn:
        conn.execute(
            "select redrive.set_objective_v1(%s, %s, %s, %s, %s)",
            (queue, name, value, settings.who(), reason),
        )
    click.echo(f"{queue} {name} " + ("goes by the default" if to_default else f"is {value:g}"))


@objective.command("apply")
@click.argument("objectives", metavar="JSON")
@acting_options
@database_option
def apply_objectives(
    objectives: str, why: str | None, actor: str | None, database_url: str | None
) -> None:
    """Set what differs: redrive objective apply '{"payments": {"dlq_added_5m": 3}}' --why 'as in
    values.yaml'.

    What is not named stays as it is. Waits for the schema as a worker does.
    """
    reason = require_why(why)
    wanted = _read(objectives)
    settings = settings_for(database_url, actor=actor)
    wait_for_schema(settings.url(), settings.startup_timeout)
    with database(settings) as conn, conn.transaction():
        held = set(conn.execute("select queue, objective, value from redrive.objectives"))
        changed = [row for row in wanted if row not in held]
        for row in changed:
            conn.execute(
                "select redrive.set_objective_v1(%s, %s, %s, %s, %s)",
                (*row, settings.who(), reason),
            )
    for queue, name, value in changed:
        click.echo(f"{queue} {name} is {value:g}")
    if not changed:
        click.echo("nothing to do")


def _read(text: str) -> list[tuple[str, str, float]]:
    """Queue, objective and value of each."""
    try:
        found = msgspec.json.decode(
            text, type=dict[str, dict[str, Annotated[float, msgspec.Meta(ge=0)]]]
        )
    except msgspec.DecodeError as error:
        msg = (
            f'JSON must hold objectives by queue, as {{"payments": {{"dlq_added_5m": 3}}}}: {error}'
        )
        raise click.UsageError(msg) from None
    rows = [
        (queue, name, value) for queue, values in found.items() for name, value in values.items()
    ]
    for queue, name, _ in rows:
        if queue != "*":
            check_name("queue", queue)
        if name not in NAMES:
            msg = f"{name!r} is no objective; there are {', '.join(NAMES)}"
            raise click.UsageError(msg)
    return rows
