"""redrive objective."""

from collections.abc import Iterable
from functools import partial
from typing import Annotated, NamedTuple

import click
import msgspec

from redrive.cli.support.connection import database
from redrive.cli.support.declared import set_differing
from redrive.cli.support.options import (
    Change,
    acting_options,
    conn_options,
    json_option,
)
from redrive.cli.support.output import listing
from redrive.database.rows import Connection, records
from redrive.dead_letters.grouping.owners import ANY, Pattern, parse_pattern
from redrive.rules.rows import Row

DEFAULTS = Pattern(ANY)
"""Stands for all queues without values of their own."""

MEANINGS = {
    "dlq_added_5m": "dead letters in 5 minutes that page somebody",
    "dlq_added_1h": "dead letters in an hour that open a ticket",
    "dlq_oldest_age_seconds": "how long a dead letter may stay open",
    "dead_ratio": "share of jobs that may die, for the error budget",
    "ready_age_seconds": "how long a ready job may wait",
    "page_on_first_dead_letter": "1: the first dead letter pages somebody",
    "dlq_unacknowledged_age_seconds": "how long a group may wait for somebody",
}
OF_KINDS = ("dlq_added_5m", "dlq_added_1h", "page_on_first_dead_letter")
"""Objectives that a kind on a queue can have."""


class Objective(NamedTuple):
    """Threshold of the alerts on a queue, or on a kind of a queue."""

    queue: str
    kind: str
    objective: str
    value: float | None

    @property
    def pattern(self) -> Pattern:
        """Return the jobs that it is about."""
        return Pattern(self.queue, self.kind)

    def __str__(self) -> str:
        return f"{self.pattern} {self.objective} is {self.value:g}"


@click.group()
def objective() -> None:
    """Thresholds of the alerts, kept as data.

    Each belongs to a queue, or to '*' for all queues without a value of their own.
    A kind on a queue can have its own: payments/charge.card.
    """


@objective.command("ls")
@conn_options
@json_option
def list_objectives(conn: Connection) -> None:
    """List the objectives and what they mean.

    \b
    redrive objective ls
    """
    held = _read(conn)
    rows = [
        row._asdict() | {"kind": None if row.kind == ANY else row.kind} for row in held
    ]
    columns = ("queue", "objective", "value", "what")
    listing(rows, columns, for_people=_for_people)


def _for_people(row: Row) -> Row:
    return row | {
        "queue": str(Pattern(row["queue"], row["kind"] or ANY)),
        "value": f"{row['value']:g}",
        "what": MEANINGS[row["objective"]],
    }


@objective.command("set")
@click.argument("pattern", metavar="QUEUE[/KIND]")
@click.argument("name", metavar="OBJECTIVE", type=click.Choice(list(MEANINGS)))
@click.argument("value", type=click.FloatRange(0), required=False)
@click.option(
    "--default",
    "to_default",
    is_flag=True,
    help="Remove its own value.",
)
@acting_options
def set_objective(
    pattern: str, name: str, value: float | None, to_default: bool, change: Change
) -> None:
    """Set one objective of a queue, or of a kind on a queue.

    \b
    redrive objective set payments page_on_first_dead_letter 1 --why 'each one is money'
    redrive objective set payments page_on_first_dead_letter --default --why 'too loud'
    redrive objective set payments/charge.card dlq_added_5m 3 --why 'the checkout'
    """
    if (value is None) != to_default:
        raise click.UsageError("give a VALUE, or --default to remove the queue's own")

    chosen = _pattern(pattern, [name])
    if chosen == DEFAULTS and to_default:
        raise click.UsageError("the values of '*' are the defaults; give a VALUE")

    wanted = Objective(*chosen, name, value)
    value_text = _shown(value)
    back = "back to " if to_default else ""
    change.agree(f"Set {chosen} {name} to {value_text}")

    with database(change.settings) as conn:
        _set(conn, wanted, change)

    click.echo(f"{chosen} {name} is {back}{value_text}")


def _shown(value: float | None) -> str:
    if value is None:
        return "the default"
    return f"{value:g}"


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
    put = partial(_set, change=change)
    set_differing(change, wanted, read=_read, put=put)


def _read(conn: Connection) -> list[Objective]:
    return records(
        conn,
        Objective,
        "select queue, '*' as kind, objective, value from redrive.objectives union all"
        " select queue, kind, objective, value from redrive.kind_objectives"
        " order by queue, kind, objective",
    )


def _set(conn: Connection, wanted: Objective, change: Change) -> None:
    conn.execute(
        "select redrive.set_objective_v2(%s, %s, %s, %s, %s, %s)",
        (*wanted, change.settings.who(), change.why),
    )


def _parse(text: str) -> list[Objective]:
    """Parse {pattern: {objective: value}}, or raise a usage error."""
    by_pattern = _decode(text)

    for values in by_pattern.values():
        for name in values:
            if name not in MEANINGS:
                known = ", ".join(MEANINGS)
                raise click.UsageError(
                    f"{name!r} is not an objective; it must be one of {known}"
                )

    return [
        Objective(*_pattern(pattern, values), name, value)
        for pattern, values in by_pattern.items()
        for name, value in values.items()
    ]


_Threshold = Annotated[float, msgspec.Meta(ge=0)]
_Wanted = dict[str, dict[str, _Threshold]]
"""Objectives as `apply` reads them: pattern -> name -> threshold."""


def _decode(text: str) -> dict[str, dict[str, float]]:
    try:
        return msgspec.json.decode(text, type=_Wanted)
    except msgspec.DecodeError as error:
        example = '{"payments": {"dlq_added_5m": 3}}'
        raise click.UsageError(
            f"JSON must hold objectives by queue, as {example}: {error}"
        ) from None


def _pattern(text: str, names: Iterable[str]) -> Pattern:
    """Parse QUEUE or QUEUE/KIND, or raise if it cannot have these objectives."""
    pattern = parse_pattern(text)
    if pattern.kind == ANY:
        return pattern

    if pattern.queue == ANY:
        raise click.UsageError(
            f"{text}: objectives of a kind need its queue; write QUEUE/{pattern.kind}"
        )

    for name in names:
        if name not in OF_KINDS:
            possible = ", ".join(OF_KINDS)
            raise click.UsageError(
                f"{text}: a kind cannot have {name}; it must be one of {possible}"
            )

    return pattern
