"""Objectives: thresholds of the alerts on a queue, or on a kind of a queue."""

from typing import NamedTuple

from redrive.database.rows import Connection, records
from redrive.dead_letters.groups.owners import ANY, Pattern

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
    "failed_ratio": "share of the attempts of a kind that may fail",
}
OF_KINDS = ("dlq_added_5m", "dlq_added_1h", "page_on_first_dead_letter", "failed_ratio")
"""Objectives that a kind on a queue can have."""


class Objective(NamedTuple):
    """Threshold of the alerts on a queue, or on a kind of a queue; None = the default."""

    queue: str
    kind: str
    objective: str
    value: float | None


def find(conn: Connection) -> list[Objective]:
    """Return the objectives of all patterns."""
    return records(
        conn,
        Objective,
        "select queue, '*' as kind, objective, value from redrive.objectives union all"
        " select queue, kind, objective, value from redrive.kind_objectives"
        " order by queue, kind, objective",
    )


def set_objective(conn: Connection, wanted: Objective, *, actor: str, why: str) -> None:
    """Set an objective. A value of None removes it, so the default applies."""
    query = "select redrive.set_objective_v2(%s, %s, %s, %s, %s, %s)"
    conn.execute(query, (*wanted, actor, why))
