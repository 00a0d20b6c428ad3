"""A page of jobs at a bounded cost: live jobs first, then ended ones."""

from dataclasses import replace
from itertools import islice
from typing import Any, LiteralString, NamedTuple

from redrive.database.looks import widening
from redrive.live_jobs.around import Surroundings
from redrive.live_jobs.filter import LIVE, JobFilter
from redrive.live_jobs.find import (
    FIRST_LOOKS,
    GUARDS,
    MOST_LOOKS,
    Connection,
    all_described,
    find,
    walk,
)
from redrive.live_jobs.history import PLACE, find_ended

_QUEUES: LiteralString = """
    select distinct queue from redrive.totals where kind = any (%s::text[])"""

_BY_ORDERING_KEY: LiteralString = """
    select j.id from (select distinct queue from redrive.totals) q
    cross join unnest(%s::text[]) k(key) cross join lateral (
        select o.id from redrive.jobs o where o.queue = q.queue and o.ordering_key = k.key
        order by o.id limit %s) j limit %s"""
_BY_KEY: LiteralString = """
    select j.id from (select distinct kind from redrive.totals) t
    cross join unnest(%s::text[]) k(key) cross join lateral (
        select o.id from redrive.jobs o where o.kind = t.kind and o.idempotency_key = k.key
        limit %s) j limit %s"""


class Page(NamedTuple):
    """Page of jobs, and the place where the next begins; None = last page."""

    rows: list[dict[str, Any]]
    place: str | None


def page(
    conn: Connection, chosen: JobFilter, after: str | None, *, most: int, seconds: float
) -> Page:
    """Return at most `most` matching jobs, found in about `seconds` seconds."""
    live = replace(
        chosen, state=tuple(state for state in chosen.state if state in LIVE)
    )
    is_past_live = after is not None and after.startswith(PLACE)
    if is_past_live or (chosen.state and not live.state):
        return _ended(conn, chosen, after, most)
    if chosen.ids:
        return Page(list(find(conn, replace(live, limit=most))), None)
    if after is None and (named := _keyed(conn, live, most)):
        found = Page(list(find(conn, replace(live, ids=named))), None)
    else:
        found = _live(conn, live, after, most, seconds)
    if found.place is None and len(found.rows) < most:
        more = _ended(conn, chosen, None, most - len(found.rows))
        return Page(found.rows + more.rows, more.place)
    return found


def _keyed(conn: Connection, chosen: JobFilter, most: int) -> list[int]:
    """Return the jobs of a key from an index; none if there is more than a page."""
    keys, statement = chosen.ordering_key, _BY_ORDERING_KEY
    if chosen.key:
        keys, statement = chosen.key, _BY_KEY
    if not keys:
        return []
    with conn.transaction():
        conn.execute(GUARDS)
        ids = [i for (i,) in conn.execute(statement, (list(keys), most + 1, most + 1))]
    return ids if len(ids) <= most else []


def _live(
    conn: Connection, chosen: JobFilter, after: str | None, most: int, seconds: float
) -> Page:
    if chosen.kind and not chosen.queue:  # only queues that had such jobs
        queues = [queue for (queue,) in conn.execute(_QUEUES, (list(chosen.kind),))]
        if not queues:
            return Page([], None)
        chosen = replace(chosen, queue=queues)
    found, place = list[dict[str, Any]](), after
    for looks in widening(FIRST_LOOKS, MOST_LOOKS, seconds):
        rows = walk(conn, chosen, place, looks)
        is_last = not rows or rows[-1]["id"] is not None
        place = None if is_last else rows.pop()["place"]
        found += rows
        if is_last or len(found) >= most:
            break
    if len(found) > most:
        place = found[most - 1]["place"]
    return Page(list(all_described(conn, found[:most], Surroundings(conn))), place)


def _ended(conn: Connection, chosen: JobFilter, after: str | None, most: int) -> Page:
    rows = list(
        islice(find_ended(conn, replace(chosen, limit=most + 1), after), most + 1)
    )
    return Page(rows[:most], rows[most - 1]["place"] if len(rows) > most else None)
