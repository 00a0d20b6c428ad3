"""redrive worker ls: who works, on what, and since when they were heard of."""

from typing import Any, LiteralString

import click
from psycopg.rows import dict_row

from redrive.cli.connection import database
from redrive.cli.options import database_option, json_option, pager_option, settings_for
from redrive.cli.output import length, listing, paged

COLUMNS = (
    "name",
    "version",
    "state",
    "slots",
    "inflight",
    "started",
    "heard",
    "queues",
    "kinds",
)
KINDS_SHOWN = 3

SELECT: LiteralString = """
    select w.id, w.name, w.version, w.started_at, w.seen_at, w.queues, w.kinds,
           case when w.lost_at is not null then 'lost'
                when w.seen_at < c.at - coalesce(w.ttl, interval '30 seconds')
                    then 'silent'
                when w.is_closed or (w.progress ->> 'draining')::boolean then 'draining'
                else 'working' end as state,
           (w.progress ->> 'slots')::int as slots, w.inflight,
           extract(epoch from c.at - w.started_at)::float8 as uptime_seconds,
           extract(epoch from c.at - w.seen_at)::float8 as heartbeat_age_seconds
    from redrive.workers w cross join (select clock_timestamp() as at) c order by w.name, w.id"""
"""Who ended in peace is in no row; who was lost, until its jobs are rescued and it is forgotten."""


@click.command("ls")
@database_option
@json_option
@pager_option
def list_workers(database_url: str | None, as_json: bool) -> None:
    """List the workers, and since when they were heard of.

    Each is working, draining, silent for longer than its REDRIVE_HEARTBEAT_TTL, or lost.

    \b
    redrive worker ls
    """
    with (
        database(settings_for(database_url)) as conn,
        conn.cursor(row_factory=dict_row) as cursor,
    ):
        rows = cursor.execute(SELECT).fetchall()
    with paged():
        listing(
            rows if as_json else map(_for_people, rows),
            COLUMNS,
            as_json=as_json,
            right=("slots", "inflight"),
            empty="no worker",
        )


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        "started": f"{length(row['uptime_seconds'])} ago",
        "heard": f"{length(row['heartbeat_age_seconds'])} ago",
        "queues": "all" if row["queues"] is None else ", ".join(row["queues"]),
        "kinds": _short(row["kinds"] or []),
    }


def _short(kinds: list[str]) -> str:
    more = len(kinds) - KINDS_SHOWN
    return ", ".join(kinds[:KINDS_SHOWN]) + (f" and {more} more" if more > 0 else "")
