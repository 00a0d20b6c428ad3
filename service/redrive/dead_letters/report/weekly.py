"""Figures of all dead letters in a period, for a weekly review.

Every statement reads counters, groups, or a bounded part of an index. So its cost does
not grow with the number of dead letters. Payloads and messages are not read.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString

from redrive.database.rows import Connection, rows
from redrive.dead_letters.report import review as rules
from redrive.rules.rows import Row

MOST_COUNTED = 100_000
"""Count no more dead letters of one state in one period."""
MOST_OF_GROUP = 10_000
"""Count no more dead letters of one group in one period."""
MOST_CAMPAIGNS = 10_000
MOST_MEASURED = 2_500
"""Measure the time to death of this many dead letters of each state, the latest."""
MOST_OLDEST = 10
MOST_PAIRS = 200
"""Find the oldest dead letter of this many pairs of queue and kind, the fullest."""
MOST_OF_KIND = 1_000
"""Look for it among this many dead letters of the kind, the oldest. Also look for the
oldest of each group among this many of all."""

_PERIOD: LiteralString = """
    select clock_timestamp() as until, %(since)s::timestamptz as since,
           %(since)s::timestamptz - (clock_timestamp() - %(since)s::timestamptz) as before"""

_COUNTS: LiteralString = """
    select coalesce(sum(n.now), 0)::int as new, coalesce(sum(b.before), 0)::int as before,
           coalesce(bool_or(greatest(n.now, b.before) >= %(most)s), false) as is_more
    from unnest(array['open', 'redriven', 'resolved', 'dismissed']) as s(state)
    cross join lateral (
        select count(*) as now from (
            select from redrive.dead_letters d
            where d.state = s.state and d.died_at >= %(since)s limit %(most)s) c) n
    cross join lateral (
        select count(*) as before from (
            select from redrive.dead_letters d
            where d.state = s.state and d.died_at >= %(before)s
              and d.died_at < %(since)s limit %(most)s) c) b"""

_OPEN: LiteralString = """
    with counted as (
        select t.queue, t.kind,
               sum(case when t.event in ('dead', 'imported', 'reopened') then t.n
                        else -t.n end)::bigint as open
        from redrive.totals t
        where t.event in ('dead', 'imported', 'reopened', 'redriven', 'dismissed', 'purged')
        group by t.queue, t.kind),
    placed as (
        select c.*, row_number() over (order by c.open desc, c.queue, c.kind) as nth
        from counted c where c.open > 0)
    select c.queue, c.kind, redrive.owner_of_v1(c.queue, c.kind) as owner, c.open, o.oldest
    from placed c
    left join lateral (
        select k.died_at as oldest
        from (select d.queue, d.died_at from redrive.dead_letters d
              where d.state = 'open' and d.kind = c.kind and c.nth <= %(pairs)s
              order by d.died_at limit %(most)s) k
        where k.queue = c.queue
        order by k.died_at limit 1) o on true
    order by c.nth"""

_GROUPS: LiteralString = """
    with recent as (
        select g.* from redrive.grouped g
        where g.open > 0 or g.last_seen >= %(since)s
        order by g.last_seen >= %(since)s desc, g.open desc, g.fingerprint
        limit %(groups)s)
    select g.fingerprint as "group", d.queue, g.kind, g.category, g.error_class, g.open,
           g.total, g.first_seen, g.last_seen, g.muted_until,
           redrive.owner_of_v1(d.queue, g.kind) as owner,
           g.first_seen >= %(since)s as is_new, n.now::int as new, n.before::int as before
    from recent g
    left join lateral (
        select o.queue from redrive.dead_letters o where o.id = g.sample
        order by o.redrives desc limit 1) d on true
    cross join lateral (
        select (select count(*) from (
                    select from redrive.dead_letters o
                    where o.fingerprint = g.fingerprint and o.died_at >= %(since)s
                    limit %(most)s) c) as now,
               (select count(*) from (
                    select from redrive.dead_letters o
                    where o.fingerprint = g.fingerprint and o.died_at >= %(before)s
                      and o.died_at < %(since)s limit %(most)s) c) as before) n
    order by g.open desc, g.last_seen desc, g.fingerprint"""

_OLDEST: LiteralString = """
    select * from (
        select distinct on (d.fingerprint)
               d.id, d.queue, d.kind, d.error_class, d.died_at, d.fingerprint as "group",
               coalesce(d.owner, redrive.owner_of_v1(d.queue, d.kind)) as owner
        from (select * from redrive.dead_letters o where o.state = 'open'
              order by o.died_at, o.id limit %(looked_at)s) d
        order by d.fingerprint, d.died_at, d.id) one_of_each
    order by died_at, id limit %(most)s"""

_CAMPAIGNS: LiteralString = """
    select c.id as campaign, c.state, c.actor, c.why, c.started_at, c.matched, c.redriven,
           c.succeeded, c.dead_again, c.cancelled, c.blocked, c.filter ? 'failing' as is_retry
    from (select * from redrive.campaigns o order by o.id desc limit %(most)s) c
    where coalesce(c.started_at, c.created_at) >= %(since)s and c.state <> 'planned'
    order by c.id desc"""

_TIMES: LiteralString = """
    select count(*)::int as measured,
           percentile_cont(0.5) within group (order by m.seconds) as median,
           percentile_cont(0.9) within group (order by m.seconds) as p90,
           max(m.seconds) as longest
    from unnest(array['open', 'redriven', 'resolved', 'dismissed']) as s(state)
    cross join lateral (
        select extract(epoch from d.died_at - d.created_at)::float8 as seconds
        from (select o.died_at, o.created_at, o.redrives from redrive.dead_letters o
              where o.state = s.state and o.died_at >= %(since)s
              order by o.died_at desc limit %(most)s) d
        where d.redrives = 0) m"""


def review(conn: Connection, since: datetime, causes: Sequence[Row]) -> Row:
    """Return what died since an instant, what is open, and how redrives went.

    The period before has the same length; `before` counts its dead letters.

    Args:
        causes: what live jobs fail for now, without messages.
    """
    period = _one(conn, _PERIOD, since=since)
    between = {"since": since, "before": period["before"]}

    # Groups with deaths in the period come first, then the fullest ones.
    groups = {"groups": rules.MOST_GROUPS, "most": MOST_OF_GROUP}
    is_open = rows(conn, _OPEN, pairs=MOST_PAIRS, most=MOST_OF_KIND)
    campaigns = rows(conn, _CAMPAIGNS, since=since, most=MOST_CAMPAIGNS)

    return {
        "since": since,
        "until": period["until"],
        **_one(conn, _COUNTS, **between, most=MOST_COUNTED),
        "open": is_open,
        "owners": rules.owners(is_open),
        "groups": _with_failing(rows(conn, _GROUPS, **between, **groups), causes),
        "failing": causes,
        "oldest": rows(conn, _OLDEST, looked_at=MOST_OF_KIND, most=MOST_OLDEST),
        "campaigns": campaigns,
        "redrives": rules.redrives(campaigns),
        "time_to_dlq": _one(conn, _TIMES, since=since, most=MOST_MEASURED),
    }


def _with_failing(groups: Sequence[Row], causes: Sequence[Row]) -> list[Row]:
    """Return the groups with the numbers of their failing jobs, the fullest first."""
    failing = Counter[str]()
    latest: dict[str, Row] = {}
    for cause in causes:
        failing[cause["group"]] += cause["failing"]
        # The queue of a group without dead letters is that of its failing jobs.
        latest[cause["group"]] = {name: cause[name] for name in ("queue", "owner")}

    found = [
        group | latest.get(group["group"], {}) | {"failing": failing[group["group"]]}
        for group in groups
    ]
    return sorted(found, key=lambda g: g["open"] + g["failing"], reverse=True)


def _one(conn: Connection, query: LiteralString, **values: Any) -> Row:
    return rows(conn, query, **values)[0]
