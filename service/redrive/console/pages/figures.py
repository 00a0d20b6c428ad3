"""Figures of the overview and the groups: growth over time, and current problems."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from redrive.live_jobs.around import Surroundings
from redrive.live_jobs.unhandled import unhandled
from redrive.rules.attempts.waiting import Code, why_queue

Connection = psycopg.Connection[Any]
Row = dict[str, Any]

MOST_KINDS = 3
"""Most names that one sentence lists."""

_DEPTHS: LiteralString = """
    select queue, ready, scheduled, retrying, running, dead, paused, oldest_ready_seconds
    from redrive.depths_v1()"""

_GROWTH: LiteralString = """
    with per_minute as (
        select s.minute, s.dead - coalesce(
                   lag(s.dead) over (partition by s.queue order by s.minute),
                   case when s.minute > min(s.minute) over () then 0 end) as added
        from (select s.minute, s.queue, s.dead from redrive.samples s
              union all
              select date_trunc('minute', clock_timestamp()) + interval '1 minute', t.queue,
                     sum(t.n)
              from redrive.totals t where t.event = 'dead' group by t.queue) s)
    select m.minute, coalesce(sum(p.added), 0)::float8 as added
    from generate_series(date_trunc('minute', clock_timestamp()) - interval '58 minutes',
                         date_trunc('minute', clock_timestamp()) + interval '1 minute',
                         interval '1 minute') m(minute)
    left join per_minute p on p.minute = m.minute
    group by m.minute order by m.minute"""

HOURS = 24
MOST_OF_AN_HOUR = 500
"""Stop counting the dead letters of an hour at this number; a taller bar adds
nothing.
"""

_HOURLY: LiteralString = """
    select g.fingerprint, array_agg(c.n order by h.hour) as hours
    from unnest(%(groups)s::text[]) as g(fingerprint)
    cross join generate_series(
        date_trunc('hour', clock_timestamp()) - %(hours)s * interval '1 hour',
        date_trunc('hour', clock_timestamp()), interval '1 hour') h(hour)
    cross join lateral (
        select count(*)::int as n from (
            select from redrive.dead_letters d
            where d.fingerprint = g.fingerprint and d.died_at >= h.hour
              and d.died_at < h.hour + interval '1 hour'
            limit %(most)s) few) c
    group by g.fingerprint"""

_WORKERS: LiteralString = """
    select name, version, coalesce(array_to_string(queues, ', '), 'all') as queues, seen_at,
           redrive.is_alive_v1(seen_at, lost_at, ttl) as is_alive
    from redrive.workers order by seen_at desc limit 50"""

BREAKERS: LiteralString = """
    select name, state, failures, successes, opened, opened_at, open_until, forced_by, forced_why
    from redrive.breakers order by name"""


def rows(conn: Connection, query: LiteralString, **values: Any) -> list[Row]:
    """Run a statement and return its rows."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, values or None).fetchall()


def queues(conn: Connection) -> list[Row]:
    """Return the rows of `queue ls --json`, with blockers and unhandled kinds."""
    found, kinds = rows(conn, _DEPTHS), unhandled(conn)
    around = Surroundings(conn).around
    for row in found:
        answer = why_queue(row["queue"], around)
        row["why"] = answer and {"code": str(answer.code), "text": answer.text}
        row["unhandled"] = {u.kind: u.jobs for u in kinds if u.queue == row["queue"]}
    return found


def growth(conn: Connection) -> list[float]:
    """Count the dead letters added in each of the last sixty minutes."""
    return [max(0.0, row["added"]) for row in rows(conn, _GROWTH)]


def hourly(conn: Connection, groups: Sequence[str]) -> Mapping[str, list[int]]:
    """Count the dead letters of each group by hour, latest last."""
    found = rows(
        conn, _HOURLY, groups=list(groups), hours=HOURS - 1, most=MOST_OF_AN_HOUR
    )
    return {row["fingerprint"]: row["hours"] for row in found}


def workers(conn: Connection) -> list[Row]:
    """Return the workers seen recently, latest first."""
    return rows(conn, _WORKERS)


def now(conn: Connection) -> dict[str, Any]:
    """Return the current figures of a database and its problems."""
    found, breakers, added = queues(conn), rows(conn, BREAKERS), growth(conn)
    alive = [worker for worker in workers(conn) if worker["is_alive"]]
    return {
        "queues": found,
        "added": added,
        "alive": alive,
        "troubles": list(troubles(found, breakers, added, len(alive))),
    }


def troubles(
    found: Sequence[Row], breakers: Sequence[Row], added: Sequence[float], alive: int
) -> Iterator[tuple[str, str]]:
    """List the current problems: a sentence and the page to open."""
    recent = sum(added[-5:])
    if recent:
        yield f"{_jobs(recent)} died in the last five minutes.", "/groups"
    for breaker in breakers:
        if breaker["state"] != "closed":
            held = (
                f", held so by {breaker['forced_by']}" if breaker["forced_by"] else ""
            )
            state = breaker["state"].replace("_", "-")
            yield f"The breaker {breaker['name']} is {state}{held}.", "/breakers"
    for queue in found:
        if alive and queue["unhandled"]:
            yield f"No worker for {_unhandled(queue)}.", "/queues"
        why = queue["why"]
        if why and queue["ready"] and (alive or why["code"] != Code.NO_WORKER):
            yield f"{queue['queue']}: {why['text']}.", "/queues"
    if not alive:  # report this once, not for each queue
        due = sum(queue["ready"] for queue in found)
        them = f" for {_jobs(due, 'due ')}" if due else ""
        yield f"No worker is alive{them}.", "/queues"


def _unhandled(queue: Row) -> str:
    """Count the waiting jobs of unhandled kinds in a queue, most jobs first."""
    kinds = list(queue["unhandled"])
    named = kinds if len(kinds) <= MOST_KINDS + 1 else kinds[:MOST_KINDS]
    more = f" and {len(kinds) - len(named)} more kinds" if named != kinds else ""
    jobs = sum(queue["unhandled"].values())
    return f"{_jobs(jobs, 'due ')} of {', '.join(named)}{more} in {queue['queue']}"


def _jobs(n: float, which: str = "") -> str:
    return f"{n:,.0f} {which}job{'s' * (n != 1)}"
