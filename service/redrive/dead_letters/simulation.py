"""What the policies in the code now would have done with the failures on record: a diff, before
they are deployed.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from redrive.encryption import shown_failure
from redrive.handlers import Handlers
from redrive.rules import settlement
from redrive.rules.categories import Evidence, judge
from redrive.rules.model import Category, Claimed, Failure
from redrive.rules.policy import decide
from redrive.rules.settlement import NotComplete, Outcome

MIDDLE = 0.5
"""In place of chance: it changes how long a wait is, never what is decided."""


@dataclass(frozen=True, slots=True)
class Change:
    """Failures alike that would be treated otherwise now. What was done is 'retry' or the reason of
    the death.
    """

    kind: str
    error_class: str
    category_then: str
    category_now: str
    then: str
    now: str


def simulate(
    conn: psycopg.Connection[Any], handlers: Handlers, since: datetime
) -> tuple[int, Counter[Change]]:
    """Judge the failures recorded since an instant again. Returns how many there were, and the
    changes with counts.
    """
    seen, changes = 0, Counter[Change]()
    for row in _failures(conn, since):
        handler = handlers.get(row["kind"])
        if handler is None or "classes" not in row["detail"]:
            continue
        seen += 1
        evidence = Evidence(
            tuple(row["detail"]["classes"]),
            row["message"],
            row["detail"].get("status"),
            row["detail"].get("sqlstate"),
        )
        category, verdict = judge(evidence, handler.policy.rules)
        failure = Failure(
            row["error_class"], row["message"], category, row["fingerprint"], verdict=verdict
        )
        claimed = Claimed(row["kind"], row["attempt"], row["max_attempts"])
        ending = decide(claimed, failure, handler.policy, MIDDLE)
        now = _reason(ending)
        then = row["reason"] or str(Outcome.RETRY)
        if isinstance(ending, settlement.DeadLetter) and then == "same_failure":
            now = then  # that rests on the failures before it, which one record does not tell
        if now != then or category != Category(row["category"]):
            changes[
                Change(row["kind"], row["error_class"], row["category"], str(category), then, now)
            ] += 1
    return seen, changes


def _failures(conn: psycopg.Connection[Any], since: datetime) -> Iterator[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(
            "select coalesce(d.kind, j.kind) as kind, f.attempt, f.error_class, f.message, f.category, f.fingerprint,"
            " f.job, f.detail, coalesce(d.max_attempts, j.max_attempts) as max_attempts,"
            " case when d.deliveries = f.deliveries then d.reason end as reason"
            " from redrive.failures f left join redrive.jobs j on j.id = f.job"
            " left join lateral (select o.kind, o.max_attempts, o.deliveries, o.reason from redrive.dead_letters o"
            "   where o.id = f.job and o.deliveries >= f.deliveries order by o.deliveries limit 1) d on true"
            " where f.at >= %s and coalesce(d.kind, j.kind) is not null",
            (since,),
        ):
            yield shown_failure(row["job"], row)


def _reason(ending: NotComplete) -> str:
    """Why the job would die, as `dead_letters.reason` has it; else what would become of it."""
    return str(ending.reason if isinstance(ending, settlement.DeadLetter) else ending.outcome)
