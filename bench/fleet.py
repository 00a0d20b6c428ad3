"""What a fleet costs the database, and how soon its jobs begin: idle, at a steady rate, with a backlog.

A process has a hundred workers of Redrive, drivers/fleet_redrive.py, because two cores cannot run
hundreds of processes. `driver_percent` is what the processes need: near 200, it is the driver that is
slow, and not the database. Peers run as they are, so only small fleets of them fit.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.scenarios import Figures, Lab, latencies, until_settled
from bench.session import Session, SystemFailed
from bench.systems import REDRIVE, System
from redrive.database.embedded import free_port

SIZES = (1, 10, 100, 300, 1000)
MOST_PROCESSES = 10
"""Workers of a peer: each is a process."""

OF_A_PROCESS = 100
"""Workers of ours in a process. More of them, each with threads, wait for one interpreter."""

RATE = 1000.0
REST_SECONDS, REST_SECONDS_OF_EACH = 15.0, 0.1
"""Until a fleet rests: its workers poll less and less often, and many begin slowly."""

START_SECONDS = 180.0
"""Longest start of a process, or of the workers in it."""

SAMPLE_SECONDS, REPORT_SECONDS = 0.05, 3.0
_WAITING = (
    "select count(*) filter (where wait_event_type = 'Lock'),"
    " count(*) filter (where wait_event_type = 'LWLock'), count(*)"
    " from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and application_name <> 'bench'"
)
_WRITTEN = (
    "select pg_current_wal_insert_lsn() - '0/0', xact_commit from pg_stat_database"
    " where datname = current_database()"
)


@dataclass
class Watch:
    """What the database spends and waits for, between `begin` and `figures`."""

    at: Session
    lab: Lab
    _locks: list[int] = field(default_factory=list[int])
    _latches: list[int] = field(default_factory=list[int])
    _connections: list[int] = field(default_factory=list[int])
    _stopping: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Begin to measure."""
        self._sent = self._statements()
        self._began, self._cpu = time.time(), self.at.cpu()
        self._wal, self._commits = self._written()
        threading.Thread(target=self._sample, daemon=True).start()

    def figures(self, jobs: int = 0) -> Figures:
        """Return what was measured, of each second; WAL of each job, if there were `jobs`."""
        self._stopping.set()
        seconds, cpu = time.time() - self._began, self.at.cpu() - self._cpu
        wal, commits = self._written()
        sent = self._statements()
        figures = {
            "database_percent": cpu.database / seconds * 100,
            "driver_percent": (cpu.workers + cpu.runners) / seconds * 100,
            "commits": (commits - self._commits) / seconds,
            "connections": max(self._connections, default=0),
            "lock_waits": statistics.fmean(self._locks or [0]),
            "latch_waits": statistics.fmean(self._latches or [0]),
            "wal_bytes": (wal - self._wal) / (jobs or seconds),
        }
        if sent and self._sent:
            figures["statements"] = sum(
                (n - self._sent[pid][0]) / (at - self._sent[pid][1])
                for pid, (n, at) in sent.items()
            )
        return figures

    def _statements(self) -> dict[int, tuple[int, float]]:
        """Return how many statements each process has sent at its last report, and its time."""
        sent: dict[int, tuple[int, float]] = {}
        if self.at.system is REDRIVE:
            for event in self.at.events(time.monotonic() + REPORT_SECONDS):
                if event["ev"] == "sent":
                    sent[event["pid"]] = event["n"], event["t"]
        return sent

    def _written(self) -> tuple[int, int]:
        time.sleep(1.1)  # until all sessions have reported
        wal, commits = self.at.monitor.execute(_WRITTEN).fetchone() or (0, 0)
        return int(wal), int(commits)

    def _sample(self) -> None:
        with self.lab.server.connect(self.at.database) as conn:
            while not self._stopping.wait(SAMPLE_SECONDS):
                row = conn.execute(_WAITING).fetchone() or (0, 0, 0)
                for found, of in zip(
                    row, (self._locks, self._latches, self._connections), strict=True
                ):
                    of.append(int(found))


@contextlib.contextmanager
def watching(lab: Lab, at: Session) -> Iterator[Watch]:
    """Measure from here; ask for the figures before the block ends."""
    watch = Watch(at, lab)
    watch.begin()
    yield watch


