"""What a dead worker, a stopping one and the chores cost beside a large table.

Only real workers and what they send: durations are read from the server's log, so the same run
measures any release, whatever its functions are called.
"""

import re
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from bench.scenarios import Figures, Lab, held_snapshot
from bench.server import Connection
from bench.session import Session, SystemFailed
from bench.systems import System

SLOTS = 16
TTL, DRAIN = 5.0, 5.0
MOST_DELTAS = 1_000_000
FEW, FOLD_SECONDS = 1_000, 60.0
VERBS = ("rescue", "retire", "fold")
"""The steps with figures of their own; the others share one."""

_DURATION = re.compile(r"duration: (\d+\.\d+) ms  (?:execute \S+|statement): (.*)")
_VERB = re.compile(r"redrive\.([a-z_]+?)_v\d+\(")


@dataclass(frozen=True)
class Table:
    """What the table of jobs is like: `jobs` of 1 kB that are due tomorrow, or were."""

    jobs: int
    is_emptied: bool = False
    """All of them were deleted and vacuumed; the file is as large as before."""
    is_seen: bool = False
    """Somebody holds a snapshot open."""


TABLES = {
    "10 k": Table(10_000),
    "300 k": Table(300_000),
    "1 M": Table(1_000_000),
    "10 M": Table(10_000_000),
    "300 k, deleted": Table(300_000, is_emptied=True),
    "1 M, deleted": Table(1_000_000, is_emptied=True),
    "300 k, snapshot held": Table(300_000, is_seen=True),
    "1 M, snapshot held": Table(1_000_000, is_seen=True),
}
QUICK = tuple(name for name in TABLES if name.startswith(("10 k", "300 k")))
FULL = tuple(name for name in TABLES if not name.startswith("300 k"))


def recovery(lab: Lab, system: System, name: str) -> Figures:
    """A worker does what has piled up; another is killed, a third runs its jobs again and is told
    to stop.
    """
    table = TABLES[name]
    with lab.session(system) as at:
        _fill(at.monitor, table)
        lab.server.settle_down(at.database)
        _log_statements(at)
        with held_snapshot(lab, at, held=table.is_seen), lab.server.log.open() as log:
            log.seek(0, 2)
            figures: Figures = {"unfolded": _fold(at)}
            at.run("enqueue", "bulk", SLOTS)
            figures["recovered_s"] = _kill_and_wait(at)
            figures["term_s"], figures["term_status"] = _stop(at)
            return figures | _steps(log.read())


def _fill(conn: Connection, table: Table) -> None:
    # One by one, as producers do, and the rest at once: of each of the first a count is kept
    # until it is folded.
    single = min(table.jobs, MOST_DELTAS)
    payload = "jsonb_build_object('i', g, 's', repeat('x', 1000))"
    conn.execute(
        f"select count(redrive.enqueue('noop', {payload}, run_at => now() + interval '1 day'))"
        " from generate_series(1, %s) g",
        (single,),
    )
    conn.execute(
        "insert into redrive.jobs (kind, payload, run_at)"
        f" select 'noop', {payload}, now() + interval '1 day' from generate_series(1, %s) g",
        (table.jobs - single,),
    )
    if table.is_emptied:
        conn.execute("delete from redrive.jobs")


def _log_statements(at: Session) -> None:
    database = sql.Identifier(at.database)
    for name, value in (
        ("log_min_duration_statement", "0"),
        ("log_parameter_max_length", "0"),
    ):
        at.monitor.execute(
            sql.SQL("alter database {} set {} = {}").format(
                database, sql.Identifier(name), value
            )
        )


def _fold(at: Session) -> int:
    """Let a worker with nothing else to do fold what the producers left; how much it left."""
    at.start_workers(1, {"quiet": True})
    give_up = time.monotonic() + FOLD_SECONDS
    while (left := _deltas(at)) > FEW and time.monotonic() < give_up:
        time.sleep(0.5)
    _stop(at)
    return left


def _deltas(at: Session) -> int:
    ((left,),) = at.monitor.execute("select count(*) from redrive.deltas").fetchall()
    return int(left)


def _kill_and_wait(at: Session) -> float:
    """Seconds from the death of a worker until all that it ran has begun again."""
    settings = {"REDRIVE_HEARTBEAT_TTL": str(TTL), "REDRIVE_DRAIN_TIMEOUT": str(DRAIN)}
    config = {"slots": SLOTS, "work": "wait:3600000", "settings": settings}
    at.start_workers(1, config)
    _wait_for_starts(at, SLOTS)
    (victim,) = at.workers
    at.start_workers(1, config)
    at.wait_for("run", 60)
    time.sleep(1)
    at.workers.remove(victim)
    victim.kill()
    victim.wait()
    killed_at = time.time()
    return _wait_for_starts(at, SLOTS) - killed_at


def _wait_for_starts(at: Session, more: int) -> float:
    """When so many more handlers had begun."""
    before = sum(at.handled.values())
    for event in at.events(time.monotonic() + 120):
        if sum(at.handled.values()) >= before + more:
            return float(event["t"])
    raise SystemFailed(f"fewer than {more} handlers began in 2 minutes")


def _stop(at: Session) -> tuple[float, int]:
    """Seconds from SIGTERM to the end of the worker, and its exit status."""
    worker = at.workers.pop()
    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    try:
        status = worker.wait(60)
    except subprocess.TimeoutExpired:
        worker.kill()
        status = worker.wait()
    return time.monotonic() - began, status


def _steps(log: str) -> Figures:
    """Of each step the longest and the sum, in ms, and how many statements failed."""
    took: dict[str, list[float]] = defaultdict(list)
    for duration, verb in _statements(log):
        took[verb if verb in VERBS else "other"].append(duration)
    figures: Figures = {"failed": float(log.count("STATEMENT:"))}
    for verb in (*VERBS, "other"):
        figures[f"{verb}_max_ms"] = max(took[verb], default=0.0)
        if verb in VERBS:
            figures[f"{verb}_total_ms"] = sum(took[verb])
    return figures


def _statements(log: str) -> Iterator[tuple[float, str]]:
    for line in log.splitlines():
        said = _DURATION.search(line)
        verb = _VERB.search(said[2]) if said else None
        if said and verb:
            yield float(said[1]), verb[1]
