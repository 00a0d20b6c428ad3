"""Attempts to fix a cause: redrives, retries and edits of its jobs."""

from operator import itemgetter
from typing import LiteralString

from redrive.database.rows import Connection, rows
from redrive.rules.brief import counted
from redrive.rules.rows import Row

MOST_LETTERS = 2000
"""Latest dead letters of the group that are looked at."""
MOST = 8

_CAMPAIGNS: LiteralString = """
    with few as (
        select d.campaign from redrive.dead_letters d
        where d.fingerprint = %(group)s order by d.died_at desc limit %(letters)s)
    select coalesce(c.started_at, c.created_at) as at, c.id as campaign, c.state, c.actor, c.why,
           c.redriven, c.succeeded, c.dead_again, c.filter ? 'failing' as is_retry
    from redrive.campaigns c
    where (c.id in (select f.campaign from few f where f.campaign is not null)
           or c.filter ? 'failing' and c.filter ->> 'group' = %(group)s)
      and c.state <> 'planned'
    order by c.id desc limit %(most)s"""

_EDITS: LiteralString = """
    with few as (
        select d.id from redrive.dead_letters d
        where d.fingerprint = %(group)s order by d.died_at desc limit %(letters)s)
    select max(e.at) as at, e.actor, e.why, count(distinct e.job) as letters, e.paths
    from redrive.edits e join few f on f.id = e.job
    group by e.actor, e.why, e.paths order by max(e.at) desc limit %(most)s"""


def tried(conn: Connection, group: str) -> list[Row]:
    """Return the redrives and edits of a group, latest first."""
    values = {"group": group, "letters": MOST_LETTERS, "most": MOST}
    redrives = rows(conn, _CAMPAIGNS, **values)
    edits = rows(conn, _EDITS, **values)
    found = [_redrive(row) for row in redrives]
    found += [_edit(row) for row in edits]
    found.sort(key=itemgetter("at"), reverse=True)

    return found[:MOST]


def _redrive(row: Row) -> Row:
    """Return a campaign with a sentence about how it went."""
    return row | {
        "what": f"{'Retry' if row['is_retry'] else 'Redrive'} of {counted(row['redriven'], 'job')}",
        "went": _went(row),
    }


def _went(row: Row) -> str:
    """Say how many jobs of a campaign succeeded."""
    succeeded, dead_again = row["succeeded"], row["dead_again"]
    ended = succeeded + dead_again
    if not ended:
        return "none of its jobs has ended yet"
    if not dead_again:
        return f"{succeeded:,} of {ended:,} jobs succeeded"

    again = "failed again" if row["is_retry"] else "died again"
    return f"{succeeded:,} of {ended:,} jobs succeeded, {dead_again:,} {again}"


def _edit(row: Row) -> Row:
    """Return an edit in the form of a campaign."""
    paths = ", ".join(row["paths"])

    return row | {
        "campaign": None,
        "state": None,
        "went": None,
        "what": f"Edit of {paths} in {counted(row['letters'], 'payload')}",
    }
