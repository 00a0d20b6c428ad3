"""Failing jobs and dead letters by cause: counts, versions, and whether a version has fixed it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString

from psycopg.types.json import Jsonb

from redrive.database.rows import Connection, rows, value
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups import owners
from redrive.dead_letters.groups.fixes import fixed_among, fixes_of
from redrive.dead_letters.reveal import reveal
from redrive.rules.payloads.escape import escaped
from redrive.rules.rows import Row

JUDGED_AT_A_TIME = 100
MOST_NAMED = 3
MOST_FAILING = 200_000
"""Failing jobs that are read; if there are more, the counts are too low."""

STATES = ("open", "resolved", "regressed")
_STATE: LiteralString = """case when g.fixed_in is null then 'open'
                when g.regressed_at is null then 'resolved' else 'regressed' end"""

_SELECT: LiteralString = f"""
    select g.fingerprint as "group", g.kind, g.category, g.error_class, g.message,
           coalesce(w.failing, 0) as failing, w.failing_since, w.next_retry, g.open, g.total,
           g.failed, g.first_seen, g.last_seen, g.versions,
           case when g.total > 0 then g.sample else coalesce(w.sample, g.sample) end as sample,
           g.muted_until, g.muted_by, g.muted_why,
           {_STATE} as state,
           g.fixed_in, g.resolved_at, g.resolved_by, g.resolved_why, g.since, g.regressed_in,
           g.regressed_at,
           (select count(*) from redrive.dead_letters d
            where d.fingerprint = g.fingerprint and d.quarantined and d.state = 'open')
               as quarantined,
           redrive.owner_of_v1(coalesce(o.queue, w.queue, redrive.queue_of_v1(g.sample)), g.kind)
               as owner,
           o.acknowledged_at, o.acknowledged_by, o.acknowledged_why,
           h.at as held_at, h.actor as held_by, h.why as held_why
    from redrive.grouped g
    left join redrive.open_groups o on o.fingerprint = g.fingerprint
    left join redrive.held_groups h on h.fingerprint = g.fingerprint and h.spread is null
    left join (
        select f.fingerprint, sum(f.failing)::bigint as failing, min(f.since) as failing_since,
               min(f.next_retry) as next_retry, max(f.sample) as sample, min(f.queue) as queue
        from redrive.failing_v1(%(most_jobs)s) f group by f.fingerprint) w
        on w.fingerprint = g.fingerprint"""

_FIND: LiteralString = f"""
    {_SELECT}
    where (g.open > 0 or w.failing > 0 or %(closed)s
           or (g.fixed_in is not null and %(state)s::text[] <> '{{}}'))
      and ({_STATE} = any (%(state)s::text[]) or %(state)s::text[] = '{{}}')
      and (g.kind = any (%(kind)s::text[]) or %(kind)s::text[] = '{{}}')
      and (g.category = any (%(category)s::text[]) or %(category)s::text[] = '{{}}')
      and (%(new_since)s::text is null
           or g.first_seen >= (select min((o.versions ->> %(new_since)s)::timestamptz)
                               from redrive.grouped o where o.versions ? %(new_since)s))
      and (o.acknowledged_at is null or not %(unacknowledged)s)
      and (w.failing > 0 or not %(failing)s) and (g.open > 0 or not %(dead)s)
      and (%(owner)s::text is null or %(owner)s = redrive.owner_of_v1(
               coalesce(o.queue, w.queue, redrive.queue_of_v1(g.sample)), g.kind))
    order by g.open + coalesce(w.failing, 0) desc, g.last_seen desc nulls last limit %(limit)s"""


def find(  # noqa: PLR0913 # filters
    conn: Connection,
    *,
    kind: Sequence[str] = (),
    category: Sequence[str] = (),
    state: Sequence[str] = (),
    new_since: str | None = None,
    owner: str | None = None,
    unacknowledged: bool = False,
    failing: bool = False,
    dead: bool = False,
    closed: bool = False,
    limit: int | None = None,
) -> list[Row]:
    """Return groups, the largest first.

    Args:
        state: only groups in one of these states, with jobs or not.
        new_since: only groups first seen after the first failure of this image version.
        owner: only groups of this owner's queues and kinds.
        unacknowledged: only groups that nobody has acknowledged.
        failing: only groups with failing jobs.
        dead: only groups with open dead letters.
        closed: include groups with no failing job and no open dead letter left.
    """
    filters = {
        "kind": list(kind),
        "category": list(category),
        "state": list(state),
        "new_since": new_since,
        "owner": owner,
        "unacknowledged": unacknowledged,
        "failing": failing,
        "dead": dead,
        "closed": closed,
        "limit": limit,
        "most_jobs": MOST_FAILING,
    }
    found = rows(conn, _FIND, **filters)
    reveal(conn, found, "sample")

    return found


def show(conn: Connection, fingerprint: str) -> Row | None:
    """Return the group with this name, or the only one whose name begins so, or None."""
    found = rows(
        conn,
        f"{_SELECT} where starts_with(g.fingerprint, %(name)s)"
        " order by length(g.fingerprint), g.fingerprint limit 2",
        name=fingerprint,
        most_jobs=MOST_FAILING,
    )
    if not found:
        return None

    first = found[0]
    is_exact = first["group"] == fingerprint
    if len(found) > 1 and not is_exact:
        return None

    reveal(conn, [first], "sample")
    return first


def named(conn: Connection, beginning: str) -> list[str]:
    """Return the group with this name alone, or else all whose names begin so."""
    return value(conn, "select redrive.groups_named_v1(%s)", beginning) or []


def missing(group: str, names: Sequence[str] = ()) -> str:
    """Return the text about the beginning of a name that selects no group, or several.

    Args:
        names: the groups whose names begin so.
    """
    shown = escaped(group)
    if not names:
        return f"no group begins with {shown}"

    some = ", ".join(sorted(names)[:MOST_NAMED])
    more = ", ..." if len(names) > MOST_NAMED else ""

    return (
        f"{len(names)} groups begin with {shown}: {some}{more}; give more of the name"
    )


def where(conn: Connection, chosen: Filter) -> tuple[LiteralString, list[Any]]:
    """Return a filter's conditions with names that an index finds."""
    found: dict[str, object] = {}
    if chosen.group:
        found["group"] = named(conn, chosen.group)
    if chosen.owner:
        found["owner"] = owners.owned(conn, chosen.owner)

    return chosen.where(**found)


