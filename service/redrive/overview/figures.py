"""Figures of the overview and the groups: growth over time, and current problems."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.jobs import breakers, failing, standing
from redrive.jobs.queues import queues
from redrive.jobs.why.answer import Code
from redrive.observability.series import read_series, read_unrecorded
from redrive.rules.brief import counted
from redrive.rules.rows import Row
from redrive.rules.times import HOUR, MINUTE, Period, period
from redrive.rules.trend import compared

MOST_KINDS = 3
"""Most names that one sentence lists."""

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


def growth(conn: Connection) -> list[float]:
    """Count the jobs that died in each minute of the last hour, and in this one.

    The charts of the console count the same.
    """
    now = datetime.now(UTC)
    minutes = period(now - HOUR, now, now, HOUR // MINUTE)
    recorded = read_series(conn, minutes)
    died: Counter[datetime] = Counter()

    for point in (*recorded, *read_unrecorded(conn, minutes)):
        died[point.at] += point.died

    return [float(died[start]) for start in minutes.starts()]


def deaths(
    conn: Connection, groups: Sequence[str], steps: Period, most: int = MOST_OF_A_STEP
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
    causes = failing.find(conn)
    problems = troubles(found, breakers.find(conn), added, alive, causes)

    return {
        "queues": found,
        "added": added,
        "alive": alive,
        "failing": causes,
        "troubles": list(problems),
    }


Trouble = tuple[str, str]
"""A sentence about a problem, and the page to open."""


def troubles(
    found: Sequence[Row],
    breakers: Sequence[Row],
    added: Sequence[float],
    alive: int,
    causes: Sequence[Row] = (),
) -> Iterator[Trouble]:
    """List the current problems.

    Args:
        found: the queues.
        added: dead letters added in each of the last minutes.
        alive: number of workers that are alive.
        causes: why live jobs fail.
    """
    for sentence in failing.failing_kinds(causes):
        yield sentence, "/groups"

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
        yield _no_worker(found), "/workers"


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

    if is_worked or not Code(why["code"]).is_lack_of_workers:
        yield f"{queue['queue']}: {why['text']}."


def _no_worker(found: Sequence[Row]) -> str:
    due = sum(queue["ready"] for queue in found)
    waiting = f" for {_jobs(due, 'due ')}" if due else ""
    return f"No worker is alive{waiting}."


def _unhandled(queue: Row) -> str:
    """Count the waiting jobs of unhandled kinds in a queue, most jobs first."""
    kinds: dict[str, int] = queue["unhandled"]
    jobs = _jobs(sum(kinds.values()), "due ")

    return f"{jobs} of {_listed(list(kinds))} in {queue['queue']}"


def _listed(kinds: Sequence[str]) -> str:
    """List the first kinds, and count the others if there are at least two."""
    others = len(kinds) - MOST_KINDS
    if others <= 1:
        return ", ".join(kinds)

    first = ", ".join(kinds[:MOST_KINDS])
    return f"{first} and {others} more kinds"


def _jobs(n: float, which: str = "") -> str:
    return counted(round(n), f"{which}job")
