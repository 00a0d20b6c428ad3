"""Causes of failures while their jobs are still retried, and before any of them dies."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import LiteralString

from redrive.database.rows import Connection, column, rows, value
from redrive.dead_letters.groups.store import MOST_FAILING
from redrive.dead_letters.reveal import reveal
from redrive.jobs.control import in_chunks
from redrive.observability.series import now_of, read_series, read_unrecorded
from redrive.rules.brief import brief
from redrive.rules.instants import clock
from redrive.rules.rows import Row
from redrive.rules.times import MINUTE, period

MINUTES = 5
"""The share of attempts that fail is measured over this number of minutes."""
LEAST_ATTEMPTS = 20
MOST_OF_MESSAGE = 120
MOST_FORETOLD = 5_000
"""Jobs of the largest cause whose failures are read to tell when the first one dies."""

_Counts = Counter[str | None]

_FIELDS: LiteralString = """
    select c.queue, c.kind, c.fingerprint as "group", c.category, c.failing, c.since,
           c.next_retry, c.sample, redrive.owner_of_v1(c.queue, c.kind) as owner,
           (select o.value from redrive.kind_objectives o
            where o.objective = 'failed_ratio' and o.queue in (c.queue, '*')
              and o.kind in (c.kind, '*')
            order by o.kind = '*', o.queue = '*' limit 1) as objective"""
_FIGURES: LiteralString = f"""{_FIELDS}, null as error_class, null as message
    from redrive.failing_v1(%s) c"""
_WITH_MESSAGES: LiteralString = f"""{_FIELDS}, f.error_class, f.message
    from redrive.failing_v1(%s) c
    left join lateral (
        select l.error_class, l.message from redrive.failures l
        where l.job = c.sample and l.fingerprint = c.fingerprint
        order by l.deliveries desc limit 1) f on true"""
_JOBS: LiteralString = """
    select j.id, j.queue, j.kind, j.attempt, j.streak, j.failed_at,
           case when j.run_at < redrive.held_until_v1() then j.run_at end as next_retry
    from redrive.jobs j where j.fingerprint = %s and j.failed_at is not null
    order by j.run_at, j.id limit %s"""
_DIES: LiteralString = """
    select case when bool_and(f.lasts is not null)
                then min(f.at + f.lasts::float8 * interval '1 second') end
    from redrive.jobs j
    left join lateral (
        select l.at, l.detail ->> 'lasts' as lasts from redrive.failures l
        where l.job = j.id order by l.deliveries desc limit 1) f on true
    where j.fingerprint = %s and j.failed_at is not null"""
_MAY_READ: LiteralString = "select has_table_privilege('redrive.failures', 'select')"


def find(
    conn: Connection,
    *,
    kind: Sequence[str] = (),
    category: Sequence[str] = (),
    owner: str | None = None,
    messages: bool = True,
) -> list[Row]:
    """Return the causes for which live jobs fail, most jobs first.

    The error and its message are None without `messages`, or if the login may not read
    failures. `share` is None if no attempt of the kind has ended in the last minutes.
    `text` says all this. Of the first cause, it also says when a job may die.
    """
    query = _WITH_MESSAGES if messages and value(conn, _MAY_READ) else _FIGURES
    found = [
        cause
        for cause in rows(conn, query, MOST_FAILING)
        if (not kind or cause["kind"] in kind)
        and (not category or cause["category"] in category)
        and owner in (None, cause["owner"])
    ]
    if not found:
        return []

    reveal(conn, found, "sample")
    now = now_of(conn)
    ended, failed = _attempts(conn, now)

    for cause in found:
        attempts = ended[cause["kind"]]
        cause["attempts"] = attempts
        cause["share"] = failed[cause["kind"]] / attempts if attempts else None
        cause["text"] = _text(cause, now)

    _foretell(conn, found[0], now)
    return found


def _foretell(conn: Connection, cause: Row, now: datetime) -> None:
    """Say of the largest cause when the first of its jobs may die."""
    if cause["error_class"] is None or cause["failing"] > MOST_FORETOLD:
        return

    dies_at = value(conn, _DIES, cause["group"])
    if dies_at is not None and dies_at > now:
        cause["text"] += f", none dies before {_day(dies_at, now)}"


def _day(at: datetime, now: datetime) -> str:
    """Format an instant of the next days in UTC, to the minute before it."""
    at = at.astimezone(UTC)
    if at.date() == now.astimezone(UTC).date():
        return f"{at:%H:%M} UTC"
    if at - now < timedelta(days=6):
        return f"{at:%A %H:%M} UTC"
    return f"{at:%Y-%m-%d}"


def jobs_of(conn: Connection, group: str, most: int) -> list[Row]:
    """Return the failing jobs of a group that are due first."""
    return rows(conn, _JOBS, group, most)


def ids(conn: Connection, group: str) -> list[int]:
    """Return the failing jobs of a group that wait for another attempt."""
    return column(
        conn,
        "select j.id from redrive.jobs j where j.fingerprint = %s and j.failed_at is not null"
        " and j.run_at > clock_timestamp() order by j.id",
        group,
    )


def hold(conn: Connection, group: str, *, is_held: bool, actor: str, why: str) -> bool:
    """Let the failing jobs of a group wait, or release them.

    Returns False if there is no such group, or none to release.
    """
    return value(
        conn, "select redrive.hold_group_v1(%s, %s, %s, %s)", group, is_held, actor, why
    )


def give_up(
    conn: Connection,
    jobs: Sequence[int],
    *,
    actor: str,
    why: str,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Turn failing jobs into dead letters; return how many there were.

    Args:
        progress: called after each chunk with the number it handled.
    """
    query = "select redrive.give_up_v1(%s::bigint[], %s, %s)"
    chunks = in_chunks(jobs, progress)
    return sum(len(column(conn, query, chunk, actor, why)) for chunk in chunks)


def failing_kinds(causes: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence about each kind if its share of failures reaches its objective."""
    seen = set[str]()
    for cause in causes:
        kind = cause["kind"]
        if kind in seen:
            continue

        seen.add(kind)
        share = cause["share"] or 0
        if cause["attempts"] >= LEAST_ATTEMPTS and share >= cause["objective"]:
            yield f"{cause['text']}."


def _attempts(conn: Connection, now: datetime) -> tuple[_Counts, _Counts]:
    """Count the attempts of each kind that ended in the last minutes, and that failed."""
    minutes = period(now - MINUTES * MINUTE, now, now, MINUTES)
    recorded = read_series(conn, minutes, by_kind=True)
    ended, failed = _Counts(), _Counts()

    for point in (*recorded, *read_unrecorded(conn, minutes, by_kind=True)):
        ended[point.kind] += point.completed + point.failed
        failed[point.kind] += point.failed

    return ended, failed


def _text(cause: Row, now: datetime) -> str:
    """Say what fails, since when, why, and how many jobs have this cause."""
    share = cause["share"]
    which = "jobs" if share is None else f"{share:.0%} of attempts"
    failing = cause["failing"]
    jobs = "1 job is" if failing == 1 else f"{failing:,} jobs are"

    since = f" since {clock(cause['since'], now)}" if cause["since"] else ""
    why = ""
    if cause["error_class"] is not None:
        message = brief(cause["message"], MOST_OF_MESSAGE).rstrip(".")
        why = f", {cause['error_class']}: {message}"

    return f"{cause['kind']}: {which} fail{since}{why}; {jobs} retried"
