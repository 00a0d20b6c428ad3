"""Find stalled queues and lost workers, and the sessions that block them."""

import time
from typing import LiteralString, NamedTuple

from psycopg.rows import class_row

from redrive.database.rows import Connection, column, first_record, records, value

PATIENCE_SECONDS = 60.0
"""How long a queue may stall."""

SAMPLE_SECONDS = 1.0
"""How long to watch for sessions that block a worker.

A worker waits for a tenth of a second at a time.
"""


class Standing(NamedTuple):
    """Queue with a due job that its workers do not claim despite free slots."""

    queue: str
    seconds: float
    workers: int


class Blocker(NamedTuple):
    """Session whose locks stop Redrive.

    `pid`: 0 = a prepared transaction, which has no session. `seconds`: age of its
    transaction, None if this login may not see it. `table`: table that it has locked as a
    whole, None if it locked rows.
    """

    pid: int
    application: str
    seconds: float | None
    table: str | None

    @property
    def text(self) -> str:
        """Return a text that names the session, its lock, and the remedy."""
        table = "rows" if self.table is None else f"table {self.table}"
        if not self.pid:
            return f"a prepared transaction has locked {table}: see pg_prepared_xacts"

        since = "" if self.seconds is None else f", for {self.seconds:.0f} s"
        application = self.application or "no application name"

        return (
            f"session {self.pid} ({application}) has locked {table}{since};"
            f" to end it: select pg_terminate_backend({self.pid})"
        )


class Fault(NamedTuple):
    """Live worker in which jobs wait and none starts, and why."""

    name: str
    text: str


class SlowWorker(NamedTuple):
    """Live worker whose exchanges take much longer than usual."""

    name: str
    seconds: float
    factor: float


_STANDING: LiteralString = """
    select queue, seconds, workers from redrive.standing_v1(%s * interval '1 second')"""
_UNSERVED: LiteralString = """
    select d.queue from redrive.due_v1(null, null) d
    where not exists (
        select from redrive.workers w
        where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)
          and (w.queues is null or d.queue = any (w.queues)))
    order by d.queue"""
_ALIVE: LiteralString = """
    select count(*) from redrive.workers w where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl)"""
_FAULT: LiteralString = """
    select w.name, w.progress ->> 'fault' as text from redrive.workers w
    where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl) and w.progress ? 'fault'
    order by w.name limit 1"""
_SLOW: LiteralString = """
    select w.name, (w.progress #>> '{slow,seconds}')::float8 as seconds,
           (w.progress #>> '{slow,factor}')::float8 as factor
    from redrive.workers w
    where redrive.is_alive_v1(w.seen_at, w.lost_at, w.ttl) and w.progress ? 'slow'
    order by factor desc limit 1"""
_OPEN_FOR: LiteralString = (
    "extract(epoch from clock_timestamp() - a.xact_start)::float8"
)
_LOCKED_TABLES: LiteralString = f"""
    select coalesce(l.pid, 0) as pid, coalesce(a.application_name, '') as application,
           {_OPEN_FOR} as seconds, min(c.relname) as table
    from pg_locks l
    join pg_class c on c.oid = l.relation
    join pg_namespace n on n.oid = c.relnamespace
    join pg_database d on d.oid = l.database and d.datname = current_database()
    left join pg_stat_activity a on a.pid = l.pid
    where l.granted and l.locktype = 'relation' and n.nspname = 'redrive'
      and l.pid is distinct from pg_backend_pid()
      and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    group by l.pid, application, seconds"""
_LOCKED_ROWS: LiteralString = f"""
    select distinct b.pid, coalesce(a.application_name, '') as application,
           {_OPEN_FOR} as seconds, null as table
    from pg_locks l
    join pg_stat_activity w on w.pid = l.pid and w.datname = current_database()
    cross join unnest(pg_blocking_pids(l.pid)) as b(pid)
    left join pg_stat_activity a on a.pid = b.pid
    where not l.granted and w.application_name like 'redrive %'
      and (b.pid = 0 or a.application_name not like 'redrive %')"""


def standing(conn: Connection) -> list[Standing]:
    """Return the stalled queues, the longest stalled first."""
    return records(conn, Standing, _STANDING, PATIENCE_SECONDS)


def unserved(conn: Connection) -> list[str]:
    """Return the queues that hold due jobs and that no live worker serves."""
    return column(conn, _UNSERVED)


def alive(conn: Connection) -> int:
    """Return the number of live workers."""
    return _count(conn, _ALIVE)


def fault(conn: Connection) -> Fault | None:
    """Return a live worker in which jobs wait and none starts."""
    return first_record(conn, Fault, _FAULT)


def slowest(conn: Connection) -> SlowWorker | None:
    """Return the live worker whose exchanges have slowed down most, if any has."""
    return first_record(conn, SlowWorker, _SLOW)


def lost(conn: Connection) -> int:
    """Return the number of workers that hold jobs and are no longer live."""
    return _count(conn, "select redrive.lost_workers_v1()")


def blockers(conn: Connection) -> list[Blocker]:
    """Return the sessions whose locks stop Redrive.

    This takes up to a second: a session that blocks a row is visible only while another
    session waits for that row.
    """
    end = time.monotonic() + SAMPLE_SECONDS
    with conn.cursor(row_factory=class_row(Blocker)) as cursor:
        found = cursor.execute(_LOCKED_TABLES).fetchall()
        while not found and time.monotonic() < end:
            found = cursor.execute(_LOCKED_ROWS).fetchall()
            # This is shorter than a worker's wait for a lock.
            time.sleep(0.02)

    return found


def lasting_locks(conn: Connection) -> list[Blocker]:
    """Return the sessions that keep a table of Redrive locked.

    Two looks, a second apart: a lock that is held for a moment stops nothing.
    """
    with conn.cursor(row_factory=class_row(Blocker)) as cursor:
        first = {held.pid for held in cursor.execute(_LOCKED_TABLES)}
        if not first:
            return []

        time.sleep(SAMPLE_SECONDS)
        second = cursor.execute(_LOCKED_TABLES)
        return [held for held in second if held.pid in first]


def _count(conn: Connection, statement: LiteralString) -> int:
    return value(conn, statement) or 0
