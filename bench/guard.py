"""python -m bench.guard: whether a job still costs what it did. Part of CI, half a minute.

It enqueues and drains the same jobs a few times and compares the cheapest round with
bench/guard.json: the bytes of WAL of a job, and the CPU of clients and database. CPU is told
relative to two fixed loops beside it (Python; statements on the same server), so that another
machine, another Python or another architecture cancels out. It is counted in instructions; where
the machine does not count them it is CPU seconds, which swing with what else runs.

python -m bench.guard --renew    when a change is meant to cost what it costs
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from bench.counting import Counter, Reading, counters
from bench.install import Peers
from bench.scenarios import Lab, until_handled, until_settled
from bench.server import Server, running
from bench.session import Session
from bench.systems import REDRIVE
from redrive.enqueue import enqueue, enqueue_many

BASELINE = Path(__file__).with_name("guard.json")
BOUND, SECONDS_BOUND = 0.10, 2.0
LOOSE_BOUNDS = {"enqueue one, client": 0.20}
"""By how much a figure may be above the baseline; docs/performance.md says how they spread.

A client that waits for each reply asks for it once or twice, as it comes.
"""

ROUNDS = 3
SINGLE, MANY, CHUNK = 1_000, 20_000, 5_000
TURNS, STATEMENTS = 40_000, 3_000
"""Of the loops."""

EXACT = {"full_page_writes": "off", "autovacuum": "off", "fsync": "off"}
"""Nothing is written at another moment than the job that is the cause."""

Figures = dict[str, float]
"""By `unit: what`; a job's, or one turn of a loop."""


class Meter:
    """Reads all counters of the server and of ourselves, with the processes that both start."""

    def __init__(self, server: Server) -> None:
        self._of: Mapping[str, dict[str, Counter]] = {
            "database": counters(server.pid),
            "client": counters(0),
        }

    def spent(self, what: str, jobs: int, do: Callable[[], object]) -> Figures:
        """What doing it takes, per job."""
        before = self._read()
        do()
        after = self._read()
        changes = {name: after[name].since(before[name]) for name in before}
        return {
            f"{unit}: {what}, {side}": change / jobs
            for (side, unit), change in changes.items()
            if change is not None
        }

    def _read(self) -> dict[tuple[str, str], Reading]:
        return {
            (side, unit): counter.read()
            for side, units in self._of.items()
            for unit, counter in units.items()
        }


def main() -> int:
    """Compare, or renew. Returns the exit status: 1 when something costs more than it may."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--renew", action="store_true", help="write the baseline anew")
    asked = parser.parse_args()
    measured = measure(ROUNDS)
    if asked.renew:
        BASELINE.write_text(json.dumps(measured, indent=2, sort_keys=True) + "\n")
        return 0
    dearer: list[str] = []
    for name, change, bound in compared(measured, json.loads(BASELINE.read_text())):
        print(f"{name:50}{change:+8.1%}  (at most {bound:+.0%})")
        if change > bound:
            dearer.append(name)
    if dearer:
        print(f"a job costs more: {'; '.join(dearer)}", file=sys.stderr)
        print(
            "if it has to: make bench-guard ARGS=--renew, and say why", file=sys.stderr
        )
    return int(bool(dearer))


def compared(now: Figures, base: Figures) -> Iterator[tuple[str, float, float]]:
    """Each figure's change against the baseline, and how much is allowed."""
    for name in base:
        unit, _, what = name.partition(": ")
        if unit == "wal":
            yield name, now[name] / base[name] - 1, BOUND
        elif unit == "seconds" and not what.startswith("loop"):
            yield _cpu(what, now, base)


