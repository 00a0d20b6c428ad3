"""A page of dead letters at a bounded cost, however large the table is."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg.rows import dict_row

from redrive.database.looks import widening
from redrive.dead_letters import groups
from redrive.dead_letters.filter import STATES, Filter
from redrive.dead_letters.find import LISTED, Place, find
from redrive.dead_letters.reveal import reveal

Connection = psycopg.Connection[Any]

FIRST_LOOKS, MOST_LOOKS = 1000, 50_000

_GUARDS: LiteralString = """
    select set_config(name, 'off', true)
    from unnest(array['enable_seqscan', 'enable_bitmapscan', 'enable_sort']) as g(name)"""
"""Planner settings that make each list be read in the order of its index."""

_BY_STATE: LiteralString = "d.state = v.value"
_BY_GROUP: LiteralString = "d.fingerprint = v.value"
_BY_KIND: LiteralString = "d.state = 'open' and d.kind = v.value"
_BY_QUEUE: LiteralString = "d.state = 'open' and d.queue = v.value"

_END: tuple[Any, int] = ("infinity", 0)


class Page(NamedTuple):
    """Page of dead letters, and the place where the next begins; None = last page."""

    rows: list[dict[str, Any]]
    place: Place | None


def page(
    conn: Connection, chosen: Filter, after: Place | None, *, most: int, seconds: float
) -> Page:
    """Return the latest matching dead letters found in about `seconds` seconds.

    Candidates are read in batches, in the order of the narrowest index. The filter's
    other conditions are checked on each.
    """
    if chosen.ids:
        rows = find(conn, replace(chosen, limit=most + 1), after)
        return Page(rows[:most], _place(rows[most - 1]) if len(rows) > most else None)
    lists, rows, place = _lists(conn, chosen), list[dict[str, Any]](), after
    for looks in widening(FIRST_LOOKS, MOST_LOOKS, seconds):
        found, edge = _looked(conn, chosen, lists, place, (looks, most + 1 - len(rows)))
        rows += found
        # No id is below 1, so every dead letter of that very instant has been read.
        place = None if edge is None else (edge, 1)
        if place is None or len(rows) >= most:
            break
    if len(rows) > most:
        rows = rows[:most]
        place = _place(rows[-1])
    reveal(conn, rows)
    return Page(rows, place)


def _place(row: dict[str, Any]) -> Place:
    return row["died_at"], row["id"]


def _lists(conn: Connection, chosen: Filter) -> tuple[LiteralString, list[str]]:
    """Return the index lists that cover the filter, each in the order of death."""
    is_open = tuple(chosen.state) == ("open",)
    if chosen.group:
        return _BY_GROUP, groups.named(conn, chosen.group)
    if is_open and chosen.kind:
        return _BY_KIND, list(chosen.kind)
    if is_open and chosen.queue:
        return _BY_QUEUE, list(chosen.queue)
    return _BY_STATE, list(chosen.state or STATES)


def _looked(
    conn: Connection,
    chosen: Filter,
    lists: tuple[LiteralString, Sequence[str]],
    after: Place | None,
    bounds: tuple[int, int],
) -> tuple[list[dict[str, Any]], datetime | None]:
    """Return the matching rows of the next batch, and where the batch ended.

    An end of None means that no dead letters are left.

    Args:
        bounds: how many are read, and how many are wanted.
    """
    (of_list, values), (looks, most) = lists, bounds
    # Only one bound on each side: of two, the index scan may start at the wider one.
    conditions, parameters = replace(chosen, group=None, since=None, until=None).where()
    at, job = min(
        filter(None, (after, chosen.until and (chosen.until, 0))), default=_END
    )
    since, each = chosen.since or "-infinity", max(1, looks // len(values))
    with conn.transaction(), conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_GUARDS)
        asked = (
            values,
            at,
            job,
            since,
            each,
            values,
            at,
            job,
            since,
            *parameters,
            most,
            most,
        )
        rows = cursor.execute(_statement(of_list, conditions), asked).fetchall()
    edge = rows[0]["edge"]  # there is at least one row, which may hold only the edge
    found = [
        {name: value for name, value in row.items() if name != "edge"} for row in rows
    ]
    return [row for row in found if row["id"] is not None], edge


def _statement(of_list: LiteralString, conditions: LiteralString) -> LiteralString:
    """Build the statement for one batch.

    It returns the end of the batch, then the latest of each list, then the latest of
    all.
    """
    return f"""
        with edge as materialized (
            select max(e.died_at) as at from unnest(%s::text[]) v(value) cross join lateral (
                select d.died_at from redrive.dead_letters d
                where {of_list} and (d.died_at, d.id) < (%s::timestamptz, %s)
                  and d.died_at >= %s::timestamptz
                order by d.died_at desc offset %s limit 1) e)
        select e.at as edge, o.* from edge e left join lateral (
            select l.* from unnest(%s::text[]) v(value) cross join lateral (
                select {LISTED} from redrive.dead_letters d
                where {of_list} and (d.died_at, d.id) < (%s::timestamptz, %s)
                  and d.died_at >= coalesce(e.at, %s::timestamptz) and {conditions}
                order by d.died_at desc, d.id desc limit %s) l
            order by l.died_at desc, l.id desc limit %s) o on true"""
