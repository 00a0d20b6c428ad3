"""Jobs run while a stack of high availability is broken in every way, one fault after the other,
and every job is accounted for: `python -m trials.availability.trial --asynchronous`.
"""

import argparse
import itertools
import json
import logging
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from redrive import enqueue_many
from redrive.database.connections.connect import connect
from redrive.database.connections.link import Link, Watchdog
from redrive.database.schema.migrate import migrate
from tests.flow.harness import Worker, wait_for
from trials.availability.stack import LOOP, Stack, stack
from trials.chaos import ledger
from trials.chaos.redrive_system import WITNESS, Redrive
from trials.chaos.verdict import EVERYBODY, Facts, Fault, judge

TICK, PER_TICK = 0.1, 9
CALM = 4.0
"""Seconds of work between two faults."""
ETCD_GONE = 40.0
"""Seconds without a majority of etcd: longer than the leader's lease."""
STUCK = 240.0

# What Postgres itself has kept of what it acknowledged to the producer.
PRODUCED: LiteralString = "create table produced (n bigint not null)"


class Producer(threading.Thread):
    """Enqueues ninety jobs a second, each with a row of its own, and repeats what it does not
    know the end of.
    """

    def __init__(self, url: str, queues: list[str]) -> None:
        super().__init__(name="producer", daemon=True)
        self._queues = queues
        self._link = Link(url, "producer")
        Watchdog(self._link).start()
        self._stopping = threading.Event()
        self._dice = random.Random(33)
        self.acknowledged: dict[int, float] = {}
        """Each job, and when its commit was acknowledged."""

    def run(self) -> None:
        """Until told to stop."""
        for first in itertools.count(0, PER_TICK):
            numbers = range(first, first + PER_TICK)
            jobs = [self._job(n) for n in numbers]
            while not self._add(numbers, jobs):
                if self._stopping.wait(TICK):
                    return
            self.acknowledged |= dict.fromkeys(numbers, time.monotonic())
            if self._stopping.wait(TICK):
                return

    def _add(self, numbers: range, jobs: list[dict[str, Any]]) -> bool:
        with (
            suppress(psycopg.Error),
            self._link.use(bound=8) as conn,
            conn.transaction(),
        ):
            # Whether the last try was committed is known by the first row.
            known = "select 1 from public.produced where n = %s"
            if conn.execute(known, (numbers[0],)).fetchone() is None:
                conn.execute(
                    "insert into public.produced select unnest(%s::bigint[])",
                    (list(numbers),),
                )
                enqueue_many(conn, jobs)
            return True
        return False

    def _job(self, n: int) -> dict[str, Any]:
        kinds = ["chaos.sync", "chaos.async", "chaos.effect"]
        (kind,) = self._dice.choices(kinds, [30, 50, 5])
        payload = {"n": n, "seconds": self._dice.choice([0.05, 0.1, 0.2])}
        return {
            "kind": kind,
            "payload": payload,
            "queue": self._queues[n % len(self._queues)],
        }

    def stop(self) -> None:
        """Enqueue no more."""
        self._stopping.set()
        self.join()


@dataclass
class Row:
    """What was seen of one fault.

    `stood` has the longest time in seconds without the end of a job, by the way of a worker to the
    primary, and without an acknowledged enqueue by the producer. `lost` counts the jobs that
    Postgres had acknowledged and no longer knows, `repeats` the runs that were not the first.
    """

    fault: str
    stood: dict[str, float]
    lost: int = 0
    repeats: int = 0

    def as_text(self) -> str:
        """A line of a table."""
        cells = [self.fault, *(f"{seconds:.1f}" for seconds in self.stood.values())]
        return "| " + " | ".join([*cells, str(self.lost), str(self.repeats)]) + " |"


@dataclass
class Seen:
    """A whole trial. All lists of `failures` have to be empty."""

    jobs: int
    rows: list[Row]
    failures: dict[str, list[Any]]

    def told(self) -> str:
        """The table, and what failed."""
        ways = list(self.rows[0].stood)
        header = ["fault", *ways, "lost", "repeats"]
        lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
        lines += [row.as_text() for row in self.rows]
        failed = {name: found[:20] for name, found in self.failures.items() if found}
        return "\n".join([*lines, f"{self.jobs} jobs; failures: {failed}"])


