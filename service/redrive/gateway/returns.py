"""Messages that came back dead after they were sent back."""

from collections.abc import Callable, Sequence
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.encryption import shown_failure
from redrive.gateway.marks import Mark
from redrive.gateway.message import Message
from redrive.idempotency import idempotent
from redrive.rules.model import Category, Failure

_RETURNED: LiteralString = """
    select redrive.first_time_v1(key) from unnest(%s::text[]) key order by key"""

_GENUINE: LiteralString = """
    select v.n::int
    from unnest(%s::bigint[], %s::text[]) with ordinality v(job, source_id, n)
    where exists (select from redrive.imports i
                  where i.source = %s and i.source_id = v.source_id and i.job = v.job)
       or exists (select from redrive.jobs j
                  where j.id = v.job and j.headers ->> 'source_id' = v.source_id)"""
"""Marks of jobs that were taken in. Any publisher may write others."""

_STANDING: LiteralString = """
    select v.n::int
    from unnest(%s::bigint[], %s::text[]) with ordinality v(job, source_id, n)
    where exists (select from redrive.imports i
                  where i.source = %s and i.source_id = v.source_id and i.job = v.job)
      and (exists (select from redrive.jobs j where j.id = v.job)
           or exists (select from redrive.dead_letters d
                      where d.id = v.job and d.state = 'open'))"""
"""Marks whose jobs are live or open dead letters."""


_FAILURES: LiteralString = """
    select distinct on (f.fingerprint) f.deliveries, f.error_class, f.message, f.category,
           f.fingerprint, f.detail
    from redrive.failures f where f.job = %s
    order by f.fingerprint, f.deliveries desc"""


def returns(
    conn: Connection,
    kind: str,
    messages: Sequence[Message],
    fingerprint: Callable[[Message], str | None],
) -> set[int]:
    """Record the messages that came back dead; return the numbers of these.

    The key of a mark decides between this and the job's success: both take it, and the
    first one commits. Then a job that is live will fail, and one that has succeeded is
    gone, so that its message is imported like any other.
    """
    marked = [(n, message.mark) for n, message in enumerate(messages) if message.mark]
    genuine = _selected(conn, _GENUINE, kind, marked)
    keys = {mark.key for _, mark in genuine}
    keys |= {mark.cause_key(fingerprint(messages[n]) or "") for n, mark in genuine}
    conn.execute(_RETURNED, (sorted(keys),))
    return {n for n, _ in _selected(conn, _STANDING, kind, genuine)}


def repeated_failure(conn: Connection, mark: Mark) -> Failure | None:
    """Return the failure that a message which came back has repeated.

    None if it died of a cause that its job did not have before. Call it in a
    transaction that is rolled back.
    """
    for row in rows(conn, _FAILURES, mark.job):
        if not idempotent(conn, mark.cause_key(row["fingerprint"])):
            found = shown_failure(mark.job, row)
            return Failure(
                found["error_class"],
                found["message"],
                Category(found["category"]),
                found["fingerprint"],
                {"stack": found["detail"].get("stack", [])},
                verdict="give_up",
            )

    return None


Marked = Sequence[tuple[int, Mark]]
"""Numbers of messages, and their marks."""


def _selected(
    conn: Connection, query: LiteralString, kind: str, marked: Marked
) -> Marked:
    """Return the marks that a query selects."""
    if not marked:
        return []
    jobs = [mark.job for _, mark in marked]
    ids = [mark.source_id for _, mark in marked]
    found = conn.execute(query, (jobs, ids, kind)).fetchall()
    return [marked[int(n) - 1] for (n,) in found]
