"""redrive objective."""

from typing import Annotated

import click
import msgspec

from redrive.cli.support.options import Run, conn_options, json_option
from redrive.cli.support.output import listing
from redrive.cli.support.verbs import add_verbs, read_wanted, set_each, set_options
from redrive.database.rows import Connection
from redrive.dead_letters.groups import objectives
from redrive.dead_letters.groups.objectives import MEANINGS
from redrive.dead_letters.groups.owners import ANY, Pattern
from redrive.rules.rows import Row
from redrive.verbs.declared import DECLARED

_HOLDS = 'objectives by queue, as {"payments": {"dlq_added_5m": 3}}'
_Wanted = dict[str, dict[str, Annotated[float, msgspec.Meta(ge=0)]]]
"""Objectives as `apply` reads them: pattern -> name -> threshold."""


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
    rows: list[Row] = []
    for each in objectives.find(conn):
        row = each._asdict()
        if each.kind == ANY:
            row["kind"] = None

        rows.append(row)

    listing(rows, ("queue", "objective", "value", "what"), for_people=_for_people)


def _for_people(row: Row) -> Row:
    pattern = Pattern(row["queue"], row["kind"] or ANY)
    meaning = MEANINGS[row["objective"]]

    return row | {"queue": str(pattern), "value": f"{row['value']:g}", "what": meaning}


add_verbs(objective, DECLARED)


@objective.command("apply")
@click.argument("wanted", metavar="JSON")
@set_options
def apply_objectives(wanted: str, run: Run) -> int:
    """Set the objectives that differ; the others stay.

    \b
    redrive objective apply '{"payments": {"dlq_added_5m": 3}}' --why 'as in values.yaml'

    Waits for the schema, as a worker does.
    """
    by_pattern = read_wanted(wanted, _Wanted, _HOLDS)

    inputs = (
        (pattern, {"objective": name, "value": str(value)})
        for pattern, values in by_pattern.items()
        for name, value in values.items()
    )
    return set_each(DECLARED["set-objective"], run, inputs)
