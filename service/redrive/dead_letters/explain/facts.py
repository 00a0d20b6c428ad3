"""Comparison of a group's jobs, dead or failing, with others and with jobs that succeeded.

The work is bounded, however large the group is. The newest are examined, and some of
each part of the group's time.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import LiteralString, NamedTuple

from redrive.database.rows import Connection, rows
from redrive.dead_letters.explain import answer as rules
from redrive.dead_letters.explain.answer import Base, Observed
from redrive.dead_letters.groups import store as groups
from redrive.encryption import is_sealed, shown_payload
from redrive.rules.payloads.facts import MAX_PAYLOAD, Mark, facts_of
from redrive.rules.payloads.redact import secret_values
from redrive.rules.rows import Fields, Row

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
        where g.fingerprint <> %(group)s and g.total > 0 and (g.kind = %(kind)s) = %(of_kind)s
        order by g.last_seen desc limit %(groups)s),
    picked as materialized (
        select l.id, l.redrives from others o, lateral (
            select d.id, d.redrives from redrive.dead_letters d
            where d.fingerprint = o.fingerprint order by d.died_at desc limit %(of_each)s) l)"""
    + _LETTER
)

_FAILING: LiteralString = """
    select j.id, j.kind, j.queue, j.tenant, j.idempotency_key, j.ordering_key, j.headers,
           case when pg_column_size(j.payload) <= %(most)s then j.payload end as payload,
           f.detail ->> 'environment' as environment, f.detail ->> 'version' as version,
           extract(epoch from f.at)::float8 as at, (f.at at time zone 'utc') as died_at,
           f.detail ->> 'node' as node, f.detail ->> 'pod' as pod, f.detail -> 'secret_fields'
           as secret_fields
    from (select * from redrive.jobs o
          where o.fingerprint = %(group)s and o.failed_at is not null
          order by o.run_at limit %(newest)s) j
    cross join lateral (
        select o.detail, o.at from redrive.failures o where o.job = j.id
        order by o.deliveries limit 1) f"""
"""Jobs that fail now, by their first failures."""

_SUCCEEDED: LiteralString = """
    select s.facts, extract(epoch from s.at)::float8 as at,
           extract(hour from s.at at time zone 'utc')::int as hour
    from redrive.reservoir_samples s where s.kind = %(kind)s"""


class Group(NamedTuple):
    """A group to explain: its fingerprint, its kind, and its open dead letters."""

    fingerprint: str
    kind: str
    open: int


class Sample(NamedTuple):
    """What one database has of a group, and of other jobs to compare it with."""

    letters: list[Row]
    succeeded: list[Row]
    of_kind: list[Row]
    other_kinds: list[Row]


def explain(conn: Connection, fingerprint: str, *, most: int = OF_GROUP) -> Row | None:
    """Find the features that set one group apart, clearest first.

    The result also says how much was examined.

    Args:
        most: dead letters of the group to examine, and of others in proportion.

    Returns:
        None unless exactly one group's fingerprint matches.
    """
    group = find(conn, fingerprint)
    if group is None:
        return None

    return compare(group, {None: sample(conn, group, most)})


def find(conn: Connection, fingerprint: str) -> Group | None:
    """Return the group with this name, or the only one whose name begins so."""
    found = groups.show(conn, fingerprint)
    if found is None:
        return None

    return Group(fingerprint=found["group"], kind=found["kind"], open=found["open"])


def sample(conn: Connection, group: Group, most: int = OF_GROUP) -> Sample:
    """Read at most `most` dead letters of a group, its failing jobs, and others.

    The database need not know the group. Then its other jobs are still of use.
    """
    asked = {**_limits(most), "group": group.fingerprint, "kind": group.kind}
    succeeded = rows(conn, _SUCCEEDED, kind=group.kind)
    return Sample(
        letters=rows(conn, _OF_GROUP, **asked) + rows(conn, _FAILING, **asked),
        succeeded=succeeded,
        of_kind=rows(conn, _OF_OTHERS, **asked, of_kind=True),
        other_kinds=rows(conn, _OF_OTHERS, **asked, of_kind=False),
    )


def compare(group: Group, samples: Mapping[str | None, Sample]) -> Row:
    """Explain a group by the samples of all its cells together.

    Args:
        samples: by the name of the cell, which is then a feature of its jobs. None = the
            only database.
    """
    texts: dict[str, str] = {}
    letters = (letter for sample in samples.values() for letter in sample.letters)
    by_hour = len({letter["died_at"].date() for letter in letters}) >= MIN_DAYS
    jobs: list[Observed] = []

    for cell, sample in samples.items():
        observe = partial(_observed, cell=cell, by_hour=by_hour)
        jobs += [observe(letter, texts) for letter in sample.letters]

    bases = list(_bases(samples, by_hour=by_hour))
    findings = rules.explain(jobs, bases)

    return {
        "group": group.fingerprint,
        "open": group.open,
        "findings": [rules.shown(finding, texts) for finding in findings],
        "looked_at": len(jobs),
        "compared_with": {base.name: len(base.jobs) for base in bases},
    }


def _bases(samples: Mapping[str | None, Sample], *, by_hour: bool) -> Iterator[Base]:
    """Yield the jobs of all cells to compare with, by their sort."""
    succeeded: list[Observed] = []
    dead: list[Observed] = []
    other_kinds: list[Observed] = []

    for cell, sample in samples.items():
        # Findings name only values of the group itself, so these texts are not needed.
        observe = partial(_observed, texts=None, cell=cell, by_hour=by_hour)
        succeeded += _succeeded(sample.succeeded, cell, by_hour=by_hour)
        dead += map(observe, sample.of_kind)
        other_kinds += map(observe, sample.other_kinds)

    yield Base("succeeded", succeeded)
    yield Base("dead", dead)
    yield Base("other_kinds", other_kinds)


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


def _observed(
    letter: Fields,
    texts: MutableMapping[str, str] | None,
    *,
    cell: str | None,
    by_hour: bool,
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
    facts |= _of_cell(cell)
    if by_hour:
        facts["hour"] = letter["died_at"].hour

    return Observed(facts, letter["at"])


def _succeeded(
    rows: Iterable[Fields], cell: str | None, *, by_hour: bool
) -> Iterator[Observed]:
    for row in rows:
        hour = {"hour": row["hour"]} if by_hour else {}
        yield Observed(row["facts"] | _of_cell(cell) | hour, row["at"])


def _of_cell(cell: str | None) -> dict[str, Mark]:
    return {} if cell is None else {"cell": cell}