def start(at: Session, workers: int, **more: str) -> None:
    """Start a fleet, a part after the other as a rollout does, and wait until it rests."""
    config = at.system.config("steady") | more
    if at.system is REDRIVE:
        for begun in range(0, workers, OF_A_PROCESS):
            of_it = min(OF_A_PROCESS, workers - begun)
            at.start_workers(1, config | {"fleet": of_it})
            at.wait_for("run", START_SECONDS)
            _until_registered(at, begun + of_it)
    else:
        at.start_workers(workers, config)
        for _ in at.workers:
            at.wait_for("run", START_SECONDS)
    rest = REST_SECONDS + workers * REST_SECONDS_OF_EACH
    list(at.events(time.monotonic() + rest))


def _until_registered(at: Session, workers: int) -> None:
    """Wait until so many workers are in the database."""
    deadline = time.monotonic() + START_SECONDS
    while at.registered() < workers:
        if time.monotonic() > deadline:
            msg = f"{at.registered()} of {workers} workers in {START_SECONDS:g} s"
            raise SystemFailed(msg)
        time.sleep(0.2)


def fleet(lab: Lab, system: System, *, workers: int) -> Figures:
    """One fleet: with nothing to do, with one job at a time, at a steady rate, with a backlog."""
    with lab.session(system) as at:
        start(at, workers)
        parts = {"idle": idle(lab, at), "steady": steady(lab, at)}
        parts["backlog"] = backlog(lab, at)
        return _by_part(parts)


def _by_part(parts: dict[str, Figures]) -> Figures:
    """Return the figures of all parts; each name begins with its part."""
    return {
        f"{part}_{name}": value
        for part, figures in parts.items()
        for name, value in figures.items()
    }


def idle(lab: Lab, at: Session) -> Figures:
    """Nothing to do, and then one job at a time."""
    with watching(lab, at) as watch:
        list(at.events(time.monotonic() + lab.seconds(30)))
        figures = watch.figures()
    at.start_producer("probe", 50, 200)
    found = latencies(at, 60, 50)
    return figures | {name: found[name] for name in ("p50_ms", "p99_ms", "lost")}


def steady(lab: Lab, at: Session) -> Figures:
    """1,000 jobs a second, and what they cost."""
    seconds = lab.seconds(40)
    before = sum(at.handled.values())
    at.start_producer("load", seconds + 3, RATE)
    at.wait_for("enq", 60)
    with watching(lab, at) as watch:
        found = latencies(at, seconds, None)
        handled = sum(at.handled.values()) - before
        figures = watch.figures(handled)
    shown = {name: found[name] for name in ("p50_ms", "p99_ms", "max_ms", "lost")}
    return figures | shown | {"handled_per_second": handled / seconds}


def backlog(lab: Lab, at: Session) -> Figures:
    """Jobs that are enqueued in transactions of 5,000 while the fleet works them off."""
    jobs = lab.jobs(at.system, 200_000)
    before = sum(at.handled.values())
    with watching(lab, at) as watch:
        at.start_producer("enqueue", "bulk", jobs)
        began = time.time()
        while sum(at.handled.values()) - before < jobs:
            at.wait_for("n", 30)
        until_settled(at)
        seconds = time.time() - began
        figures = watch.figures(jobs)
    return {"jobs_per_second": jobs / seconds} | figures


POOL_SIZE = 60
POOLED = {"a URL to listen": True, "none": False}
"""Fleets behind PgBouncer in transaction mode: do their first workers listen directly?"""

POOLED_WORKERS = 500


def pooled(lab: Lab, system: System, variant: str) -> Figures:
    """500 workers behind PgBouncer: with nothing to do, with one job at a time, at a steady rate."""
    with lab.session(system) as at, pgbouncer(lab, at) as url:
        direct = lab.server.url_of(at.database) if POOLED[variant] else ""
        start(at, POOLED_WORKERS, url=url, listen=direct)
        parts = {"idle": idle(lab, at), "steady": steady(lab, at)}
        return _by_part(parts)


@contextlib.contextmanager
def pgbouncer(lab: Lab, at: Session) -> Iterator[str]:
    """PgBouncer in transaction mode before the server of a run. Yields its URL."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        msg = "pgbouncer is not installed"
        raise SystemFailed(msg)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="redrive-bench-pool-") as scratch:
        home = Path(scratch)
        home.chmod(0o755)
        (home / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={lab.server.port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = {POOL_SIZE}\n"
            "max_client_conn = 3000\nlog_connections = 0\nlog_disconnections = 0\n"
        )
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        with (home / "log").open("wb") as log:
            pooler = subprocess.Popen(
                ["prlimit", "--nofile=8192", program, *user, home / "pgbouncer.ini"],
                stdout=log,
                stderr=log,
            )
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/{at.database}"
        finally:
            pooler.terminate()
            pooler.wait()