class Trial:
    """Workers, one on each way to the primary, and what is done to the stack below them."""

    def __init__(self, stage: Stack, home: Path) -> None:
        self.stage = stage
        self.home = home
        ways = {
            "hosts": stage.direct,
            "HAProxy": stage.balanced + "?target_session_attrs=read-write",
            "PgBouncer": stage.pooled,
        }
        with closing(connect(stage.direct)) as conn:
            migrate(conn)
        with psycopg.connect(stage.direct, autocommit=True) as conn:
            conn.execute(PRODUCED)
            conn.execute(WITNESS)
        self.workers = {way: self._worker(way, url) for way, url in ways.items()}
        self.producer = Producer(stage.direct, [way.lower() for way in ways])
        self.faults: list[Fault] = []

    def _worker(self, way: str, url: str) -> Worker:
        return Worker(
            url,
            self.home,
            # Its own queue, so that no other worker hides that it stands still.
            *("--slots", "8", "--runners", "2", "--queue", way.lower()),
            handlers="trials.chaos.handlers:jobs",
            redrive_heartbeat_ttl=60,  # as the page has it for Patroni
            redrive_log_level="warning",
            redrive_test_url=self.stage.direct,
            **{ledger.HOME: str(self.home)},
        )

    def run(self, tell: Callable[[str], None]) -> Seen:
        """Run the whole trial, and return the outcome of every job."""
        for worker in self.workers.values():
            worker.wait_ready()
        self.producer.start()
        for name in FAULTS:
            self._wait_for_work()
            since = time.monotonic()
            getattr(self, name)()
            self._wait_for_work()
            self.stage.wait_healthy()
            time.sleep(CALM)
            self.faults.append(Fault(name, EVERYBODY, since, time.monotonic()))
            tell(self._row(self.faults[-1]).as_text())
        self.producer.stop()
        return self._judge()

    def _wait_for_work(self) -> None:
        """Wait until each worker has ended a job, and the producer has added one, from now on."""
        now = time.monotonic()
        pids = {worker.pid for worker in self.workers.values()}

        def all_work() -> bool:
            ends = _ends(self.home)
            is_fed = max(self.producer.acknowledged.copy().values(), default=0) > now
            return is_fed and all(max(ends.get(pid, [0.0])) > now for pid in pids)

        wait_for(all_work, STUCK, every=0.5, what="a worker or the producer is stuck")

    def _another(self, old: Any) -> None:
        """Wait until another node than the old one is the primary."""
        others = [node for node in self.stage.nodes if node is not old]
        is_there = lambda: any(node.is_primary() for node in others)  # noqa: E731 # named
        wait_for(is_there, STUCK, every=0.3, what="no other node took over")

    def nothing(self) -> None:
        """Nothing is broken: the same times without a fault."""
        time.sleep(CALM)

    def switch_over(self) -> None:
        """Switch over as planned."""
        old = self.stage.primary()
        self.stage.switch_over()
        self._another(old)

    def kill_postgres(self) -> None:
        """Kill Postgres on the primary; its Patroni starts it again."""
        self.stage.primary().kill_postgres()

    def kill_node(self) -> None:
        """Kill the primary and its Patroni."""
        old = self.stage.primary()
        old.kill()
        self._another(old)
        self._wait_for_work()
        old.patroni.start()

    def freeze_node(self) -> None:
        """Stop the primary's host with all its connections open, and let it come back."""
        old = self.stage.primary()
        old.freeze()
        try:
            self._another(old)
            self._wait_for_work()
        finally:
            old.thaw()

    def cut_from_etcd(self) -> None:
        """Swallow all that the primary's Patroni sends to etcd."""
        old = self.stage.primary()
        old.way.signal(signal.SIGSTOP)
        try:
            self._another(old)
            self._wait_for_work()
        finally:
            old.way.signal(signal.SIGCONT)

    def kill_etcd_leader(self) -> None:
        """Kill one etcd of three for longer than the lease."""
        self._without_etcd(1)

    def lose_etcd(self) -> None:
        """Kill two etcd of three for longer than the lease."""
        self._without_etcd(2)

    def lose_etcd_failsafe(self) -> None:
        """Kill two etcd of three while `failsafe_mode` is on, which it stays."""
        self.stage.configure(failsafe_mode=True)
        time.sleep(2 * LOOP)  # each member announces itself in its next look
        self._without_etcd(2)

    def _without_etcd(self, count: int) -> None:
        leader = self.stage.etcd.leader()
        gone = [self.stage.etcd.members[(leader + i) % 3] for i in range(count)]
        for member in gone:
            member.kill()
        time.sleep(ETCD_GONE)
        for member in gone:
            member.start()

    def restart_haproxy(self) -> None:
        """Kill HAProxy, and start it again."""
        self.stage.haproxy.kill()
        self.stage.haproxy.start()

    def restart_pgbouncer(self) -> None:
        """Kill PgBouncer, and start it again."""
        self.stage.pooler.kill()

    # ---------------------------------------------------------------------- and the verdict

    def _judge(self) -> Seen:
        acknowledged = self.producer.acknowledged
        with closing(connect(self.stage.direct)) as conn:
            left: LiteralString = f"select exists({Redrive.live})"
            wait_for(
                lambda: conn.execute(left).fetchone() == (False,),
                STUCK,
                what="a job is stuck",
            )
        offset = time.time() - time.monotonic()
        with psycopg.connect(self.stage.direct) as conn:
            kept = {n for (n,) in conn.execute("select n from produced")}
            twice = "select n from effects group by n having count(*) > 1"
            facts = Facts(
                acknowledged=acknowledged.keys() & kept,
                ledger=ledger.read(self.home),
                done={n: at - offset for n, at in conn.execute(Redrive.done)},
                live={n for (n,) in conn.execute(Redrive.live)},
                dead={n for (n,) in conn.execute(Redrive.dead)},
                doomed=set(),
                faults=self.faults,
                silences=[],
            )
            effects_twice = [n for (n,) in conn.execute(twice)]
        lost = acknowledged.keys() - kept
        verdict = judge(facts)
        crashed = [
            w.log.read_text()[-2000:]
            for w in self.workers.values()
            if w.process.poll() is not None
        ]
        exits = [worker.stop()[0] for worker in self.workers.values()]
        failures: dict[str, list[Any]] = {
            **verdict.failures(),
            "effects_twice": effects_twice,
            "crashed": crashed,
            "exits": [status for status in exits if status],
        }
        rows = [self._row(fault) for fault in self.faults]
        for row, fault in zip(rows, self.faults, strict=True):
            row.lost = sum(1 for n in lost if self._before(n) is fault)
            row.repeats = verdict.explained[fault.kind]
        return Seen(len(acknowledged), rows, failures)

    def _row(self, fault: Fault) -> Row:
        """How long each stood still around a fault."""
        ends = _ends(self.home)
        by_way = {way: ends.get(worker.pid, []) for way, worker in self.workers.items()}
        by_way["producer"] = sorted(self.producer.acknowledged.copy().values())
        return Row(
            fault.kind, {way: longest_rest(at, fault) for way, at in by_way.items()}
        )

    def _before(self, n: int) -> Fault | None:
        """The first fault that ended after a job was acknowledged."""
        at = self.producer.acknowledged[n]
        return next((fault for fault in self.faults if fault.until >= at), None)

    def end(self) -> None:
        """End the workers."""
        for worker in self.workers.values():
            worker.end()


