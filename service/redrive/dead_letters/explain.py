"""Comparison of a group's dead letters with others and with jobs that succeeded.

The work is bounded, however large the group is. The newest are examined, and some of
each part of the group's time.
"""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from datetime import date
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from redrive.dead_letters import groups
from redrive.encryption import is_sealed, shown_payload
from redrive.rules.dead_letters import explain as rules
from redrive.rules.dead_letters.explain import Base, Observed
from redrive.rules.payloads.facts import MAX_PAYLOAD, facts_of
from redrive.rules.payloads.redact import secret_values

OF_GROUP, SLICES = 2000, 20
"""Dead letters of the group to examine, and the parts of its time to sample."""
OTHER_GROUPS, OF_EACH = 20, 100
"""Other groups to compare with, the latest seen, and dead letters from each."""
MIN_DAYS = 3
"""An hour of the day is a finding only if it recurs on this many days."""


PLACE = ("queue", "environment", "version", "node", "pod")
"""Columns that tell where a dead letter failed."""

_LETTER: LiteralString = """
    select d.id, d.kind, d.queue, d.tenant, d.idempotency_key, d.ordering_key, d.headers,
           case when pg_column_size(d.payload) <= %(most)s then d.payload end as payload,
           d.environment, d.version, extract(epoch from d.died_at)::float8 as at,
           (d.died_at at time zone 'utc') as died_at,
           f.detail ->> 'node' as node, f.detail ->> 'pod' as pod, f.detail -> 'secret_fields'
           as secret_fields
    from picked p
    cross join lateral (  -- with a limit: no plan may read the whole table instead
        select * from redrive.dead_letters o
        where o.id = p.id and o.redrives = p.redrives limit 1) d
    left join lateral (select o.detail from redrive.failures o where o.job = d.id
                       order by o.deliveries desc limit 1) f on true"""

_OF_GROUP: LiteralString = (
    """
    with ends as materialized (
        select (select d.died_at from redrive.dead_letters d where d.fingerprint = %(group)s
                order by d.died_at limit 1) as since,
               (select d.died_at from redrive.dead_letters d where d.fingerprint = %(group)s
                order by d.died_at desc limit 1) as until),
    parts as materialized (
        select e.since + (e.until - e.since) * n / %(slices)s as since,
               e.since + (e.until - e.since) * (n + 1) / %(slices)s as until
        from ends e, generate_series(0, %(slices)s - 1) n),
    picked as materialized (
        (select d.id, d.redrives from redrive.dead_letters d where d.fingerprint = %(group)s
         order by d.died_at desc limit %(newest)s)
        union
        select l.id, l.redrives from parts p, lateral (
            select d.id, d.redrives from redrive.dead_letters d
            where d.fingerprint = %(group)s and d.died_at >= p.since and d.died_at < p.until
            order by d.died_at limit %(each)s) l)"""
    + _LETTER
)

_OF_OTHERS: LiteralString = (
    """
    with others as materialized (
        select g.fingerprint from redrive.groups g
        where g.fingerprint <> %(group)s and (g.kind = %(kind)s) = %(of_kind)s
        order by g.last_seen desc limit %(groups)s),
    picked as materialized (
        select l.id, l.redrives from others o, lateral (
            select d.id, d.redrives from redrive.dead_letters d
            where d.fingerprint = o.fingerprint order by d.died_at desc limit %(of_each)s) l)"""
    + _LETTER
)

_SUCCEEDED: LiteralString = """
    select s.facts, extract(epoch from s.at)::float8 as at,
           extract(hour from s.at at time zone 'utc')::int as hour
    from redrive.reservoir_samples s where s.kind = %(kind)s"""


def explain(
    conn: psycopg.Connection[Any], fingerprint: str, *, most: int = OF_GROUP
) -> dict[str, Any] | None:
    """Find the features that set one group apart, clearest first.

    The result also says how much was examined.

    Args:
        most: dead letters of the group to examine, and of others in proportion.

    Returns:
        None unless exactly one group's fingerprint matches.
    """
    group = groups.show(conn, fingerprint)
    if group is None:
        return None
    texts: dict[str, str] = {}
    asked = {**_limits(most), "group": group["group"], "kind": group["kind"]}
    letters = _letters(conn, _OF_GROUP, asked)
    by_hour = len(_days(letters)) >= MIN_DAYS
    jobs = [_observed(letter, texts, by_hour=by_hour) for letter in letters]
    bases = _bases(conn, asked, by_hour=by_hour)
    findings = rules.explain(jobs, bases)
    return {
        "group": group["group"],
        "open": group["open"],
        "findings": [rules.shown(finding, texts) for finding in findings],
        "looked_at": len(jobs),
        "compared_with": {base.name: len(base.jobs) for base in bases},
    }


def _bases(
    conn: psycopg.Connection[Any], asked: Mapping[str, Any], *, by_hour: bool
) -> list[Base]:
    """Return what the group is compared with."""
    succeeded = _succeeded(conn, asked["kind"], by_hour=by_hour)
    of_kind = _others(conn, asked, of_kind=True, by_hour=by_hour)
    of_others = _others(conn, asked, of_kind=False, by_hour=by_hour)
    return [
        Base("succeeded", succeeded),
        Base("dead", of_kind),
        Base("other_kinds", of_others),
    ]


def _limits(most: int) -> dict[str, int]:
    """Return the sample sizes for `most` dead letters.

    Half are the newest, the others come from all parts of the group's time.
    """
    half = most // 2
    groups_in_proportion = OTHER_GROUPS * most // OF_GROUP
    each_in_proportion = OF_EACH * most // OF_GROUP
    return {
        "most": MAX_PAYLOAD,
        "slices": SLICES,
        "newest": half,
        "each": half // SLICES,
        "groups": max(OTHER_GROUPS // 2, groups_in_proportion),
        # perhaps only one other group exists
        "of_each": max(rules.MIN_BASE, each_in_proportion),
    }


def _letters(
    conn: psycopg.Connection[Any], statement: LiteralString, asked: Mapping[str, Any]
) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement, asked).fetchall()


def _days(letters: Iterable[Mapping[str, Any]]) -> set[date]:
    return {letter["died_at"].date() for letter in letters}


def _others(
    conn: psycopg.Connection[Any],
    asked: Mapping[str, Any],
    *,
    of_kind: bool,
    by_hour: bool,
) -> Sequence[Observed]:
    found = _letters(conn, _OF_OTHERS, {**asked, "of_kind": of_kind})
    return [_observed(letter, None, by_hour=by_hour) for letter in found]


def _observed(
    letter: Mapping[str, Any], texts: MutableMapping[str, str] | None, *, by_hour: bool
) -> Observed:
    """Return a dead letter for comparison.

    Encrypted data is read if its key is here.
    """
    declared = letter["secret_fields"] or ()
    payload = shown_payload(letter)
    headers = letter["headers"]
    secrets = secret_values([payload, headers], declared)
    facts = facts_of(
        None if is_sealed(payload) else payload,
        headers,
        letter["tenant"],
        declared=declared,
        secrets=secrets,
        texts=texts,
    )
    facts |= {name: letter[name] for name in PLACE if letter[name]}
    if by_hour:
        facts["hour"] = letter["died_at"].hour
    return Observed(facts, letter["at"])


def _succeeded(
    conn: psycopg.Connection[Any], kind: str, *, by_hour: bool
) -> Sequence[Observed]:
    with conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_SUCCEEDED, {"kind": kind}).fetchall()
    if by_hour:
        for row in rows:
            row["facts"]["hour"] = row["hour"]
    return [Observed(row["facts"], row["at"]) for row in rows]
