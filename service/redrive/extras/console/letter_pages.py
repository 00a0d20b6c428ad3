"""A page of dead letters at a bounded cost, however large the table is."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, LiteralString, NamedTuple

from redrive.database.looks import widening
from redrive.database.rows import Connection, rows
from redrive.dead_letters.filter import STATES, Filter
from redrive.dead_letters.find import LISTED, Place, find
from redrive.dead_letters.groups import acknowledgements
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.reveal import reveal
from redrive.rules.rows import Row

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

    rows: list[Row]
    place: Place | None


def page(
    conn: Connection, chosen: Filter, after: Place | None, *, most: int, seconds: float
) -> Page:
    """Return the latest matching dead letters found in about `seconds` seconds.

    Candidates are read in batches, in the order of the narrowest index. The filter's
    other conditions are checked on each.
    """
    if chosen.ids:
        return _cut(find(conn, replace(chosen, limit=most + 1), after), most, None)

    lists = _lists(conn, chosen)
    rows: list[Row] = []
    place = after

    for looks in widening(FIRST_LOOKS, MOST_LOOKS, seconds):
        # One more than the page shows that there is another page.
        wanted = most + 1 - len(rows)
        batch = _Batch(after=place, looks=looks, wanted=wanted)
        found, edge = _looked(conn, chosen, lists, batch)
        rows += found

        if edge is None:
            place = None
            break

        # No id is below 1, so every dead letter of that very instant has been read.
        place = edge, 1
        if len(rows) >= most:
            break

    shown = _cut(rows, most, place)
    reveal(conn, shown.rows)
    acknowledgements.mark(conn, shown.rows)

    return shown


def _cut(rows: list[Row], most: int, place: Place | None) -> Page:
    """Return a page of at most `most` rows; without a cut it ends at `place`."""
    if len(rows) <= most:
        return Page(rows, place)

    last = rows[most - 1]
    place = last["died_at"], last["id"]

    return Page(rows[:most], place)


def _lists(conn: Connection, chosen: Filter) -> tuple[LiteralString, list[str]]:
    """Return the index lists that cover the filter, each in the order of death."""
    is_open = tuple(chosen.state) == ("open",)
    # The narrowest index comes first.
    if chosen.group:
        return _BY_GROUP, groups.named(conn, chosen.group)
    if is_open and chosen.kind:
        return _BY_KIND, list(chosen.kind)
    if is_open and chosen.queue:
        return _BY_QUEUE, list(chosen.queue)

    return _BY_STATE, list(chosen.state or STATES)


def _read(
    conn: Connection, statement: LiteralString, asked: Sequence[Any]
) -> list[Row]:
    with conn.transaction():
        # The settings end with the transaction.
        conn.execute(_GUARDS)
        return rows(conn, statement, *asked)


class _Batch(NamedTuple):
    """Dead letters to look at.

    Attributes:
        after: place where they begin; None = with the latest.
        looks: how many are read.
        wanted: how many matching ones are returned at most.
    """

    after: Place | None
    looks: int
    wanted: int


def _looked(
    conn: Connection,
    chosen: Filter,
    lists: tuple[LiteralString, Sequence[str]],
    batch: _Batch,
) -> tuple[list[Row], datetime | None]:
    """Return the matching rows of the next batch, and where the batch ended.

    An end of None means that no dead letters are left.
    """
    of_list, values = lists
    # Only one bound on each side: of two, the index scan may start at the wider one.
    others = replace(chosen, group=None, since=None, until=None)
    conditions, parameters = others.where()
    since = chosen.since or "-infinity"

    # The statement needs these bounds twice: for the edge and for the rows.
    until = chosen.until and (chosen.until, 0)
    begin = (values, *min(filter(None, (batch.after, until)), default=_END), since)
    # There is no list if no group has this name.
    each = max(1, batch.looks // max(1, len(values)))
    asked = (*begin, each, *begin, *parameters, batch.wanted, batch.wanted)
    rows = _read(conn, _statement(of_list, conditions), asked)
    edges = [row.pop("edge") for row in rows]
    found = [row for row in rows if row["id"] is not None]

    return found, edges[0]  # there is at least one row, which may hold only the edge


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
