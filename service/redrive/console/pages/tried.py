"""What was tried against a cause: redrives and edits of its dead letters."""

from typing import Any, LiteralString

import psycopg

from redrive.console.pages.figures import rows

MOST_LETTERS = 2000
"""Latest dead letters of the group that are looked at."""
MOST = 8

_CAMPAIGNS: LiteralString = """
    with few as (
        select d.campaign from redrive.dead_letters d
        where d.fingerprint = %(group)s order by d.died_at desc limit %(letters)s)
    select coalesce(c.started_at, c.created_at) as at, c.id as campaign, c.state, c.actor, c.why,
           c.redriven, c.succeeded, c.dead_again
    from redrive.campaigns c
    where c.id in (select f.campaign from few f where f.campaign is not null)
      and c.state <> 'planned'
    order by c.id desc limit %(most)s"""

_EDITS: LiteralString = """
    with few as (
        select d.id from redrive.dead_letters d
        where d.fingerprint = %(group)s order by d.died_at desc limit %(letters)s)
    select max(e.at) as at, e.actor, e.why, count(distinct e.job) as letters, e.paths
    from redrive.edits e join few f on f.id = e.job
    group by e.actor, e.why, e.paths order by max(e.at) desc limit %(most)s"""


def tried(conn: psycopg.Connection[Any], group: str) -> list[dict[str, Any]]:
    """Return the redrives and edits of a group, latest first."""
    values = {"group": group, "letters": MOST_LETTERS, "most": MOST}
    redrives = rows(conn, _CAMPAIGNS, **values)
    edits = rows(conn, _EDITS, **values)
    found = [_redrive(row) for row in redrives] + [_edit(row) for row in edits]
    return sorted(found, key=lambda each: each["at"], reverse=True)[:MOST]


def _redrive(row: dict[str, Any]) -> dict[str, Any]:
    """Return a campaign with a sentence about how it went."""
    ended = row["succeeded"] + row["dead_again"]
    went = f"{row['succeeded']:,} of {ended:,} jobs succeeded"
    if row["dead_again"]:
        went += f", {row['dead_again']:,} died again"
    if not ended:
        went = "none of its jobs has ended yet"
    jobs = "job" if row["redriven"] == 1 else "jobs"
    return row | {"went": went, "what": f"Redrive of {row['redriven']:,} {jobs}"}


def _edit(row: dict[str, Any]) -> dict[str, Any]:
    paths = ", ".join(row["paths"])
    letters = "payload" if row["letters"] == 1 else "payloads"
    what = f"Edit of {paths} in {row['letters']:,} {letters}"
    return row | {"campaign": None, "state": None, "went": None, "what": what}
