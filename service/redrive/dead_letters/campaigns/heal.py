"""Heal: after a deploy, plan and start campaigns of the groups that it may have fixed.

`heal.sql` tries a group, and `healing.sql` decides which; `Heal` in rules/heal.py is
what a handler asks for.
"""

import time
from typing import LiteralString

import psycopg

from redrive.database.rows import Connection, rows, value
from redrive.dead_letters.campaigns.pace import ABORT_SHARE, CANARIES
from redrive.dead_letters.campaigns.store import MAX_REDRIVES
from redrive.dead_letters.groups.fixes import is_fixed
from redrive.rules.rows import Row

CAUSES = {
    "no_policy": "no live worker of its kind says both heal= and a version",
    "approval": "two people decide on its kind",
    "rollout": "not all workers of its kind run {version} yet",
    "newer": "first seen after {version} came",
    "over": "{version} has had its turn",
    "same_version": "it has died in {version}",
    "muted": "it is muted",
    "paused": "somebody has paused its campaign",
}
"""Reasons why a group is not redriven."""


def heal(conn: Connection, end: float) -> psycopg.Error | None:
    """Plan and start campaigns for groups that a new version may have fixed.

    Groups are handled one by one until monotonic `end`. Returns an error if there was
    one; it stops no campaign.
    """
    statement: LiteralString = "select redrive.heal_v1(%s, %s::float8)"
    is_healing = True

    try:
        while is_healing:
            found = value(conn, statement, MAX_REDRIVES, ABORT_SHARE)
            is_healing = found and time.monotonic() < end
    except psycopg.Error as error:
        return error

    return None


def retry_fixed(conn: Connection) -> None:
    """Retry the failing jobs of resolved groups once all workers have the fix."""
    for group in rows(conn, "select * from redrive.fixed_v1()"):
        versions = group["versions"]
        if versions and all(is_fixed(one, group["fixed_in"]) for one in versions):
            why = f"all workers have the fix: {', '.join(versions)}"
            conn.execute(
                "select redrive.retry_fixed_v1(%s, %s, %s, %s::float8)",
                (group["fingerprint"], why, CANARIES, ABORT_SHARE),
            )


def healing(conn: Connection) -> list[Row]:
    """List the open groups of bugs and invalid payloads, and groups whose jobs fail.

    Each says whether heal tries it, or why not.
    """
    return rows(
        conn,
        'select h.fingerprint as "group", h.kind, h.category, h.open,'
        " (select count(*) from redrive.jobs j"
        "  where j.fingerprint = h.fingerprint and j.failed_at is not null) as failing,"
        " h.first_seen, h.version, h.canaries, h.max_rate, h.cause is null as heals,"
        " h.cause as why from redrive.healing_v1(null) h"
        " order by h.cause is not null, h.open desc, h.fingerprint",
    )


def worded(cause: str | None, version: str | None) -> str:
    """Return a sentence that says whether a group is redriven, or why not."""
    if cause:
        return CAUSES[cause].format(version=version)
    return f"to be tried with {version}"
