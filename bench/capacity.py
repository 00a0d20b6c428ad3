"""python -m bench.capacity: what a job costs, and whether that predicts another load. Four minutes.

Three loads run through one worker: one job per transaction, many small ones, and many large ones.
bench.costs makes a formula of them. A fourth load, with another payload, transaction and rate, checks
the formula. All four run in turns, and the cheapest turn counts,
because other work on the machine makes CPU dearer and never cheaper. Results go to
bench/results/capacity.json; docs/capacity.md shows them, and says how far to trust them.

python -m bench.capacity --output FILE    for other results than those of the page
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import costs, usage
from bench.costs import MANY, Figures, Load, Measured
from bench.install import Peers
from bench.report import commit, machine
from bench.scenarios import Lab, until_handled, until_settled
from bench.server import SETTINGS, Server, running
from bench.session import Session
from bench.systems import REDRIVE
from redrive.enqueue import enqueue, enqueue_many

LOADS = (
    Load(0, 1, 200.0),
    Load(0, MANY, 3000.0),
    Load(1000, MANY, 3000.0),
    Load(400, 20, 1000.0),
)
"""What costs.fit asks for, and one to check it."""

TURNS = 3
WAITING, INSERTS = 20_000, 500
"""Jobs that are inserted without a worker, in at most so many transactions."""

RESULT = Path(__file__).with_name("results") / "capacity.json"
LIVE = """
    select coalesce(sum(pg_total_relation_size(c.oid)), 0)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'redrive' and c.relkind = 'r'
"""
SESSIONS = """
    select pid from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
        and backend_type = 'client backend'