def _cpu(what: str, now: Figures, base: Figures) -> tuple[str, float, float]:
    """CPU in turns of the loop of its side: in instructions, where both were counted."""
    loop = f"loop, {what.rpartition(', ')[2]}"
    counted = now.keys() >= {f"instructions: {what}", f"instructions: {loop}"}
    unit = "instructions" if counted else "seconds"
    (is_now, was), (turn, turn_was) = (
        (now[f"{unit}: {name}"], base[f"{unit}: {name}"]) for name in (what, loop)
    )
    bound = LOOSE_BOUNDS.get(what, BOUND) if counted else SECONDS_BOUND
    return f"{unit}: {what}", is_now / turn / (was / turn_was) - 1, bound


def measure(rounds: int) -> Figures:
    """The lowest of each figure."""
    lowest: Figures = {}
    with tempfile.TemporaryDirectory() as scratch, running(EXACT) as server:
        lab, meter = Lab(server, Peers(Path(scratch)), 1.0), Meter(server)
        with lab.session(REDRIVE) as at:
            for figures in _rounds(at, meter, rounds):
                for name, value in figures.items():
                    lowest[name] = min(value, lowest.get(name, value))
    return lowest


def _rounds(at: Session, meter: Meter, rounds: int) -> Iterator[Figures]:
    """Enqueue beside the loops while no worker is there, which would add to them; then drain."""
    for _ in range(rounds):
        yield _loops(at, meter)
        yield _with_wal(at, meter, "enqueue one", SINGLE, _enqueue_single)
        yield _with_wal(at, meter, "enqueue many", MANY, _enqueue_many)
    jobs = rounds * (SINGLE + MANY)
    at.start_workers(1, at.system.config("drain"))
    _drain(at, jobs)
    for _ in range(rounds):
        at.monitor.execute("vacuum analyze")
        with at.monitor.transaction():  # the worker sees none before all are there
            _enqueue_many(at)
            _enqueue_many(at)
        jobs += 2 * MANY
        yield _with_wal(at, meter, "drain", 2 * MANY, partial(_drain, jobs=jobs))


def _with_wal(
    at: Session, meter: Meter, what: str, jobs: int, do: Callable[[Session], None]
) -> Figures:
    wal = _wal(at)
    figures = meter.spent(what, jobs, lambda: do(at))
    return figures | {f"wal: {what}": (_wal(at) - wal) / jobs}


def _wal(at: Session) -> int:
    row = at.monitor.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()
    return int(row[0]) if row else 0


def _enqueue_single(at: Session) -> None:
    for i in range(SINGLE):
        enqueue(at.monitor, "noop", {"i": i})


def _enqueue_many(at: Session) -> None:
    for first in range(0, MANY, CHUNK):
        numbers = range(first, first + CHUNK)
        enqueue_many(
            at.monitor, [{"kind": "noop", "payload": {"i": i}} for i in numbers]
        )


def _drain(at: Session, jobs: int) -> None:
    until_handled(at, jobs)
    until_settled(at)


def _loops(at: Session, meter: Meter) -> Figures:
    """What both sides are measured in: work that no change of ours touches."""
    conn = at.monitor
    conn.execute(
        "create temp table if not exists loop (id bigint primary key, body jsonb)"
    )

    def ask() -> None:
        for i in range(STATEMENTS):
            conn.execute(
                "insert into loop values (%s, jsonb_build_object('i', 1))", (i,)
            )
            conn.execute(
                "update loop set body = body || '{\"j\": 2}' where id = %s", (i,)
            )
            conn.execute("delete from loop where id = %s", (i,))

    def compute() -> None:
        for i in range(TURNS):
            found = json.loads(json.dumps({"i": i, "names": ["a", "b"]}))
            sorted(found["names"], key=str.lower)
            f"{found['i']:>10}".encode().strip().decode()

    database = meter.spent("loop", STATEMENTS, ask)
    client = meter.spent("loop", TURNS, compute)
    return {
        **{
            name: value for name, value in database.items() if name.endswith("database")
        },
        **{name: value for name, value in client.items() if name.endswith("client")},
    }


if __name__ == "__main__":
    began = time.monotonic()
    status = main()
    print(f"{time.monotonic() - began:.0f} s")
    raise SystemExit(status)
