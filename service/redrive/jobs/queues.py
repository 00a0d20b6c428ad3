"""Queues: what they hold, and why nothing of them runs."""

from collections.abc import Sequence
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.jobs.unhandled import Unhandled, unhandled
from redrive.jobs.why.facts import Surroundings
from redrive.rules.rows import Row

_DEPTHS: LiteralString = """
    select queue, ready, scheduled, retrying, running, dead, paused,
           oldest_ready_seconds,
           redrive.owner_of_v1(queue, null) as owner
    from redrive.depths_v1()"""


def queues(
    conn: Connection, unhandled_jobs: Sequence[Unhandled] | None = None
) -> list[Row]:
    """Return the queues, with blockers and unhandled kinds.

    Args:
        unhandled_jobs: from `unhandled`, if the caller has it already.
    """
    found = rows(conn, _DEPTHS)
    if unhandled_jobs is None:
        unhandled_jobs = unhandled(conn)

    around = Surroundings(conn)

    for row in found:
        queue = row["queue"]
        why = around.why_queue(queue)
        row["why"] = why and why.fields()
        row["unhandled"] = {
            each.kind: each.jobs for each in unhandled_jobs if each.queue == queue
        }

    return found
