"""Figures of the overview and the groups: growth over time, and current problems."""

from collections.abc import Iterator, Mapping, Sequence
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.live_jobs.flow_control import breakers
from redrive.live_jobs.surroundings import standing
from redrive.live_jobs.surroundings.around import Surroundings
from redrive.live_jobs.surroundings.unhandled import unhandled
from redrive.rules.attempts.waiting import Code, why_queue
from redrive.rules.rows import Row
from redrive.rules.times import Period
from redrive.rules.trend import compared

MOST_KINDS = 3
"""Most names that one sentence lists."""

_DEPTHS: LiteralString = """
    select queue, ready, scheduled, retrying, running, dead, paused,
           oldest_ready_seconds,
           redrive.owner_of_v1(queue, null) as owner
    from redrive.depths_v1()"""

_GROWTH: LiteralString = """
    with per_minute as (
        select s.minute, s.dead - coalesce(
                   lag(s.dead) over (partition by s.queue order by s.minute),
                   case when s.minute > min(s.minute) over () then 0 end) as added
        from (select s.minute, s.queue, s.dead from redrive.samples s
              union all
              select date_trunc('minute', clock_timestamp()) + interval '1 minute',
                     t.queue, sum(t.n)
              from redrive.totals t where t.event = 'dead' group by t.queue) s)
    select m.minute, coalesce(sum(p.added), 0)::float8 as added
    from generate_series(
        date_trunc('minute', clock_timestamp()) - interval '58 minutes',
        date_trunc('minute', clock_timestamp()) + interval '1 minute',
        interval '1 minute') m(minute)
    left join per_minute p on p.minute = m.minute
    group by m.minute order by m.minute"""

MOST_OF_A_STEP = 500
"""Count no more dead letters of a step, because a taller bar tells nothing new."""

_DEATHS: LiteralString = """
    select g.fingerprint, array_agg(c.n order by s.start) as deaths
    from unnest(%(groups)s::text[]) as g(fingerprint)
    cross join unnest(%(starts)s::timestamptz[]) s(start)
    cross join lateral (
        select count(*)::int as n from (
            select from redrive.dead_letters d
            where d.fingerprint = g.fingerprint and d.died_at >= s.start
              and d.died_at < s.start + %(step)s::interval
            limit %(most)s) few) c
    group by g.fingerprint"""


def queues(conn: Connection) -> list[Row]:
    """Return the rows of `queue ls --json`, with blockers and unhandled kinds."""
    found = rows(conn, _DEPTHS)
    unhandled_jobs = unhandled(conn)
    around = Surroundings(conn).around

    for row in found:
        queue = row["queue"]
        why = why_queue(queue, around)
        row["why"] = None
        if why is not None:
            row["why"] = {"code": str(why.code), "text": why.text}

        row["unhandled"] = {
            each.kind: each.jobs for each in unhandled_jobs if each.queue == queue
        }

    return found


def growth(conn: Connection) -> list[float]:
    """Count the dead letters added in each of the last sixty minutes."""
    minutes = rows(conn, _GROWTH)
    return [max(0.0, minute["added"]) for minute in minutes]


def deaths(
    conn: Connection,
    groups: Sequence[str],
    steps: Period,
    most: int = MOST_OF_A_STEP,
) -> Mapping[str, list[int]]:
    """Count the dead letters of each group by step, latest last.

    Args:
        most: count no more dead letters of a step.
    """
    # A viewer's login may not read dead letters, not even those of no group.
    if not groups:
        return {}

    found = rows(
        conn,
        _DEATHS,
        groups=list(groups),
        starts=list(steps.starts()),
        step=steps.step,
        most=most,
    )
    return {row["fingerprint"]: row["deaths"] for row in found}


def now(conn: Connection) -> Row:
    """Return the current figures of a database and its problems."""
    found = queues(conn)
    added = growth(conn)
    alive = standing.alive(conn)
    problems = troubles(
        found,
        breakers.find(conn),
        added,
        alive,
    )

    return {
        "queues": found,
        "added": added,
        "alive": alive,
        "troubles": list(problems),
    }


Trouble = tuple[str, str]
"""A sentence about a problem, and the page to open."""


def troubles(
    found: Sequence[Row], breakers: Sequence[Row], added: Sequence[float], alive: int
) -> Iterator[Trouble]:
    """List the current problems.

    Args:
        found: the queues.
        added: dead letters added in each of the last minutes.
        alive: number of workers that are alive.
    """
    recent = sum(added[-5:])
    before = sum(added[-10:-5])

    if recent:
        trend = compared(int(recent), int(before), "five minutes")
        yield f"{_jobs(recent)} died in the last five minutes, {trend}.", "/groups"

    for breaker in breakers:
        if breaker["state"] != "closed":
            yield _open_breaker(breaker), "/breakers"

    for queue in found:
        for sentence in _of_queue(queue, is_worked=alive > 0):
            yield sentence, "/queues"

    if not alive:
        yield _no_worker(found), "/queues"


def _open_breaker(breaker: Row) -> str:
    name = breaker["name"]
    by = breaker["forced_by"]
    state = breaker["state"].replace("_", "-")
    held = f", held by {by}" if by else ""

    return f"The breaker {name} is {state}{held}."


def _of_queue(queue: Row, *, is_worked: bool) -> Iterator[str]:
    """Yield the problems of a queue, except that no worker is alive at all."""
    if is_worked and queue["unhandled"]:
        yield f"No worker for {_unhandled(queue)}."

    why = queue["why"]
    if why is None or not queue["ready"]:
        return

    if is_worked or why["code"] != Code.NO_WORKER:
        yield f"{queue['queue']}: {why['text']}."


def _no_worker(found: Sequence[Row]) -> str:
    due = sum(queue["ready"] for queue in found)
    waiting = f" for {_jobs(due, 'due ')}" if due else ""
    return f"No worker is alive{waiting}."


def _unhandled(queue: Row) -> str:
    """Count the waiting jobs of unhandled kinds in a queue, most jobs first."""
    kinds: dict[str, int] = queue["unhandled"]
    total = sum(kinds.values())
    jobs = _jobs(total, "due ")

    return f"{jobs} of {_listed(list(kinds))} in {queue['queue']}"


def _listed(kinds: Sequence[str]) -> str:
    """List the first kinds, and count the others if there are at least two."""
    others = len(kinds) - MOST_KINDS
    if others <= 1:
        return ", ".join(kinds)

    first = ", ".join(kinds[:MOST_KINDS])
    return f"{first} and {others} more kinds"


def _jobs(n: float, which: str = "") -> str:
    noun = "job" if n == 1 else "jobs"
    return f"{n:,.0f} {which}{noun}"
