"""Edits of the dead letters of a plan, for the person who starts it."""

from collections.abc import Iterator
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.dead_letters.edit.patch import decode, told
from redrive.dead_letters.find import show
from redrive.rules.rows import Row

MOST = 50
"""Edits that are shown; edits of one person with one patch and reason count as one."""

_EDITS: LiteralString = """
    select e.actor, e.login, e.why, e.patch::text as patch, count(*) as n, min(e.job) as job
    from redrive.campaign_jobs j
    join redrive.edits e on e.job = j.id and e.redrives = j.redrives
    where j.campaign = %s
    group by e.actor, e.login, e.why, e.patch order by min(e.at) limit %s"""


def edits_of(conn: Connection, campaign: int) -> tuple[list[str], bool]:
    """Return what was edited in the dead letters of a plan, and whether that is all.

    Each edit is a sentence, its operations with their values in full, and the
    difference in one of its payloads.
    """
    found = rows(conn, _EDITS, campaign, MOST + 1)
    remarks = [remark for edit in found[:MOST] for remark in _remarks(conn, edit)]

    return remarks, len(found) <= MOST


def _remarks(conn: Connection, edit: Row) -> Iterator[str]:
    payloads = "1 payload was" if edit["n"] == 1 else f"{edit['n']:,} payloads were"
    yield f"{payloads} edited by {edit['actor']} (login {edit['login']}): {edit['why']}"
    yield from map(told, decode(edit["patch"]))

    dead = show(conn, edit["job"])
    for one in dead["edits"] if dead else ():
        is_same = (one["actor"], one["why"]) == (edit["actor"], edit["why"])
        if is_same and one["diff"]:
            yield "\n".join(one["diff"])
