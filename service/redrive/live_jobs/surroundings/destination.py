"""Remarks on the queue to which a redrive sends jobs."""

from collections.abc import Iterable

from redrive.database.rows import Connection
from redrive.live_jobs.surroundings.around import Surroundings
from redrive.rules.attempts.waiting import Worker


def remarks(conn: Connection, queue: str | None, kinds: Iterable[str]) -> list[str]:
    """Return what to know before jobs of these kinds go to a queue."""
    if queue is None:
        return []

    going = f"they go to the queue {queue}"
    workers = _serving(conn, queue)
    unique = sorted(set(kinds))
    without = [kind for kind in unique if not _is_handled(kind, workers)]
    if workers and not without:
        return [going]

    names = ", ".join(without) or "any kind"
    return [going, f"no live worker works on {names} in the queue {queue}"]


def _serving(conn: Connection, queue: str) -> list[Worker]:
    live = Surroundings(conn).around.workers
    return [worker for worker in live if worker.serves(queue)]


def _is_handled(kind: str, workers: Iterable[Worker]) -> bool:
    return any(worker.handles(kind) for worker in workers)
