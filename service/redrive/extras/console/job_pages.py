"""A page of jobs at a bounded cost: live jobs first, then ended ones."""

from dataclasses import replace
from typing import LiteralString, NamedTuple

from redrive.database.looks import widening
from redrive.database.rows import Connection, column
from redrive.jobs.filter import JobFilter
from redrive.jobs.find import FIRST_LOOKS, GUARDS, MOST_LOOKS, all_described, find, walk
from redrive.jobs.history import find_ended, live_part
from redrive.jobs.why.facts import Surroundings
from redrive.rules.rows import Row

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

    rows: list[Row]
    place: str | None


def page(
    conn: Connection, chosen: JobFilter, after: str | None, *, most: int, seconds: float
) -> Page:
    """Return at most `most` matching jobs, found in about `seconds` seconds.

    A page may have fewer jobs and still not be the last one.

    Args:
        after: `place` of the page before; None = the first page.
    """
    live = live_part(chosen, after)
    if live is None:
        return _ended(conn, chosen, after, most)
    if chosen.ids:
        return _named(conn, live, most)

    found = _live(conn, live, after, most, seconds)
    has_more = found.place is not None
    if has_more or len(found.rows) >= most:
        return found

    left = most - len(found.rows)
    more = _ended(conn, chosen, None, left)
    return Page(found.rows + more.rows, more.place)


def _named(conn: Connection, live: JobFilter, most: int | None = None) -> Page:
    limited = replace(live, limit=most or live.limit)
    return Page(list(find(conn, limited)), None)


def _keyed(conn: Connection, chosen: JobFilter, most: int) -> list[int]:
    """Return the jobs of a key from an index; none if there is more than a page."""
    keys, statement = chosen.ordering_key, _BY_ORDERING_KEY
    if chosen.key:
        keys, statement = chosen.key, _BY_KEY
    if not keys:
        return []

    limit = most + 1
    with conn.transaction():
        conn.execute(GUARDS)
        found = column(conn, statement, list(keys), limit, limit)

    return found if len(found) <= most else []


def _live(
    conn: Connection, chosen: JobFilter, after: str | None, most: int, seconds: float
) -> Page:
    # A later page continues the walk of the first one.
    if after is None:
        named = _keyed(conn, chosen, most)
        if named:
            return _named(conn, replace(chosen, ids=named))

    # The walk can skip queues, but not kinds.
    if chosen.kind and not chosen.queue:
        queues = column(conn, _QUEUES, list(chosen.kind))
        if not queues:
            return Page([], None)

        chosen = replace(chosen, queue=queues)

    found, place = _walked(conn, chosen, after, most, seconds)
    if len(found) > most:
        place = found[most - 1]["place"]

    around = Surroundings(conn)
    return Page(list(all_described(conn, found[:most], around)), place)


def _walked(
    conn: Connection, chosen: JobFilter, after: str | None, most: int, seconds: float
) -> tuple[list[Row], str | None]:
    """Return matching jobs, and the place where the walk ended; None = at the end."""
    found: list[Row] = []
    place = after

    for looks in widening(FIRST_LOOKS, MOST_LOOKS, seconds):
        rows, place = walk(conn, chosen, place, looks)
        found += rows
        if place is None or len(found) >= most:
            break

    return found, place


def _ended(conn: Connection, chosen: JobFilter, after: str | None, most: int) -> Page:
    # One more than a page, to see whether there is another one.
    wanted = replace(chosen, limit=most + 1)
    rows = list(find_ended(conn, wanted, after))
    if len(rows) <= most:
        return Page(rows, None)

    last = rows[most - 1]
    return Page(rows[:most], last["place"])
