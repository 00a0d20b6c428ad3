"""Simulation of the code's policies on recorded failures, before a deploy."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import LiteralString

from psycopg.rows import dict_row

from redrive.database.rows import Connection
from redrive.encryption import shown_failure
from redrive.handlers import Handlers
from redrive.rules.attempts.categories import Evidence, judge
from redrive.rules.attempts.policy import RETRIED_FOR, WINDOW, Policy, decide, delay
from redrive.rules.attempts.settlement import DeadLetter, NotComplete, Outcome
from redrive.rules.model import Category, Claimed, Failure, Reason
from redrive.rules.rows import Row

MIDDLE = 0.5
"""Value in place of a random jitter."""

LONGEST = 1.0
"""Jitter of the longest wait."""


# A streak is counted as settle_v1 does: over all failures of a job, from zero after
# each redrive.
_RECORDED: LiteralString = """
    with history as (
        select f.*, coalesce(d.kind, j.kind) as kind,
               coalesce(d.max_attempts, j.max_attempts) as max_attempts,
               d.deliveries as died_at, d.reason,
               lag(f.fingerprint) over life is distinct from f.fingerprint as is_another
        from redrive.failures f
        left join redrive.jobs j on j.id = f.job
        left join lateral (
            select o.kind, o.max_attempts, o.deliveries, o.reason from redrive.dead_letters o
            where o.id = f.job and o.deliveries >= f.deliveries order by o.deliveries limit 1) d
            on true
        where f.job = any (array(select r.job from redrive.failures r where r.at >= %(since)s))
        window life as (partition by f.job, d.deliveries order by f.deliveries)),
    runs as (
        select h.*, count(*) filter (where is_another) over
            (partition by h.job, h.died_at order by h.deliveries) as run
        from history h)
    select kind, attempt, error_class, message, category, fingerprint, job, deliveries, detail,
           max_attempts, case when died_at = deliveries then reason end as reason,
           (row_number() over (partition by job, died_at, run order by deliveries))::int - 1
               as streak, at
    from runs where kind is not null"""


@dataclass(frozen=True, slots=True)
class Change:
    """Effect of a policy on a failure, before and after.

    Each is 'retry', or the reason of the death.
    """

    kind: str
    error_class: str
    category_then: str
    category_now: str
    then: str
    now: str

    @property
    def is_none(self) -> bool:
        """Return True if the failure is treated as before."""
        return (self.category_then, self.then) == (self.category_now, self.now)


def simulate(
    conn: Connection, handlers: Handlers, since: datetime
) -> tuple[int, Counter[Change]]:
    """Judge the failures since an instant again, by the policies in the code.

    Returns:
        The number of failures, and how often each change would be made.
    """
    seen = 0
    changes = Counter[Change]()

    for failure in _recorded(conn, since):
        handler = handlers.get(failure["kind"])
        if handler is None:
            continue
        # A failure without evidence, such as a killed process, cannot be judged again.
        if "classes" not in failure["detail"]:
            continue

        seen += 1
        change = _judge_again(failure, handler.policy)
        if not change.is_none:
            changes[change] += 1

    return seen, changes


def _recorded(conn: Connection, since: datetime) -> Iterator[Row]:
    with conn.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(_RECORDED, {"since": since}):
            if row["at"] >= since:
                yield shown_failure(row["job"], row)


def _judge_again(row: Row, policy: Policy) -> Change:
    then = row["reason"] or str(Outcome.RETRY)
    same = Change(
        kind=row["kind"],
        error_class=row["error_class"],
        category_then=row["category"],
        category_now=row["category"],
        then=then,
        now=then,
    )
    if row["detail"].get("phase") == "payload":  # always a death, whatever the policy
        return same

    failure = _failure(row, policy)
    retried_for, jitter = _waits(row, policy, failure.category)
    claimed = Claimed(
        row["kind"],
        row["attempt"],
        row["max_attempts"],
        streak=row["streak"],
        fingerprint=row["fingerprint"],
        retried_for=retried_for,
    )
    ending = decide(claimed, failure, policy, jitter)

    return replace(same, category_now=str(failure.category), now=_now(ending, then))


def _waits(row: Row, policy: Policy, category: Category) -> tuple[float, float]:
    """Return the waits before a failure, and a jitter that leads to the same sum.

    A retry recorded the sum with its wait. A death recorded the sum without the wait
    that exceeded the window, so the longest wait exceeds it, too.
    """
    detail = row["detail"]
    total = detail.get(RETRIED_FOR, 0.0)
    if WINDOW in detail:
        return total, LONGEST

    wait = delay(policy, attempt=row["attempt"], jitter=MIDDLE, category=category)
    before = max(0.0, total - wait)

    return before, MIDDLE


def _now(ending: NotComplete, then: str) -> str:
    if isinstance(ending, DeadLetter):
        return str(ending.reason)
    # The time left in its window when it failed is not on record.
    if then == Reason.EXPIRED:
        return then
    return str(ending.outcome)


def _failure(row: Row, policy: Policy) -> Failure:
    """Return a recorded failure, in the category that the policy assigns."""
    detail = row["detail"]
    evidence = Evidence(
        classes=tuple(detail["classes"]),
        message=row["message"],
        status=detail.get("status"),
        sqlstate=detail.get("sqlstate"),
        code=detail.get("code"),
    )
    category, verdict = judge(evidence, policy.rules)

    return Failure(
        error_class=row["error_class"],
        message=row["message"],
        category=category,
        fingerprint=row["fingerprint"],
        verdict=verdict,
    )
