"""What is measured. Each function does one run of one system and returns figures; __main__
interleaves and repeats.

How a drain is timed, for everybody alike: from the moment the first handler begins to the moment
the system's own tables say that no job is left unsettled. A handler that has run is not yet done.
"""

import contextlib
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench import usage
from bench.collectors import COLLECTORS
from bench.install import Peers
from bench.server import Server
from bench.session import Session, SystemFailed, session
from bench.systems import System
from redrive.database.connections.connect import OwnConnection, connect
from redrive.dead_letters.campaigns.drive import STEP_SIZE
from redrive.dead_letters.campaigns.store import plan, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.worker import store
from redrive.worker.round_trip import START, ClaimRequest, Place, Settlements, exchange

Figures = dict[str, float]

QUIET_SECONDS = 30.0
SLICES = 6
PGBENCH_BATCH = 500
SQL = Path(__file__).parent / "pgbench"


@dataclass(frozen=True)
class Lab:
    """Where runs happen, and how long they are: `size` 1.0 is the full length."""

    server: Server
    peers: Peers
    size: float

    def jobs(self, system: System, full: int) -> int:
        """How many jobs this system gets."""
        return max(1000, round(full * system.pace * self.size))

    def seconds(self, full: float) -> float:
        """How long a timed run takes."""
        return max(5.0, full * self.size)

    def session(self, system: System) -> contextlib.AbstractContextManager[Session]:
        """The system on a fresh database."""
        return session(self.server, self.peers, system)


# ---------------------------------------------------------------------- drain


def drain(  # what can differ between drains
    lab: Lab,
    system: System,
    *,
    workers: int = 1,
    full: int = 300_000,
    use: str = "drain",
    work: str = "",
    payload: int = 0,
    collector: str = "",
) -> Figures:
    """Jobs wait; workers start; until none is left."""
    jobs = lab.jobs(system, full)
    with lab.session(system) as at:
        at.run("enqueue", "bulk", jobs, payload=payload)
        lab.server.settle_down(at.database)
        written = lab.server.written(at.monitor)
        at.start_workers(
            workers, system.config(use) | {"work": work, "collector": collector}
        )
        begun, cpu = at.wait_for("first", 60)["t"], at.cpu()
        until_handled(at, jobs)
        until_settled(at)
        seconds, cpu = time.time() - begun, at.cpu() - cpu
        written = lab.server.written(at.monitor) - written
        return {
            "jobs_per_second": jobs / seconds,
            "jobs": jobs,
            "cpu_us": cpu.total / jobs * 1e6,
            "database_us": cpu.database / jobs * 1e6,
            "worker_us": cpu.workers / jobs * 1e6,
            "runner_us": cpu.runners / jobs * 1e6,
            "wal_bytes": written.wal / jobs,
            "full_page_images": written.images / jobs,
            "commits": written.commits / jobs,
            "dead_tuples": lab.server.dead_tuples(at.monitor),
        }


def traced(lab: Lab, system: System, collector: str) -> Figures:
    """A drain whose spans go to one of COLLECTORS."""
    with COLLECTORS[collector]() as url:
        return drain(lab, system, collector=url)


def until_handled(at: Session, jobs: int) -> None:
    """Wait until so many handlers have begun. Raises SystemFailed when nothing happens any more."""
    while sum(at.handled.values()) < jobs:
        try:
            at.wait_for("n", QUIET_SECONDS)
        except SystemFailed as error:
            handled = sum(at.handled.values())
            raise SystemFailed(
                f"{at.system.name} stopped at {handled} of {jobs} jobs: {error}"
            ) from error


def until_settled(at: Session) -> None:
    """Wait until the system's own tables say that no job is left unsettled."""
    give_up = time.monotonic() + QUIET_SECONDS
    while at.left():
        if time.monotonic() > give_up:
            raise SystemFailed(
                f"{at.system.name} handled all jobs but left {at.left()} unsettled"
            )
        time.sleep(0.01)