"""
PER_JOB = {
    "wal": "wal_bytes",
    "database": "database_us",
    "worker": "worker_us",
    "producer": "producer_us",
}


@dataclass(frozen=True)
class Spent:
    """What database, worker and producer have used so far: bytes, and microseconds of CPU."""

    wal: float
    database: float
    worker: float
    producer: float

    def less(self, before: "Spent", idle: "Spent | None" = None) -> "Spent":
        """Return what was used since, without what an idle worker uses."""
        now, then = asdict(self), asdict(before)
        rest = asdict(idle) if idle else dict.fromkeys(now, 0.0)
        return Spent(**{name: now[name] - then[name] - rest[name] for name in now})

    def times(self, factor: float) -> "Spent":
        """Return all of it, multiplied."""
        return Spent(**{name: value * factor for name, value in asdict(self).items()})


class Bench:
    """A fresh database with one worker, and what is known of both at rest."""

    def __init__(self, at: Session, seconds: float) -> None:
        self._at, self._seconds, self._jobs = at, seconds, 0
        self._inserts = {load: self._cheapest_insert(load) for load in LOADS}
        at.start_workers(1, {})
        at.wait_for("run", 60)
        self._drained()
        time.sleep(3)
        self.idle = self._at_rest(seconds)

    def run(self, load: Load) -> Measured:
        """Let the load run for a while; return what each of its jobs cost."""
        self._at.server.settle_down(self._at.database)
        before, began = self._spent(), time.monotonic()
        jobs = self._produce(load)
        self._drained()
        after, seconds = self._spent(), time.monotonic() - began
        used = after.less(before, self.idle.times(seconds)).times(1 / jobs)
        insert = self._inserts[load]
        # This process also listens to the worker: only its inserts are the producer's.
        asked = ("producer_us", "disk_bytes")
        life = _by_unit(used) | {unit: insert[unit] for unit in asked}
        print(f"{load}: {jobs} jobs in {seconds:.1f} s: {life}", file=sys.stderr)
        return Measured(load, insert, life)

    def holds(self) -> Figures:
        """Return the worker's connections, and the memory of each and of its processes."""
        at, pids = self._at, [row[0] for row in self._at.monitor.execute(SESSIONS)]
        own = [*at.pids, *(child for pid in at.pids for child in usage.children(pid))]
        return {
            "connections": len(pids),
            "mb_per_connection": usage.memory(pids, "Pss_Anon") / len(pids) / 1e6,
            "worker_mb": usage.memory(own) / 1e6,
        }

    def _produce(self, load: Load) -> int:
        """Enqueue at the load's rate; return how many."""
        batches = int(load.rate * self._seconds / load.batch)
        began = time.monotonic()
        for number in range(batches):
            time.sleep(
                max(0.0, began + number * load.batch / load.rate - time.monotonic())
            )
            self._enqueue(load)
        return batches * load.batch

    def _enqueue(self, load: Load) -> None:
        first, conn = self._jobs, self._at.monitor
        self._jobs += load.batch
        payloads = [_payload(i, load.payload) for i in range(first, self._jobs)]
        if load.batch == 1:
            enqueue(conn, "noop", payloads[0])
            return
        with conn.transaction():
            enqueue_many(conn, [{"kind": "noop", "payload": p} for p in payloads])

    def _drained(self) -> None:
        until_handled(self._at, self._jobs)
        until_settled(self._at)

    def _cheapest_insert(self, load: Load) -> Figures:
        turns = [self._insert(load) for _ in range(TURNS)]
        return {unit: min(turn[unit] for turn in turns) for unit in turns[0]}

    def _insert(self, load: Load) -> Figures:
        """Return the cost of a job's insert while no worker is there, and the disk that it takes."""
        batches = min(INSERTS, WAITING // load.batch)
        jobs = batches * load.batch
        before, disk = self._spent(), self._bytes()
        for _ in range(batches):
            self._enqueue(load)
        used = self._spent().less(before).times(1 / jobs)
        return _by_unit(used) | {"disk_bytes": (self._bytes() - disk) / jobs}

    def _bytes(self) -> int:
        row = self._at.monitor.execute(LIVE).fetchone()
        return int(row[0]) if row else 0

    def _at_rest(self, seconds: float) -> Spent:
        """Return what an idle worker and its database use in a second."""
        before = self._spent()
        time.sleep(seconds)
        return self._spent().less(before).times(1 / seconds)

    def _spent(self) -> Spent:
        row = self._at.monitor.execute(
            "select pg_current_wal_insert_lsn() - '0/0'"
        ).fetchone()
        cpu, own = self._at.cpu(), resource.getrusage(resource.RUSAGE_SELF)
        return Spent(
            wal=float(row[0]) if row else 0.0,
            database=cpu.database * 1e6,
            worker=(cpu.workers + cpu.runners) * 1e6,
            producer=(own.ru_utime + own.ru_stime) * 1e6,
        )


def _by_unit(used: Spent) -> dict[str, float]:
    return {unit: getattr(used, name) for name, unit in PER_JOB.items()}


def _payload(number: int, size: int) -> dict[str, Any]:
    """Return a payload that does not compress."""
    if not size:
        return {"i": number}
    return {"i": number, "s": f"{random.getrandbits(4 * size):0{size}x}"}


def measure(server: Server, seconds: float) -> dict[str, Any]:
    """Return all results."""
    with tempfile.TemporaryDirectory() as scratch:
        lab = Lab(server, Peers(Path(scratch)), 1.0)
        with lab.session(REDRIVE) as at:
            bench = Bench(at, seconds)
            turns = [[bench.run(load) for load in LOADS] for _ in range(TURNS)]
            *fitted, check = map(_cheapest, zip(*turns, strict=True))
            return {
                "costs": costs.fit(*fitted),
                "check": _told(check),
                "turns": [[_told(run) for run in turn] for turn in turns],
                "idle": asdict(bench.idle),
                "worker": bench.holds(),
            }


def _cheapest(turns: tuple[Measured, ...]) -> Measured:
    """Return the lowest of each figure of a load's turns."""
    lowest = {unit: min(turn.life[unit] for turn in turns) for unit in turns[0].life}
    return turns[0]._replace(life=lowest)


def _told(run: Measured) -> dict[str, Any]:
    return {"load": run.load._asdict(), "insert": run.insert, "life": run.life}


def main() -> int:
    """Measure, write the results, and print the tables. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.capacity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="of each turn of a load"
    )
    parser.add_argument("--output", type=Path, default=RESULT, help="a JSON file")
    asked = parser.parse_args()
    about = {
        "machine": machine(),
        "commit": commit(),
        "began": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "settings": SETTINGS,
    }
    with running() as server:
        found = measure(server, asked.seconds)
    about["machine"]["load_after"] = Path("/proc/loadavg").read_text().split()[0]
    result = json.loads(json.dumps(about | found))
    asked.output.write_text(json.dumps(result, indent=2) + "\n")
    for table in (costs.cost_table, costs.check_table, costs.size_table):
        print("\n".join(table(result)), end="\n\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
