"""The facts that `answer.py` answers from: what is around a job, and the answer.

For a live job these are pauses, breakers, workers, and the jobs ahead of it.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import LiteralString

from redrive.database.rows import Connection, column, first_row, records, rows, value
from redrive.jobs.why.answer import (
    MOST_AHEAD,
    Around,
    Breaker,
    Dead,
    Head,
    Hold,
    Line,
    Pause,
    Waiting,
    Why,
    Worker,
    why,
    why_dead,
    why_queue,
)
from redrive.rules.rows import Fields

_PAUSES: LiteralString = """
    select queue, paused_by, paused_why, paused_at from redrive.shown_queues
    where paused_at is not null"""
_BREAKERS: LiteralString = """
    select name, state, open_until, forced_by, forced_why from redrive.shown_breakers
    where state <> 'closed'"""
_WORKERS: LiteralString = """
    select id, name, kinds, queues, depends_on, progress, seen_at,
           redrive.is_alive_v1(seen_at, lost_at, ttl) as is_alive
    from redrive.workers"""
_SEEN: LiteralString = """
    select clock_timestamp(), greatest(
        (select max(w.seen_at) from redrive.workers w),
        (select c.at from redrive.contact c where c.elapsed > '0'))"""
_BEFORE: LiteralString = """
    select o.id from redrive.jobs o
    where o.queue = %(queue)s and o.ordering_key = %(ordering_key)s and o.id < %(id)s
    order by o.id limit %(most)s"""
_ACTIVE: LiteralString = """
    select o.id from redrive.jobs o
    where o.queue = %(queue)s and o.ordering_key = %(ordering_key)s and o.run_at < 'infinity'
      and o.id <> %(id)s
    order by o.id limit %(most)s"""
_HEAD: LiteralString = """
    select v.id, v.state, nullif(j.run_at, 'infinity') as run_at
    from redrive.live_jobs_v1(%(ids)s::bigint[]) v join redrive.jobs j on j.id = v.id
    order by v.state <> 'running', v.id limit 1"""
_HOLD: LiteralString = """
    select d.id from redrive.dead_letters d
    where d.queue = %(queue)s and d.ordering_key = %(ordering_key)s and d.id < %(id)s
      and d.holds_key and d.state = 'open'
    order by d.id limit 1"""
_BATCH: LiteralString = """
    select (j.headers #>> '{batch,id}')::bigint from redrive.jobs j where j.id = %(id)s"""
_HOLD_OF_GROUP: LiteralString = """
    select h.actor, h.why, h.at from redrive.held_groups h
    join redrive.jobs j on j.fingerprint = h.fingerprint where j.id = %s and h.spread is null"""
_AHEAD: LiteralString = """
    select count(*) from (
        select from redrive.jobs o
        where o.queue = %(queue)s and o.priority = %(priority)s and o.lane = %(lane)s
          and (o.run_at, o.id) < (%(run_at)s, %(id)s)
          and o.id not in (
              select c.id from redrive.claims k cross join lateral unnest(k.ids) as c(id)
              where k.queue = %(queue)s and k.priority = %(priority)s and k.lane = %(lane)s)
        union all
        -- the jobs that came back, which go first
        select from redrive.jobs o
        where o.queue = %(queue)s and o.priority = %(priority)s and o.lane = ~%(lane)s::smallint
          and %(lane)s >= 0 and o.run_at <= clock_timestamp()
          and o.id not in (
              select c.id from redrive.claims k cross join lateral unnest(k.ids) as c(id)
              where k.queue = %(queue)s and k.priority = %(priority)s
                and k.lane = ~%(lane)s::smallint)
        limit %(most)s) a"""

_LINE: LiteralString = """
    select name, place, used, concurrency, rate from redrive.limit_line_v1(array[%s::bigint])"""


_CAMPAIGN: LiteralString = "select campaign from redrive.in_campaign_v1(array[%s])"

SILENT: Fields = {"slots": 0, "asked": None, "running": {}}
"""Defaults for a worker that reports nothing about its jobs."""


class Surroundings:
    """State of the system at one moment, read once for all jobs of a list."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        workers = rows(conn, _WORKERS)
        self._names = {row["id"]: row["name"] for row in workers}
        self._progress = {row["id"]: _progress(row) for row in workers}
        self.around = _around(conn, workers)

    def name(self, worker: int | None) -> str | None:
        """Return the name of a worker by its identity."""
        if worker is None:
            return None
        return self._names.get(worker, str(worker))

    def why(self, row: Fields, *, is_one_of_many: bool = False) -> Why:
        """Return the reason why a live job does not run.

        For one of many, the due jobs ahead of it are not counted, because a list does
        not show that number. All other facts are also read for each job of a list.

        Args:
            row: a row of `redrive.jobs.find` with its `last_failure`.
        """
        return why(self._waiting(row, is_one_of_many=is_one_of_many), self.around)

    def why_queue(self, queue: str) -> Why | None:
        """Return the reason why no job of a queue runs; None if no obstacle is known."""
        return why_queue(queue, self.around)

    def _waiting(self, row: Fields, *, is_one_of_many: bool) -> Waiting:
        """Return a live job with the jobs before it, in the form that `why` takes."""
        hold, head = self._of_its_key(row)
        is_due = row["state"] == "ready"
        is_parked = row["run_at"] is None and row["state"] != "retrying"
        failure = row["last_failure"]
        running = self._progress.get(row["held_by"], SILENT)["running"]

        return Waiting(
            kind=row["kind"],
            queue=row["queue"],
            state=row["state"],
            run_at=row["run_at"],
            was_given_back=row["deliveries"] > row["attempt"],
            head=head,
            hold=hold,
            line=self._line(row) if is_parked else None,
            ahead=self._ahead(row) if is_due and not is_one_of_many else None,
            worker=self.name(row["held_by"]),
            seconds=running.get(str(row["id"])),
            batch=self._batch(row) if is_parked else None,
            hold_of_group=self._hold_of_group(row),
            failed=failure and "{error_class}: {message}".format_map(failure),
        )

    def _ahead(self, row: Fields) -> int:
        return value(self._conn, _AHEAD, **row, most=MOST_AHEAD) or 0

    def _line(self, row: Fields) -> Line | None:
        """Return the limit that the job waits for, if it waits for one."""
        return next(iter(records(self._conn, Line, _LINE, row["id"])), None)

    def _hold_of_group(self, row: Fields) -> Pause | None:
        """Return who holds the group of a failing job, and why; None if nobody does."""
        if row["run_at"] is not None or row["state"] != "retrying":
            return None

        found = first_row(self._conn, _HOLD_OF_GROUP, row["id"])
        if found is None:
            return None
        return Pause(found["actor"], found["why"], found["at"])

    def _of_its_key(self, row: Fields) -> tuple[Hold | None, Head | None]:
        """Return the dead letter or the job that its ordering key waits for."""
        before = self._before(row)
        if before is None:
            return None, None

        hold = self._hold(row, before)
        if hold:
            return hold, None

        return None, self._head(row, before)

    def _before(self, row: Fields) -> list[int] | None:
        """Return the older live jobs of its ordering key, or None.

        None means that the job waits for no job of any key.
        """
        if row["ordering_key"] is None:
            return None
        if row["state"] == "running":
            return None
        return self._ids(_BEFORE, row)

    def _ids(self, query: LiteralString, row: Fields) -> list[int]:
        return column(self._conn, query, **row, most=MOST_AHEAD)

    def _hold(self, row: Fields, before: Sequence[int]) -> Hold | None:
        """Return the oldest dead letter that holds its ordering key.

        The result is None while an older job is live.
        """
        found = self._conn.execute(_HOLD, row).fetchone()
        if found is None:
            return None
        if before and before[0] < found[0]:
            return None

        place = len(before) + 1
        return Hold(row["ordering_key"], place, *found)

    def _head(self, row: Fields, before: Sequence[int]) -> Head | None:
        """Return the job that its ordering key waits for, unless it is this job."""
        ids = before or self._ids(_ACTIVE, row)
        if not ids:
            return None

        found = self._conn.execute(_HEAD, {"ids": ids}).fetchone()
        if found is None:
            return None

        job, state, run_at = found
        # Without older jobs, only a younger one that runs already is ahead.
        if not before and state != "running":
            return None

        return Head(row["ordering_key"], max(2, len(before) + 1), job, state, run_at)

    def _batch(self, row: Fields) -> int | None:
        """Return the batch whose callback this parked job is.

        Such a job has no ordering key.
        """
        if row["ordering_key"] is not None:
            return None
        return value(self._conn, _BATCH, **row)


def why_letter(conn: Connection, letter: Fields, over: str | None) -> Why:
    """Return why an open dead letter died, and what redrives it.

    Args:
        over: from `why_over`.
    """
    job = letter["id"]
    campaign = value(conn, _CAMPAIGN, job)
    return why_dead(Dead(job, letter["reason"], over, campaign))


def _around(conn: Connection, workers: Sequence[Fields]) -> Around:
    """Read the pauses and the breakers, and add the workers."""
    pauses = {
        row["queue"]: Pause(
            by=row["paused_by"], why=row["paused_why"], at=row["paused_at"]
        )
        for row in rows(conn, _PAUSES)
    }
    breakers = records(conn, Breaker, _BREAKERS)
    found = conn.execute(_SEEN).fetchone()
    now, seen = found or (datetime.now(UTC), None)

    return Around(
        now=now.astimezone(UTC),
        pauses=pauses,
        breakers={breaker.name: breaker for breaker in breakers},
        workers=_workers(workers, is_alive=True),
        gone=_workers(workers, is_alive=False),
        seen=seen,
    )


def _workers(rows: Iterable[Fields], *, is_alive: bool) -> list[Worker]:
    return [_worker(row) for row in rows if row["is_alive"] == is_alive]


def _worker(row: Fields) -> Worker:
    progress = _progress(row)
    seen_at = row["seen_at"]
    seconds = progress["asked"]
    if seconds is None:
        asked_at = None
    else:
        asked_at = seen_at - timedelta(seconds=seconds)

    return Worker(
        name=row["name"],
        kinds=row["kinds"],
        queues=row["queues"],
        depends_on=row["depends_on"] or {},
        asked=asked_at,
        slots=progress["slots"],
        busy=len(progress["running"]),
        seen=seen_at,
    )


def _progress(row: Fields) -> Fields:
    return {**SILENT, **(row["progress"] or {})}