def pgbench(lab: Lab, script: str, *, clients: int = 1, full: int = 300_000) -> Figures:
    """The same shape in pgbench: claim by UPDATE, DELETE, in batches. No handler, no fence, no
    payload sent.
    """
    database = "bench_pgbench"
    jobs = max(10_000, round(full * lab.size))
    lab.server.fresh(database)
    with lab.server.connect(database) as conn:
        conn.execute((SQL / "schema.sql").read_bytes())
        conn.execute(
            "insert into job (payload)"
            " select jsonb_build_object('i', g) from generate_series(1, %s) as g",
            (jobs,),
        )
        lab.server.settle_down(database)
        written, before, client = (
            lab.server.written(conn),
            usage.cpu(lab.server.pid, []),
            usage.cpu_of_ended(),
        )
        output = subprocess.run(
            [
                lab.server.program("pgbench"),
                "-h",
                "127.0.0.1",
                "-p",
                str(lab.server.port),
                "-U",
                "postgres",
                "-n",
                "-M",
                "prepared",
                "-c",
                str(clients),
                "-j",
                str(clients),
                "-t",
                str(jobs // PGBENCH_BATCH // clients),
                "-D",
                f"b={PGBENCH_BATCH}",
                "-D",
                "ids={}",
                "-f",
                str(SQL / script),
                database,
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        time.sleep(0.3)  # until the server has waited for the sessions that ended
        cpu, client = (
            usage.cpu(lab.server.pid, []) - before,
            usage.cpu_of_ended() - client,
        )
        written = lab.server.written(conn) - written
        seconds = (jobs // PGBENCH_BATCH // clients * clients) / float(
            output.partition("tps = ")[2].split()[0]
        )
        row = conn.execute("select count(*) from job").fetchone()
        done = jobs - (row[0] if row else 0)
        return {
            "jobs_per_second": done / seconds,
            "jobs": done,
            "cpu_us": (cpu.database + client) / done * 1e6,
            "database_us": cpu.database / done * 1e6,
            "worker_us": client / done * 1e6,
            "wal_bytes": written.wal / done,
            "full_page_images": written.images / done,
            "commits": written.commits / done,
            "dead_tuples": lab.server.dead_tuples(conn),
        }


# ---------------------------------------------------------------------- enqueue


def enqueue(
    lab: Lab, system: System, *, way: Literal["single", "bulk"], full: int
) -> Figures:
    """`single`: one job per call and commit; `bulk`: the system's best way to add many."""
    with lab.session(system) as at:
        before = lab.server.written(at.monitor)
        added = at.run("enqueue", way, lab.jobs(system, full))
        written = lab.server.written(at.monitor) - before
    return {
        "jobs_per_second": added["n"] / added["secs"],
        "wal_bytes": written.wal / added["n"],
    }


# ---------------------------------------------------------------------- latency


def latency(lab: Lab, system: System) -> Figures:
    """From enqueue to the handler's beginning, on an idle system."""
    probes = max(100, round(300 * lab.size))
    with lab.session(system) as at:
        at.start_workers(1, system.config("latency"))
        at.wait_for("run", 60)
        time.sleep(4)
        at.start_producer("probe", probes, 60)
        return latencies(at, probes * 0.075 + 10, probes)


def loaded(lab: Lab, system: System, *, rate: float, workers: int = 1) -> Figures:
    """The same beside a steady stream of `rate` jobs a second."""
    seconds = lab.seconds(20)
    with lab.session(system) as at:
        start_all(at, workers)
        time.sleep(3)
        at.start_producer("load", seconds, rate)
        found = latencies(at, seconds + 5, None, skip=40)
        return found | {
            "rate": rate,
            "handled_per_second": sum(at.handled.values()) / seconds,
        }


STEADY_RATE, WINDOW_SECONDS = 2000.0, 30.0


def steady(lab: Lab, system: System, *, held: bool) -> Figures:
    """Three minutes at 2,000 jobs a second of 1 ms with 32 slots: pick-up over windows of 30 s, in
    the best one and in the worst.
    """
    seconds = lab.seconds(6 * WINDOW_SECONDS)
    with lab.session(system) as at, held_snapshot(lab, at, held=held):
        at.start_workers(1, system.config("steady") | {"slots": 32, "work": "wait:1"})
        at.wait_for("run", 60)
        time.sleep(3)
        at.start_producer("load", seconds, STEADY_RATE)
        enqueued, began = probed(at, seconds + 5)
        first = min(called for called, _ in enqueued.values())
        windows: dict[int, list[float]] = {}
        for i in began.keys() & enqueued.keys():
            window = int((enqueued[i][0] - first) // WINDOW_SECONDS)
            windows.setdefault(window, []).append((began[i] - enqueued[i][1]) * 1e3)
        ordered = [sorted(ms) for ms in windows.values() if len(ms) > 500]
        p99 = sorted(_quantile(ms, 0.99) for ms in ordered)
        return {
            "windows": len(ordered),
            "p50_ms": statistics.median(_quantile(ms, 0.50) for ms in ordered),
            "best_p99_ms": p99[0],
            "worst_p99_ms": p99[-1],
            "max_ms": max(ms[-1] for ms in ordered),
            "handled_per_second": sum(at.handled.values()) / seconds,
        }


def start_all(at: Session, workers: int) -> None:
    """Start workers and wait until each runs, and, up to a minute, until all of them rest: of many
    others still start when the last one says that it runs.
    """
    at.start_workers(workers, at.system.config("steady"))
    for _ in range(workers):
        at.wait_for("run", 120)
    before = at.cpu().total
    for _ in range(60):
        time.sleep(1)
        now = at.cpu().total
        if now - before < (os.cpu_count() or 1) / 2:
            break
        before = now


def latencies(
    at: Session, seconds: float, wanted: int | None, skip: int = 5
) -> Figures:
    """Of the probes that a producer enqueues, until all that are wanted have begun."""
    enqueued, began = probed(at, seconds, wanted)
    probes = sorted(began.keys() & enqueued.keys())[skip:]
    if not probes:
        raise SystemFailed(f"{at.system.name} ran no probe")
    from_call = sorted((began[i] - enqueued[i][0]) * 1e3 for i in probes)
    from_return = sorted((began[i] - enqueued[i][1]) * 1e3 for i in probes)
    return {
        "p50_ms": _quantile(from_return, 0.50),
        "p99_ms": _quantile(from_return, 0.99),
        "call_p50_ms": _quantile(from_call, 0.50),
        "call_p99_ms": _quantile(from_call, 0.99),
        "max_ms": from_call[-1],
        "lost": len(enqueued) - len(began.keys() & enqueued.keys()),
    }


def probed(
    at: Session, seconds: float, wanted: int | None = None
) -> tuple[dict[int, tuple[float, float]], dict[int, float]]:
    """When the enqueue of each probe was called and returned, and when its handler began."""
    began: dict[int, float] = {}
    enqueued: dict[int, tuple[float, float]] = {}
    for event in at.events(time.monotonic() + seconds):
        if event["ev"] == "lat":
            began.setdefault(event["i"], event["t"])
        elif event["ev"] == "enq":
            enqueued[event["i"]] = event["t0"], event["t1"]
        if wanted is not None and len(began) == len(enqueued) == wanted:
            break
    return enqueued, began


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))]


# ---------------------------------------------------------------------- over time


def mixed(  # what can differ
    lab: Lab,
    system: System,
    *,
    full: float = 20.0,
    batch: int = 100,
    held: bool = False,
    workers: int = 1,
) -> Figures:
    """A producer that stays a little ahead of one worker; `held`: while somebody keeps a snapshot
    open.
    """
    seconds = lab.seconds(full)
    with lab.session(system) as at, held_snapshot(lab, at, held=held):
        start_all(at, workers)
        time.sleep(3)
        at.start_producer("produce", seconds + 5, batch, 5000)
        at.wait_for("n", 30)
        written = lab.server.written(at.monitor)
        cpu, began = at.cpu(), time.time()
        series = [(began, float(sum(at.handled.values())))]
        reports = (
            event
            for event in at.events(time.monotonic() + seconds)
            if event["ev"] == "n"
        )
        series += ((time.time(), float(sum(at.handled.values()))) for _ in reports)
        cpu = at.cpu() - cpu
        written = lab.server.written(at.monitor) - written
        (t0, n0), (t1, n1) = series[0], series[-1]
        jobs = max(1.0, n1 - n0)
        slices = _slices(series, seconds)
        return {
            "jobs_per_second": jobs / (t1 - t0),
            "first_slice": slices[0],
            "last_slice": slices[-1],
            "cpu_us": cpu.total / jobs * 1e6,
            "database_us": cpu.database / jobs * 1e6,
            "worker_us": cpu.workers / jobs * 1e6,
            "runner_us": cpu.runners / jobs * 1e6,
            "wal_bytes": written.wal / jobs,
            "commits": written.commits / jobs,
            "dead_tuples": lab.server.dead_tuples(at.monitor),
        }


def _slices(series: list[tuple[float, float]], seconds: float) -> list[float]:
    """Jobs per second in equal parts of the time; for a part in which nothing was reported, 0."""
    t0, width = series[0][0], seconds / SLICES
    rates = []
    for k in range(SLICES):
        part = [(t, n) for t, n in series if k * width <= t - t0 <= (k + 1) * width]
        rates.append(
            (part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0])
            if len(part) > 1
            else 0.0
        )
    return rates


