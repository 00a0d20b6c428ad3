"""Remarks on where a redrive sends jobs: the queue, and the versions that run there."""

from collections.abc import Iterable
from typing import LiteralString

from redrive.database.rows import Connection, column
from redrive.jobs.why.facts import Surroundings
from redrive.rules.rows import Fields


def remarks(conn: Connection, queue: str | None, kinds: Iterable[str]) -> list[str]:
    """Return what to know before jobs of these kinds go to a queue."""
    if queue is None:
        return []

    going = f"they go to the queue {queue}"
    live = Surroundings(conn).around.workers
    workers = [worker for worker in live if worker.serves(queue)]
    unique = sorted(set(kinds))
    without = [
        kind for kind in unique if not any(worker.handles(kind) for worker in workers)
    ]
    if workers and not without:
        return [going]

    names = ", ".join(without) or "any kind"
    return [going, f"no live worker works on {names} in the queue {queue}"]


def version_remarks(conn: Connection, groups: Iterable[Fields]) -> list[str]:
    """Return a warning if all live workers run versions in which these groups failed.

    A provider that is back needs no new version, so groups of transient and throttled
    failures are left out.
    """
    names = [group["group"] for group in groups]
    return _warning(column(conn, _UNFIXED, names))


def version_remarks_of(conn: Connection, campaign: int) -> list[str]:
    """Return the same warning about a planned campaign."""
    names = column(conn, _GROUPS, campaign)
    return _warning(column(conn, _UNFIXED, names))


_GROUPS: LiteralString = """
    select distinct d.fingerprint from (
        select j.id from redrive.campaign_jobs j where j.campaign = %s limit 10000) j
    join redrive.dead_letters d on d.id = j.id"""
"""Groups of the first 10,000 dead letters of a campaign."""

_UNFIXED: LiteralString = """
    select distinct unnest(u.versions) from (
        select array_agg(w.version) as versions
        from redrive.grouped g join redrive.workers w on redrive.handles_v1(w.kinds, g.kind)
        where g.fingerprint = any (%s) and g.category not in ('transient', 'throttled')
          and redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)
        group by g.fingerprint
        having bool_and(g.versions ? w.version)) u
    order by 1"""
"""Versions of the live workers, for groups that failed in all of these versions."""


def _warning(versions: list[str]) -> list[str]:
    if not versions:
        return []

    names = ", ".join(versions)
    running = "version {} is" if len(versions) == 1 else "versions {} are"
    return [f"only {running.format(names)} running, in which they failed before"]