def mute(
    conn: Connection, fingerprint: str, until: datetime | None, *, actor: str, why: str
) -> bool:
    """Exclude a group from redrives until an instant; None ends that.

    Returns whether the group exists.
    """
    return bool(
        value(
            conn,
            "select redrive.mute_v1(%s, %s, %s, %s)",
            fingerprint,
            until,
            actor,
            why,
        )
    )


def resolve(
    conn: Connection, fingerprint: str, versions: Sequence[str], *, actor: str, why: str
) -> list[str] | None:
    """Record the versions that have the fix of a group, one for each release line.

    Returns:
        The versions, sorted, or None if there is no such group.

    Raises:
        ValueError: a version has no order, or the group has failed in a version with the
            fix.
    """
    # A failure in another version may come in between. Then read and compare again.
    while True:
        group = show(conn, fingerprint)
        if group is None:
            return None

        fixes = fixes_of(versions, group["versions"])
        result = _resolve(conn, group, fixes, actor=actor, why=why)
        if result == "missing":
            return None
        if result == "done":
            return fixes


def unresolve(conn: Connection, fingerprint: str, *, actor: str, why: str) -> bool:
    """Forget the versions that have the fix; return whether any were recorded."""
    while True:
        group = show(conn, fingerprint)
        if group is None:
            return False

        result = _resolve(conn, group, None, actor=actor, why=why)
        if result != "changed":
            return result == "done"


def _resolve(
    conn: Connection, group: Row, fixes: list[str] | None, *, actor: str, why: str
) -> str | None:
    """Return `done`, `missing`, or `changed` if it has failed in another version since."""
    return value(
        conn,
        "select redrive.resolve_v1(%s, %s, %s, %s, %s)",
        group["group"],
        fixes,
        list(group["versions"]),
        actor,
        why,
    )


def judge(conn: Connection) -> int:
    """Find the resolved groups that failed in a version with the fix, and record that.

    Returns how many groups were compared.
    """
    found = rows(conn, "select * from redrive.unjudged_v1(%s)", JUDGED_AT_A_TIME)
    for group in found:
        failed_in = [version for version, n in group["since"].items() if n > 0]
        regressed_in = fixed_among(failed_in, group["fixed_in"])

        # Nothing is recorded if the group has changed since it was read.
        conn.execute(
            "select redrive.judge_v1(%s, %s, %s, %s)",
            (
                group["fingerprint"],
                group["resolved_at"],
                Jsonb(group["since"]),
                regressed_in,
            ),
        )

    return len(found)
