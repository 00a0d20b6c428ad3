"""redrive objective."""

from typing import Annotated, NamedTuple

import click
import msgspec
import psycopg
from psycopg.rows import class_row

from redrive.cli.support.connection import database, wait_for_schema
from redrive.cli.support.options import (
    Change,
    acting_options,
    database_option,
    json_option,
    settings_for,
)
from redrive.cli.support.output import emit, table
from redrive.rules.payloads.limits import check_name

DEFAULTS = "*"
"""Stands for all queues without values of their own."""

MEANINGS = {
    "dlq_added_5m": "dead letters in 5 minutes that page somebody",
    "dlq_added_1h": "dead letters in an hour that open a ticket",
    "dlq_oldest_age_seconds": "how long a dead letter may stay open",
    "dead_ratio": "share of jobs that may die, for the error budget",
    "ready_age_seconds": "how long a ready job may wait",
    "page_on_first_dead_letter": "1: the first dead letter of this queue pages somebody",
}


class Objective(NamedTuple):
    """Threshold of the alerts on one queue."""

    queue: str
    objective: str
    value: float | None

    def __str__(self) -> str:
        return f"{self.queue} {self.objective} is {self.value:g}"


@click.group()
def objective() -> None:
    """Thresholds of the alerts, kept as data.

    Each belongs to a queue, or to '*' for all queues without a value of their own.
    """


@objective.command("ls")
@database_option
@json_option
def list_objectives(database_url: str | None, as_json: bool) -> None:
    """List the objectives and what they mean.

    \b
    redrive objective ls
    """
    with database(settings_for(database_url)) as conn:
        held = _read(conn)
    if as_json:
        for row in held:
            emit(row._asdict())
        return
    table(
        ("queue", "objective", "value", "what"),
        (
            [row.queue, row.objective, f"{row.value:g}", MEANINGS[row.objective]]
            for row in held
        ),
    )


@objective.command("set")
@click.argument("queue")
@click.argument("name", metavar="OBJECTIVE", type=click.Choice(list(MEANINGS)))
@click.argument("value", type=click.FloatRange(0), required=False)
@click.option(
    "--default", "to_default", is_flag=True, help="Remove the queue's own value."
)
@acting_options
def set_objective(
    queue: str, name: str, value: float | None, to_default: bool, change: Change
) -> None:
    """Set one objective of a queue.

    \b
    redrive objective set payments page_on_first_dead_letter 1 --why 'each one is money'
    redrive objective set payments page_on_first_dead_letter --default --why 'too loud'
    """
    if (value is None) != to_default:
        raise click.UsageError("give a VALUE, or --default to remove the queue's own")
    if queue == DEFAULTS and to_default:
        raise click.UsageError("the values of '*' are the defaults; give a VALUE")
    _check_queue(queue)
    value_text = "the default" if value is None else f"{value:g}"
    back = "back to " if value is None else ""
    change.agree(f"Set {queue} {name} to {value_text}")
    with database(change.settings) as conn:
        _set(conn, Objective(queue, name, value), change)
    click.echo(f"{queue} {name} is {back}{value_text}")


@objective.command("apply")
@click.argument("objectives", metavar="JSON")
@acting_options
def apply_objectives(objectives: str, change: Change) -> None:
    """Set the objectives that differ; the others stay.

    \b
    redrive objective apply '{"payments": {"dlq_added_5m": 3}}' --why 'as in values.yaml'

    Waits for the schema, as a worker does.
    """
    wanted = _parse(objectives)
    wait_for_schema(change.settings.address(), change.settings.startup_timeout)
    with database(change.settings) as conn:
        held = set(_read(conn))
        changed = [row for row in wanted if row not in held]
        if changed:
            change.agree("Set " + ", ".join(map(str, changed)))
        with conn.transaction():
            for row in changed:
                _set(conn, row, change)
    for row in changed:
        click.echo(row)
    if not changed:
        click.echo("nothing to do")


def _read(conn: psycopg.Connection) -> list[Objective]:
    with conn.cursor(row_factory=class_row(Objective)) as cursor:
        return cursor.execute(
            "select queue, objective, value from redrive.objectives order by queue, objective"
        ).fetchall()


def _set(conn: psycopg.Connection, wanted: Objective, change: Change) -> None:
    conn.execute(
        "select redrive.set_objective_v1(%s, %s, %s, %s, %s)",
        (*wanted, change.settings.who(), change.why),
    )


def _parse(text: str) -> list[Objective]:
    """Parse {queue: {objective: value}}, or raise a usage error."""
    by_queue = _decode(text)
    for queue, values in by_queue.items():
        _check_queue(queue)
        for name in values:
            if name not in MEANINGS:
                known = ", ".join(MEANINGS)
                raise click.UsageError(
                    f"{name!r} is not an objective; it must be one of {known}"
                )
    return [
        Objective(queue, name, value)
        for queue, values in by_queue.items()
        for name, value in values.items()
    ]


def _decode(text: str) -> dict[str, dict[str, float]]:
    shape = dict[str, dict[str, Annotated[float, msgspec.Meta(ge=0)]]]
    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.DecodeError as error:
        example = '{"payments": {"dlq_added_5m": 3}}'
        raise click.UsageError(
            f"JSON must hold objectives by queue, as {example}: {error}"
        ) from None


def _check_queue(queue: str) -> None:
    if queue != DEFAULTS:
        check_name("queue", queue)
