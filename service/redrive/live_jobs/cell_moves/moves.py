"""Move of a key's jobs and dead letters from one cell to another.

Two databases have no common transaction. So a job is taken out of the source into a
document, the document is put into the destination, and then it is dropped in the
source. The destination remembers the ids that have come until the move has ended, so
each step can be repeated. A run that was killed is continued by the next one.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from redrive.database.rows import Connection, column, records, rows, value
from redrive.encryption import configured
from redrive.live_jobs.cell_moves.documents import renumbered
from redrive.live_jobs.flow_control.limits import find, names, put
from redrive.rules.rows import Row

CHUNK = 500
"""Jobs that one transaction takes out or puts in."""

KEYS_CHUNK = 5_000
"""Idempotency keys that one transaction adds."""

ROUNDS = 10
"""Rounds over new jobs, while producers still enqueue in the source."""

PAUSE_SECONDS = 0.2
"""Pause between two looks at running jobs with an ordering key."""

TENANT = "{tenant}"

_MOVABLE: LiteralString = """
    select id, what, queue, ordering_key, stays from redrive.movable_v1(%s)"""
_PLANNED: LiteralString = """
    select m.what, m.queue, m.stays, j.kind from redrive.movable_v1(%s) m
    left join redrive.jobs j on j.id = m.id"""
_TAKEN: LiteralString = """
    select j.queue, j.data #>> '{job,kind}' as kind
    from redrive.moved_jobs j join redrive.moves m on m.id = j.move
    where m.tenant = %s and j.data is not null"""
_IS_HANDLED: LiteralString = """
    select exists (
        select from redrive.workers w
        where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)
          and (w.queues is null or %s = any (w.queues)) and redrive.handles_v1(w.kinds, %s))"""
_KEYS: LiteralString = """
    from redrive.completions c where c.tenant = %s and c.is_moved is not true"""
TENANTS_SINCE = "0012_moves"
"""Migration since which a completion has the tenant of its job."""
_OLD_KEYS: LiteralString = """
    select m.applied_at + r.keep from redrive.migrations m, redrive.retention r
    where m.name = %s and r.what = 'keys' and m.applied_at + r.keep > now()
      and exists (select from redrive.completions c
                  where c.tenant is null and c.at < m.applied_at)"""
# A job waits until older jobs of its ordering key have ended in the source.
_READY: LiteralString = """
    select m.id, m.data::text from redrive.moved_jobs m
    where m.move = %s and m.data is not null
      and (m.ordering_key is null
           or not exists (select from redrive.jobs j
                          where j.queue = m.queue and j.ordering_key = m.ordering_key
                            and j.tenant = %s and j.id < m.id)
              and not exists (select from redrive.dead_letters d
                              where d.queue = m.queue
                                and d.ordering_key = m.ordering_key
                                and d.tenant = %s and d.holds_key and d.state = 'open'
                                and d.id < m.id))
    order by m.id limit %s"""


class Move(NamedTuple):
    """Key to move, and the two cells.

    Attributes:
        key: tenant of the jobs.
        origin: name of the cell that the jobs leave.
        to: name of the cell that they go to.
    """

    key: str
    origin: str
    to: str
    actor: str
    why: str


class Limit(NamedTuple):
    """Limit of the key alone."""

    name: str
    concurrency: int | None
    rate: float | None


class Kind(NamedTuple):
    """Waiting jobs of one kind in a queue."""

    queue: str
    kind: str
    jobs: int


@dataclass(slots=True)
class Plan:
    """Preview of a move.

    Attributes:
        moving: number of jobs and of dead letters that move.
        taken: number of jobs that a stopped run has taken out.
        staying: number of each, with the reason why it stays.
        kinds: number of jobs that move or were taken out, by queue and kind.
        keys: number of idempotency keys that have succeeded.
        limits: limits of the key alone.
        unhandled: kinds of these jobs that no live worker in the destination handles.
        unknown_until: when all idempotency keys have a tenant; None = now.
    """

    moving: Counter[str] = field(default_factory=Counter[str])
    taken: int = 0
    staying: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    keys: int = 0
    limits: list[Limit] = field(default_factory=list[Limit])
    unhandled: list[Kind] = field(default_factory=list[Kind])
    unknown_until: Any = None

    def count(self, row: Row) -> None:
        """Count a job or a dead letter, which may have a reason to stay."""
        what = row["what"]
        stays = row["stays"]
        if stays is not None:
            self.staying[what, stays] += 1
            return

        self.moving[what] += 1
        if what == "job":
            self.count_kind(row)

    def count_kind(self, row: Row) -> None:
        """Count a job that the destination must be able to run."""
        self.kinds[row["queue"], row["kind"]] += 1


@dataclass(slots=True)
class Done:
    """Numbers of a move.

    Attributes:
        moved: jobs and dead letters that are in the destination now.
        known: jobs whose idempotency key the destination had. They were left out.
        keys: new idempotency keys in the destination.
        limits: limits that were set there.
        waiting: jobs that wait for a running job of their ordering key.
    """

    moved: int = 0
    known: int = 0
    keys: int = 0
    limits: int = 0
    waiting: int = 0

    def count(self, ids: list[int | None]) -> None:
        """Count jobs by their ids in the destination; None = left out."""
        known = ids.count(None)
        self.known += known
        self.moved += len(ids) - known


def look(source: Connection, there: Connection, key: str) -> Plan:
    """Preview the move of a key.

    Args:
        source: connection to the cell that the jobs leave.
        there: connection to their destination.
        key: tenant of the jobs.
    """
    plan = Plan(limits=_limits(source, key))
    for row in rows(source, _PLANNED, key):
        plan.count(row)

    for row in rows(source, _TAKEN, key):
        plan.taken += 1
        if row["kind"] is not None:
            plan.count_kind(row)

    plan.unhandled = _unhandled(there, plan.kinds)
    plan.keys = value(source, "select count(*) " + _KEYS, key)
    plan.unknown_until = value(source, _OLD_KEYS, TENANTS_SINCE)

    return plan


def _unhandled(there: Connection, kinds: Counter[tuple[str, str]]) -> list[Kind]:
    return [
        Kind(*of, jobs)
        for of, jobs in kinds.most_common()
        if not value(there, _IS_HANDLED, *of)
    ]


def run(source: Connection, there: Connection, move: Move) -> Iterator[Done]:
    """Move everything that can be moved; yield the numbers after each commit.

    A run may end at any of these places. The next one continues it.
    """
    done = Done()
    number = _begin(source, there, move)
    yield done

    done.limits = _copy_limits(source, there, move)
    yield from _copy_keys(source, there, move, number, done)
    # A stopped run may have left documents on the way.
    yield from _carry(source, there, move, number, done)

    for _ in range(ROUNDS):
        chunks = list(_chunks(rows(source, _MOVABLE, move.key)))
        for chunk in chunks:
            _take_out(source, move, number, chunk)
            yield done
            yield from _carry(source, there, move, number, done)

        if not chunks:
            break

    has_ended = False
    while not has_ended:
        yield from _wait(source, there, move, number, done)
        # Again, for the jobs that have succeeded during the move.
        yield from _copy_keys(source, there, move, number, done)

        # Another mover may have taken out more, if one of the two has lost its lock.
        has_ended = end(source, number, is_incoming=False)
        yield done

    # The destination is last: until it ends, it remembers which jobs have come.
    end(there, number, is_incoming=True)
    yield done


def _begin(source: Connection, there: Connection, move: Move) -> UUID:
    """Open the move in both databases; return its id.

    The destination is first, because it may refuse. If the source does not commit, the
    next move closes what is open in the destination.
    """
    with source.transaction():
        number: UUID = value(
            source,
            "select redrive.begin_move_v1(%s, %s, %s, %s)",
            *(move.key, move.to, move.actor, move.why),
        )
        there.execute(
            "select redrive.receive_move_v1(%s, %s, %s)",
            (number, move.key, move.origin),
        )

    return number


def end(conn: Connection, number: UUID, *, is_incoming: bool) -> bool:
    """End the move in this database; return False if jobs are still taken out.

    Args:
        number: id of the move.
        is_incoming: True in the destination, False in the source.
    """
    return value(conn, "select redrive.end_move_v1(%s, %s)", number, is_incoming)


def _limits(source: Connection, key: str) -> list[Limit]:
    """Return the limits that a template with {tenant} names for this key."""
    templates = filter(_is_of_tenant, names(source))
    own = {template.replace(TENANT, key) for template in templates}

    query: LiteralString = "select name, concurrency, rate from redrive.limits_v1()"
    found = records(source, Limit, query)
    return [limit for limit in found if limit.name in own]


def _is_of_tenant(template: str) -> bool:
    """Return True if a template names the tenant, and nothing else of a job."""
    if TENANT not in template:
        return False
    return "{" not in template.replace(TENANT, "")


def _copy_limits(source: Connection, there: Connection, move: Move) -> int:
    """Set the limits of the key in the destination, unless it has its own."""
    known = {row["name"] for row in find(there)}
    own = _limits(source, move.key)
    new = [one for one in own if one.name not in known]

    for one in new:
        put(
            there,
            *one,
            actor=move.actor,
            why=move.why,
        )

    return len(new)


def _copy_keys(
    source: Connection, there: Connection, move: Move, number: UUID, done: Done
) -> Iterator[Done]:
    """Copy the keys that have succeeded; yield the numbers after each chunk."""
    select: LiteralString = (
        "select jsonb_agg(k)::text from ("
        " select c.kind, c.key, c.at, c.enqueued_at,"
        " (row_number() over () - 1) / %s as n " + _KEYS + ") k group by k.n"
    )

    for keys in column(source, select, KEYS_CHUNK, move.key):
        done.keys += value(there, "select redrive.put_keys_v1(%s, %s)", number, keys)
        yield done


def _chunks(found: Iterable[Row]) -> Iterator[list[int]]:
    """Yield the ids to take out together, with all of an ordering key in one chunk.

    If only some of them were taken, the others could run before them.
    """
    chunk: list[int] = []
    for ids in _by_key(found):
        chunk += ids
        if len(chunk) >= CHUNK:
            yield chunk
            chunk = []

    if chunk:
        yield chunk


def _by_key(found: Iterable[Row]) -> Iterable[list[int]]:
    """Return the ids that move, with all of an ordering key together."""
    together: dict[object, list[int]] = {}
    for row in found:
        if row["stays"] is None:
            key = row["ordering_key"]
            if key is None:
                group = row["id"]
            else:
                group = (row["queue"], key)
            together.setdefault(group, []).append(row["id"])

    return together.values()


def _take_out(source: Connection, move: Move, number: UUID, ids: Sequence[int]) -> None:
    source.execute(
        "select redrive.take_out_v1(%s, %s, %s, %s)",
        (number, list(ids), move.actor, move.why),
    )


def _carry(
    source: Connection, there: Connection, move: Move, number: UUID, done: Done
) -> Iterator[Done]:
    """Put in and drop all documents that are ready."""
    parameters = (number, move.key, move.key, CHUNK)
    while batch := source.execute(_READY, parameters).fetchall():
        new = _put_in(there, move, number, dict(batch))
        yield done
        drop(source, number, new)
        done.count(list(new.values()))
        yield done


def drop(source: Connection, number: UUID, new: Mapping[int, int | None]) -> None:
    """Drop documents that the destination has, by their ids here and there."""
    source.execute(
        "select redrive.drop_moved_v1(%s, %s, %s)",
        (number, list(new), list(new.values())),
    )


def _put_in(
    there: Connection, move: Move, number: UUID, documents: dict[int, str]
) -> dict[int, int | None]:
    """Put documents into the destination, unless they are there.

    Returns their ids there; None: left out.
    """
    keyring = configured()

    # A new id and its job commit together, or a repeat would take the job for present.
    with there.transaction():
        came = there.execute(
            "select source_id, id, is_new from redrive.take_in_v1(%s, %s)",
            (number, list(documents)),
        ).fetchall()
        new = [
            renumbered(documents[old], old, here, keyring)
            for old, here, is_new in came
            if is_new
        ]
        left_out = there.execute(
            "select redrive.put_in_v1(%s, %s, %s, %s)",
            (number, f"[{','.join(new)}]", move.actor, move.why),
        ).fetchall()

    ids: dict[int, int | None] = {}
    for old, here, _ in came:
        is_left_out = (here,) in left_out
        ids[old] = None if is_left_out else here

    return ids


def _wait(
    source: Connection, there: Connection, move: Move, number: UUID, done: Done
) -> Iterator[Done]:
    """Wait for running jobs whose ordering key has jobs that were taken out.

    Such a job may come back or die. Then it is moved before the jobs behind it.
    """
    while left := value(
        source,
        "select count(*) from redrive.moved_jobs where move = %s and data is not null",
        number,
    ):
        done.waiting = left
        yield done
        time.sleep(PAUSE_SECONDS)

        for chunk in _chunks(rows(source, _MOVABLE, move.key)):
            _take_out(source, move, number, chunk)
            yield done

        yield from _carry(source, there, move, number, done)

    done.waiting = 0
