"""Messages that came back dead after they were sent back."""

from collections.abc import Callable, Mapping, Sequence
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.encryption import shown_failure
from redrive.extras.gateway.marks import Mark
from redrive.extras.gateway.message import Message
from redrive.handlers.hand_over import token_of
from redrive.idempotency import idempotent
from redrive.rules.model import Category, Failure

_RETURNED: LiteralString = """
    select redrive.first_time_v1(key) from unnest(%s::text[]) key order by key"""

_STANDING: LiteralString = """
    select c.job, c.deliveries, c.data
    from unnest(%s::bigint[]) v(job)
    join redrive.checkpoints c on c.job = v.job
    where exists (select from redrive.jobs j where j.id = v.job)
       or exists (select from redrive.dead_letters d where d.id = v.job and d.state = 'open')"""
"""Checkpoints of jobs that are live or open dead letters."""


_FAILURES: LiteralString = """
    select distinct on (f.fingerprint) f.deliveries, f.error_class, f.message, f.category,
           f.fingerprint, f.detail
    from redrive.failures f where f.job = %s
    order by f.fingerprint, f.deliveries desc"""


def returns(
    conn: Connection,
    messages: Sequence[Message],
    fingerprint: Callable[[Message], str | None],
) -> set[int]:
    """Record the messages that came back dead; return the numbers of these.

    The key of a mark decides between this and the job's success: both take it, and the
    first one commits. Then a job that is live will fail, and one that has succeeded is
    gone, so that its message is imported like any other.
    """
    marked = {n: one.mark for n, one in enumerate(messages) if one.mark}
    genuine = _standing(conn, marked)
    keys: set[str] = set()

    for n, mark in genuine.items():
        cause = fingerprint(messages[n]) or ""
        keys.add(mark.key)
        keys.add(mark.cause_key(cause))

    conn.execute(_RETURNED, (sorted(keys),))
    # Again, because a job may have succeeded before its key was taken here.
    return set(_standing(conn, genuine))


def repeated_failure(conn: Connection, mark: Mark) -> Failure | None:
    """Return the failure that a message which came back has repeated.

    None if it died of a cause that its job did not have before. Call it in a
    transaction that is rolled back.
    """
    for row in rows(conn, _FAILURES, mark.job):
        # The key is taken if `returns` has recorded this cause.
        if not idempotent(conn, mark.cause_key(row["fingerprint"])):
            found = shown_failure(mark.job, row)
            return Failure(
                error_class=found["error_class"],
                message=found["message"],
                category=Category(found["category"]),
                fingerprint=found["fingerprint"],
                detail={"stack": found["detail"].get("stack", [])},
                verdict="give_up",
            )

    return None


def _standing(conn: Connection, marked: Mapping[int, Mark]) -> dict[int, Mark]:
    """Return the marks whose jobs are not over, and have kept the same token.

    Args:
        marked: number of a message -> its mark.
    """
    if not marked:
        return {}

    jobs = {mark.job for mark in marked.values()}
    found = rows(conn, _STANDING, sorted(jobs))
    tokens = {row["job"]: token_of(row["job"], row) for row in found}

    return {n: mark for n, mark in marked.items() if tokens.get(mark.job) == mark.token}
