"""Whether live workers work on a queue that a redrive sends jobs to."""

from collections.abc import Iterable
from typing import Any

import psycopg

from redrive.live_jobs.around import Surroundings


def remarks(
    conn: psycopg.Connection[Any], queue: str | None, kinds: Iterable[str]
) -> list[str]:
    """Return what to know before jobs of these kinds go to a queue."""
    if queue is None:
        return []
    found = [f"they go to the queue {queue}"]
    workers = [w for w in Surroundings(conn).around.workers if w.serves(queue)]
    without = sorted(
        kind for kind in set(kinds) if not any(w.handles(kind) for w in workers)
    )
    if without or not workers:
        names = ", ".join(without) or "any kind"
        found.append(f"no live worker works on {names} in the queue {queue}")
    return found