@contextlib.contextmanager
def held_snapshot(lab: Lab, at: Session, *, held: bool) -> Iterator[None]:
    """Somebody's long report: a REPEATABLE READ transaction that has read and stays open."""
    if not held:
        yield
        return
    with lab.server.connect(at.database) as conn, conn.transaction():
        conn.execute("set transaction isolation level repeatable read")
        conn.execute("select count(*) from pg_class")
        yield


def backlog(lab: Lab, system: System) -> Figures:
    """A worker's speed with a million jobs before it, and the same worker's with few: both while
    none run out.
    """
    figures: Figures = {}
    for name, jobs in (
        ("deep", lab.jobs(system, 1_000_000)),
        ("shallow", lab.jobs(system, 100_000)),
    ):
        with lab.session(system) as at:
            at.run("enqueue", "bulk", jobs)
            lab.server.settle_down(at.database)
            at.start_workers(1, system.config("drain"))
            at.wait_for("n", 120)
            before, began = sum(at.handled.values()), time.time()
            for _ in at.events(time.monotonic() + 8):
                if sum(at.handled.values()) >= jobs * 0.9:
                    break
            figures[f"{name}_per_second"] = (sum(at.handled.values()) - before) / (
                time.time() - began
            )
    return figures | {
        "ratio": figures["deep_per_second"] / figures["shallow_per_second"]
    }