CAUSELESS = {
    "nothing",
    "switch_over",
    "kill_etcd_leader",
    "lose_etcd_failsafe",
    "restart_haproxy",
    "restart_pgbouncer",
}
"""Faults in which no standby takes over from a primary that did not wait for it."""
FAULTS = (
    "nothing",
    "switch_over",
    "kill_postgres",
    "kill_node",
    "freeze_node",
    "cut_from_etcd",
    "kill_etcd_leader",
    "lose_etcd",
    "restart_haproxy",
    "restart_pgbouncer",
    "lose_etcd_failsafe",
)


def _ends(home: Path) -> dict[int, list[float]]:
    """When jobs ended, by the supervisor of the process that ran them; in order."""
    found: dict[int, list[float]] = {}
    for entries in ledger.read(home).values():
        for entry in entries:
            if entry.phase == "end":
                found.setdefault(entry.parent, []).append(entry.at)
    return {pid: sorted(at) for pid, at in found.items()}


def longest_rest(at: list[float], fault: Fault) -> float:
    """Return the longest time without any of these instants that touches the fault's time."""
    rests = itertools.pairwise(at)
    touching = [b - a for a, b in rests if b >= fault.since and a <= fault.until]
    return round(max(touching, default=float("inf")), 1)


def run(tell: Callable[[str], None], *, is_synchronous: bool) -> Seen:
    """One trial."""
    with (
        tempfile.TemporaryDirectory(prefix="redrive-ledger-") as home,
        stack(is_synchronous=is_synchronous) as stage,
    ):
        trial = Trial(stage, Path(home))
        try:
            return trial.run(tell)
        finally:
            trial.end()


def main() -> int:
    """Return the exit status."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--asynchronous", action="store_true", help="standbys may lag")
    options.add_argument("--output", type=Path)
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the workers, too
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # of connections that we lose
    seen = run(
        lambda line: print(line, flush=True), is_synchronous=not chosen.asynchronous
    )
    print(seen.told())
    if chosen.output:
        chosen.output.write_text(json.dumps(asdict(seen), indent=2) + "\n")
    return int(any(seen.failures.values()))


if __name__ == "__main__":
    sys.exit(main())
