"""A page of jobs, at a bounded cost in looks and in time: live ones, then those that have ended."""

import time
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from redrive.live_jobs.around import Surroundings
from redrive.live_jobs.filter import LIVE, JobFilter
from redrive.live_jobs.find import FIRST_LOOKS, MOST_LOOKS, Connection, all_described, find, walk
from redrive.live_jobs.history import PLACE, find_ended


class Page(NamedTuple):
    """Some jobs, and the place to go on after; None = there are no more."""

    rows: list[dict[str, Any]]
    place: str | None


def page(
    conn: Connection, chosen: JobFilter, after: str | None, *, most: int, seconds: float
) -> Page:
    """The next jobs of a filter, as many as are found in about so many seconds, at most `most`."""
    live = replace(chosen, state=tuple(state for state in chosen.state if state in LIVE))
    is_past_live = after is not None and after.startswith(PLACE)
    if is_past_live or (chosen.state and not live.state):
        return _ended(conn, chosen, after, most)
    if chosen.ids:
        return Page(list(find(conn, replace(live, limit=most))), None)
    found = _live(conn, live, after, most, seconds)
    if found.place is None and len(found.rows) < most:
        more = _ended(conn, chosen, None, most - len(found.rows))
        return Page(found.rows + more.rows, more.place)
    return found


def _live(
    conn: Connection, chosen: JobFilter, after: str | None, most: int, seconds: float
) -> Page:
    give_up_at = time.monotonic() + seconds
    around, found, place, looks = Surroundings(conn), list[dict[str, Any]](), after, FIRST_LOOKS
    while True:
        rows = walk(conn, chosen, place, looks)
        is_last = not rows or rows[-1]["id"] is not None
        place = None if is_last else rows.pop()["place"]
        found += rows
        if len(found) > most:
            place = found[most - 1]["place"]
        if is_last or len(found) >= most or time.monotonic() > give_up_at:
            return Page(list(all_described(conn, found[:most], around)), place)
        looks = min(MOST_LOOKS, looks * 4)


def _ended(conn: Connection, chosen: JobFilter, after: str | None, most: int) -> Page:
    rows = list(islice(find_ended(conn, replace(chosen, limit=most + 1), after), most + 1))
    return Page(rows[:most], rows[most - 1]["place"] if len(rows) > most else None)