# ---------------------------------------------------------------------- dead letters


def dead_letters(lab: Lab, system: System) -> Figures:
    """Every handler fails for good, at the first attempt."""
    with lab.session(system) as at:
        return _bury(lab, at)


def _bury(lab: Lab, at: Session) -> Figures:
    jobs = lab.jobs(at.system, round(100_000 * at.system.pace_of_death))
    at.run("enqueue", "bulk", jobs)
    lab.server.settle_down(at.database)
    at.start_workers(1, at.system.config("burying") | {"work": "fail"})
    begun = at.wait_for("first", 60)["t"]
    cpu = at.cpu()
    until_handled(at, jobs)
    until_settled(at)
    seconds, cpu = time.time() - begun, at.cpu() - cpu
    if (dead := at.dead()) != jobs:
        raise SystemFailed(f"{dead} dead letters of {jobs} jobs")
    return {
        "jobs_per_second": jobs / seconds,
        "cpu_us": cpu.total / jobs * 1e6,
        "database_us": cpu.database / jobs * 1e6,
        "worker_us": cpu.workers / jobs * 1e6,
        "runner_us": cpu.runners / jobs * 1e6,
    }


# ---------------------------------------------------------------------- only Redrive


def idle(lab: Lab, system: System) -> Figures:
    """What a worker costs that has nothing to do."""
    seconds = lab.seconds(20)
    with lab.session(system) as at:
        at.start_workers(1, system.config("drain") | {"quiet": True})
        at.wait_for("run", 60)
        time.sleep(15)  # polling slows down to once a second
        before, began = at.cpu(), time.time()
        time.sleep(seconds)
        elapsed = time.time() - began
        spent = at.cpu() - before
        pids = [pid for worker in at.pids for pid in (worker, *usage.children(worker))]
        return {
            "memory_mib": usage.memory(pids) / 2**20,
            "resident_mib": usage.resident(pids) / 2**20,
            "core_percent": (spent.workers + spent.runners) / elapsed * 100,
            "supervisor_percent": spent.workers / elapsed * 100,
            "runner_percent": spent.runners / elapsed * 100,
            "database_percent": spent.database / elapsed * 100,
        }


