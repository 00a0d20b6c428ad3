"""python -m bench.cells: whether three cells behave like three times one. Two minutes.

Each cell is a Postgres server of its own, with one worker and one producer that enqueues at a steady
rate. One cell works alone, then all three at once, in turns. Cells share nothing but the machine, so a
job may cost no more WAL, and its cell may handle no fewer jobs, as long as the machine has CPU left.
Results go to bench/results/cells.json; docs/internals/decisions/scale-out.md has the table.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.install import Peers
from bench.report import commit, machine
from bench.scenarios import Figures, Lab, latencies, until_settled
from bench.server import running
from bench.session import Session
from bench.systems import REDRIVE

CELLS, TURNS = 3, 3
SMALL = {"shared_buffers": "128MB", "max_wal_size": "1GB"}
"""Three servers are beside each other."""

RESULT = Path(__file__).with_name("results") / "cells.json"
NAMES = {
    "jobs_per_second": "jobs/s of a cell",
    "p50_ms": "pick-up, p50, ms",
    "p99_ms": "pick-up, p99, ms",
    "wal_bytes": "WAL of a job, bytes",
    "database_us": "CPU of the database, µs",
    "worker_us": "CPU of the worker, µs",
}


@contextlib.contextmanager
def cells() -> Iterator[list[Session]]:
    """Start all cells, each with a worker."""
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = []
        for _ in range(CELLS):
            server = stack.enter_context(running(SMALL))
            lab = Lab(server, Peers(scratch), 1.0)
            started.append(stack.enter_context(lab.session(REDRIVE)))
        for at in started:
            at.start_workers(1, {})
            at.wait_for("run", 60)
        time.sleep(3)
        yield started


def load(at: Session, seconds: float, rate: float) -> Figures:
    """Let one cell work for a while; return what it did, and what each job cost."""
    at.handled.clear()
    before, wal, jobs = at.cpu(), _wal(at), _handled(at)
    at.start_producer("load", seconds, rate)
    found = latencies(at, seconds + 3, None, skip=20)
    until_settled(at)
    done, cpu = _handled(at) - jobs, at.cpu() - before
    return {
        "jobs_per_second": done / seconds,
        "p50_ms": found["p50_ms"],
        "p99_ms": found["p99_ms"],
        "wal_bytes": (_wal(at) - wal) / done,
        "database_us": cpu.database / done * 1e6,
        "worker_us": (cpu.workers + cpu.runners) / done * 1e6,
    }


def _handled(at: Session) -> int:
    """Return the jobs that the database has counted as completed, in all its life."""
    row = at.monitor.execute(
        "select coalesce(sum(n), 0) from (select n from redrive.deltas where event = 'completed'"
        " union all select n from redrive.tallies where event = 'completed') as counted"
    ).fetchone()
    return int(row[0]) if row else 0


def _wal(at: Session) -> int:
    row = at.monitor.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
    return int(row[0]) if row else 0


def measure(seconds: float, rate: float) -> dict[str, list[Figures]]:
    """Return the figures of each turn: of one cell alone, and of each of all cells."""
    found: dict[str, list[Figures]] = {"one": [], "three": []}
    with cells() as started, ThreadPoolExecutor(CELLS) as pool:
        for turn in range(TURNS):
            found["one"].append(load(started[turn % CELLS], seconds, rate))
            found["three"] += pool.map(lambda at: load(at, seconds, rate), started)
    return found


def table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the machine, and the lines of the comparison: medians."""
    m = result["machine"]
    yield (
        f"Measured on {result['began'][:10]} on {m['cores']} cores ({m['cpu']}) that were busy with"
        f" other work: load {m['load_before']} before, {m['load_after']} after."
    )
    yield ""
    yield "| | one cell alone | each of three at once | ratio |"
    yield "|---|---:|---:|---:|"
    for name, words in NAMES.items():
        one, each = (
            statistics.median(figures[name] for figures in result["runs"][which])
            for which in ("one", "three")
        )
        yield f"| {words} | {one:,.1f} | {each:,.1f} | {each / one:.2f} |"


def main() -> int:
    """Measure, write the results, and print the table. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cells",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=12.0, help="of each turn")
    parser.add_argument("--rate", type=float, default=500.0, help="jobs/s of a cell")
    parser.add_argument("--output", type=Path, default=RESULT, help="a JSON file")
    asked = parser.parse_args()
    about = {
        "machine": machine(),
        "commit": commit(),
        "began": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "rate": asked.rate,
        "seconds": asked.seconds,
    }
    result = about | {"runs": measure(asked.seconds, asked.rate)}
    about["machine"]["load_after"] = Path("/proc/loadavg").read_text().split()[0]
    asked.output.write_text(json.dumps(result, indent=2) + "\n")
    print("\n".join(table(result)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