FLEETS = {f"{n} workers": n for n in (2, 8, 16, 32, 64)}
FLEET_RATE = 1000.0


def fleet(lab: Lab, system: System, fleet: str) -> Figures:
    """So many worker processes on one queue: what they run together while a producer stays ahead,
    and how soon a job is begun at 1,000 a second.
    """
    number = FLEETS[fleet]
    together = mixed(lab, system, full=15, workers=number)
    shown = ("jobs_per_second", "cpu_us", "database_us", "wal_bytes", "commits")
    return {name: together[name] for name in shown} | loaded(
        lab, system, rate=FLEET_RATE, workers=number
    )


def redriven(lab: Lab, system: System) -> Figures:
    """All dead letters back to work at once."""
    with lab.session(system) as at:
        _bury(lab, at)
        for process in at.workers:
            process.terminate()
        began = time.time()
        with connect(lab.server.url_of(at.database), name="bench") as conn:
            planned = plan(conn, Filter(kind=["noop"]), actor="bench")
            assert planned.plan is not None
            start(conn, planned.plan, Terms(canaries=0), actor="bench", why="benchmark")
            # nothing runs, which a campaign would wait for
            take = "select redrive.step_campaign_v1(%s, %s, 'running', %s, null, null)"
            for step in range(-(-planned.matched // STEP_SIZE)):
                conn.execute(take, (planned.plan, step, STEP_SIZE))
        return {"jobs_per_second": planned.matched / (time.time() - began)}


def claims(
    lab: Lab, system: System, *, depths: tuple[int, ...] = (10_000, 1_000_000)
) -> Figures:
    """Milliseconds to claim 100 jobs, floor and all, with few and with many waiting."""
    figures: Figures = {}
    with (
        lab.session(system) as at,
        connect(
            lab.server.url_of(at.database), name="bench", statement_timeout="0"
        ) as conn,
    ):
        it = store.Registration("bench", "", 60.0, ["*"], None)
        worker, there = store.register(conn, it), 0
        for depth in depths:
            conn.execute(
                "insert into redrive.jobs (kind) select 'noop' from generate_series(1, %s)",
                (depth - there,),
            )
            lab.server.settle_down(at.database)
            there = depth - _CLAIMS * 100
            figures[f"claim_ms_{depth}"] = _claim_ms(conn, worker)
    return figures | {
        "ratio": figures[f"claim_ms_{depths[-1]}"] / figures[f"claim_ms_{depths[0]}"]
    }


_CLAIMS = 60


def _claim_ms(conn: OwnConnection, worker: int) -> float:
    lanes, _ = store.lanes(conn, None)
    (lane,) = (lane for lane, _ in lanes if not lane.is_front)
    place, times = START, []
    for _ in range(_CLAIMS):
        request = ClaimRequest(worker, [lane], [place], 100, from_start=False)
        began = time.perf_counter()
        answer = exchange(conn, Settlements(), request)
        times.append((time.perf_counter() - began) * 1e3)
        upto, upto_id, as_of = answer.lanes[0][2:5]
        assert upto is not None  # the lane never ends here
        place = Place(upto, upto_id or 0, as_of or 0)
    return statistics.median(times)


def median(runs: list[Figures]) -> Figures:
    """Figure by figure."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}
