"""Kill, stop, crash, cut, fill and restart everything by a schedule, and account for every job."""

import contextlib
import heapq
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from tests.flow.harness import Worker
from tests.flow.proxy import CLAIMING, SETTLING, Proxy
from trials.chaos import ledger
from trials.chaos.holding import FIRST, Hold, Waits, waits
from trials.chaos.redrive_system import DRAIN, Redrive
from trials.chaos.schedule import Planned, Tier, plan
from trials.chaos.servers import POOLER, Pooler, Servers, is_small, servers
from trials.chaos.verdict import EVERYBODY, Facts, Fault, Verdict, judge
from trials.model import recorder

SETTLE_SECONDS = 120.0
CLOCKS = (86_400, -86_400, 3_600, -3_600, 0)


class Monkey:
    """The workers, and everything that is done to them. `tell`: a line of progress."""

    def __init__(
        self, system: Any, stage: Servers, tier: Tier, planned: list[Planned]
    ) -> None:
        self.system = system
        self.stage = stage
        self.tier = tier
        self.planned = planned
        self.faults: list[Fault] = []
        self.holds: list[Hold] = []
        self.left_out: dict[str, str] = {}
        self.slowest_term = 0.0
        self.bad_terms: list[str] = []
        self.gone: list[Worker] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._busy: set[int] = set()
        """Workers that are down, frozen or on their way out."""
        self.pooler: Pooler | None = None
        self.proxies = [stage.proxy() for _ in range(tier.workers)]
        self._urls = [proxy.url for proxy in self.proxies]
        self.producing = stage.proxy()
        if "kill_pooler" in tier.faults and POOLER is not None:
            self.pooler = Pooler(stage.proxy().url, system.home)
            self.proxies[-1].aim(self.pooler.url)
            stage.leave_alone(self.proxies[-1])
        self.workers = [self._start(n) for n in range(tier.workers)]

    def _start(self, n: int) -> Worker:
        return self.system.worker(n, self._urls[n], self.producing.url)

    def restart(self, n: int) -> None:
        """A new worker in the place of one that has ended."""
        self.gone.append(self.workers[n])
        self.workers[n].end()
        self.workers[n] = self._start(n)
        self._busy.discard(n)

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._later, (time.monotonic() + seconds, self._count, act))

    def run(self, tell: Callable[[str], None]) -> None:
        """Carry out the schedule, and set right what was broken."""
        began = told = revived = time.monotonic()
        waiting = list(reversed(self.planned))
        while waiting or self._later or time.monotonic() < began + self.tier.seconds:
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            if waiting and now - began >= waiting[-1].at:
                fault = waiting.pop()
                if not self._do(fault):
                    self._in(0.3, lambda fault=fault: waiting.append(fault))
            if now - revived >= 1:
                revived = now
                self.revive()
            if now - told >= 5:
                told = now
                tell(
                    f"{now - began:5.0f} s  {len(self.faults)} faults, {len(waiting)} to come"
                )
            time.sleep(0.01)

    def _do(self, fault: Planned) -> bool:
        """Do it; False when it has to wait."""
        if fault.kind == "hold_transaction" and self._has_old():
            return False
        act = getattr(self, fault.kind)
        if fault.kind in FREE:
            act(fault.chance)
            return True
        for i in range(self.tier.workers):
            n = (fault.worker + i) % self.tier.workers
            worker = self.workers[n]
            is_up = n not in self._busy and worker.process.poll() is None
            if is_up and (worker.runners or not fault.kind.endswith("_runner")):
                act(n, fault.chance)
                return True
        return False

    def _note(self, kind: str, pid: int, since: float | None = None) -> None:
        now = time.monotonic()
        self.faults.append(Fault(kind, pid, since or now, now))

    # ---------------------------------------------------------------------- workers

    def kill_runner(self, n: int, chance: float) -> None:
        self._kill("kill_runner", self._one_runner(n, chance))

    def kill_supervisor(self, n: int, chance: float) -> None:
        self._busy.add(n)
        self._kill("kill_supervisor", [self.workers[n].pid])
        self._in(0.1 + chance, lambda: self.restart(n))

    def kill_group(self, n: int, chance: float) -> None:
        self._busy.add(n)
        self._kill("kill_group", [self.workers[n].pid, *self.workers[n].runners])
        self._in(0.1 + chance, lambda: self.restart(n))

    def _kill(self, kind: str, pids: list[int]) -> None:
        since = time.monotonic()
        _signal(pids, signal.SIGKILL)
        for pid in pids:
            self._note(kind, pid, since)

    def pause_group(self, n: int, chance: float) -> None:
        self._pause(
            "pause_group", n, [self.workers[n].pid, *self.workers[n].runners], chance
        )

    def pause_supervisor(self, n: int, chance: float) -> None:
        self._pause("pause_supervisor", n, [self.workers[n].pid], chance)

    def pause_runner(self, n: int, chance: float) -> None:
        self._pause("pause_runner", n, self._one_runner(n, chance), chance)

    def _one_runner(self, n: int, chance: float) -> list[int]:
        runners = self.workers[n].runners
        which = int(len(runners) * chance)
        return runners[which : which + 1]  # none, when they have just ended

    def _pause(self, kind: str, n: int, pids: list[int], chance: float) -> None:
        self._busy.add(n)
        since = time.monotonic()
        _signal(pids, signal.SIGSTOP)

        def resume() -> None:
            _signal(pids, signal.SIGCONT)
            self._busy.discard(n)
            for pid in pids:
                self._note(kind, pid, since)

        self._in(self.system.ttl * (1.1 + 0.9 * chance), resume)

    def term(self, n: int, chance: float) -> None:
        worker, began = self.workers[n], time.monotonic()
        self._busy.add(n)
        worker.signal(signal.SIGTERM)

        def look() -> None:
            took = time.monotonic() - began
            is_there = worker.process.poll() is None
            if is_there and took < DRAIN + 10:
                self._in(0.02, look)
                return
            self._note("term", worker.pid, began)
            self.slowest_term = max(self.slowest_term, took)
            if is_there:
                self.bad_terms.append(f"still there after {took:.1f} s: {worker.log}")
            self.restart(n)

        look()

    # ---------------------------------------------------------------------- database

    def terminate(self, chance: float) -> None:
        with contextlib.suppress(psycopg.Error), self.stage.connect() as conn:
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = 'chaos' and application_name <> 'monkey'"
                " and backend_type = 'client backend'"
            )
            self._note("terminate", EVERYBODY)

    def immediate_stop(self, chance: float) -> None:
        self._outage("immediate_stop", self.stage.stop_at_once)

    def kill_postmaster(self, chance: float) -> None:
        self._outage("kill_postmaster", self.stage.kill_postmaster)

    def kill_backend(self, chance: float) -> None:
        self._outage("kill_backend", self.stage.kill_backend)

    def fail_over(self, chance: float) -> None:
        self._outage("fail_over", self.stage.fail_over)

    def split(self, chance: float) -> None:
        seconds = self.system.ttl * (0.5 + chance)
        self._outage("split", lambda: self.stage.split(seconds))

    def fill_disk(self, chance: float) -> None:
        if is_small():
            self._outage("fill_disk", lambda: self.stage.fill_disk(3.0))
        else:
            self.left_out["fill_disk"] = "only root may mount a small file system"

    def read_only(self, chance: float) -> None:
        self._outage("read_only", lambda: self.stage.read_only(1.0))

    def _outage(self, kind: str, act: Callable[[], None]) -> None:
        since = time.monotonic()
        act()
        self._note(kind, EVERYBODY, since)

    # ---------------------------------------------------------------------- network

    def cut(self, n: int, chance: float) -> None:
        self._cut("cut", self.proxies[n], chance)

    def cut_producer(self, chance: float) -> None:
        self._cut("cut_producer", self.producing, chance)

    def _cut(self, kind: str, proxy: Proxy, chance: float) -> None:
        proxy.cut_passes = int(chance * 1000) % 2 == 0
        proxy.cut_in = 1 + int(chance * 20)
        self._note(kind, EVERYBODY)

    def cut_claim(self, n: int, chance: float) -> None:
        self.proxies[n].cut_after = CLAIMING
        self._note("cut_claim", EVERYBODY)

    def cut_settle(self, n: int, chance: float) -> None:
        self.proxies[n].cut_after = SETTLING
        self._note("cut_settle", EVERYBODY)

    def black_hole(self, n: int, chance: float) -> None:
        self._busy.add(n)
        since, pid, proxy = time.monotonic(), self.workers[n].pid, self.proxies[n]
        proxy.swallow = True

        def mend() -> None:
            proxy.refuse = True  # what was swallowed is missing in these streams
            proxy.swallow = False
            self._in(0.2, lambda: setattr(proxy, "refuse", False))
            self._busy.discard(n)
            self._note("black_hole", pid, since)

        self._in(self.system.ttl * (0.3 + 1.7 * chance), mend)

    def kill_pooler(self, chance: float) -> None:
        if self.pooler is None:
            self.left_out["kill_pooler"] = "no pgbouncer on this machine"
        else:
            self.pooler.kill()
            self._note("kill_pooler", EVERYBODY)

    # ---------------------------------------------------------------------- and the rest

    def step_clock(self, chance: float) -> None:
        if self.system.clock is None:
            self.left_out["step_clock"] = "no C compiler on this machine"
        else:
            self.system.clock.step(CLOCKS[int(chance * len(CLOCKS))])
            self._note("step_clock", EVERYBODY)

    def kill_redrive(self, chance: float) -> None:
        self.system.redrive(self.stage.url, 0.5 + chance)
        self._note("kill_redrive", EVERYBODY)

    def hold_transaction(self, chance: float) -> None:
        n = FIRST + 10 * len(self.holds)
        self.holds.append(self.system.hold(self.stage.url, n, chance, self._note))
        self.holds[-1].start()
        self._note("hold_transaction", EVERYBODY)

    def _has_old(self) -> bool:
        """Return whether a worker of the version before runs, which may wait for locks."""
        return self.system.old is not None and any(
            map(self.system.is_old, self.workers)
        )

    def end_holds(self) -> set[int]:
        """Wait until no transaction is held. Return the jobs that the holds have added."""
        for hold in self.holds:
            while hold.is_alive():
                self.revive()
                hold.join(1)
        return {n for hold in self.holds for n in hold.acknowledged}

    def upgrade(self, chance: float) -> None:
        if self.system.old is None:
            self.left_out["upgrade"] = "no release before this one here"
        else:
            self._outage("upgrade", lambda: self.system.upgrade(self.stage.url))
            self._in(3, self._roll_out)

    def _roll_out(self) -> None:
        """Restart the workers of the old version, one after the other."""
        old = [n for n, worker in enumerate(self.workers) if self.system.is_old(worker)]
        for n in old:
            if n not in self._busy:
                self.term(n, 0)
                break
        if old:
            self._in(2, self._roll_out)
        else:
            self._in(2, self.system.old_is_gone)

    def crashed(self) -> list[str]:
        """Workers that ended though nobody ended them."""
        ours = {"kill_supervisor", "kill_group", "term"}
        wanted = {fault.pid for fault in self.faults if fault.kind in ours}
        return [
            f"exit {w.process.returncode}: {w.log.read_text()[-2000:]}"
            for w in (*self.gone, *self.workers)
            if w.process.poll() is not None and w.pid not in wanted
        ]

    def calm(self) -> None:
        """Nothing breaks from here on."""
        for proxy in (*self.proxies, self.producing):
            proxy.cut_after, proxy.cut_in = (), 0

    def revive(self) -> None:
        """Restart the processes that ended by themselves, as Kubernetes does."""
        for n, worker in enumerate(self.workers):
            if n not in self._busy and worker.process.poll() is not None:
                self.restart(n)

    def end(self) -> None:
        """End everything."""
        for worker in (*self.gone, *self.workers):
            worker.end()
        if self.pooler is not None:
            self.pooler.close()


FREE = {
    "terminate",
    "immediate_stop",
    "kill_postmaster",
    "kill_backend",
    "fail_over",
    "split",
    "fill_disk",
    "read_only",
    "cut_producer",
    "kill_pooler",
    "step_clock",
    "hold_transaction",
    "kill_redrive",
    "upgrade",
}
"""Faults that need no worker to be up."""


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@dataclass
class Outcome:
    """A run: its faults and its outcome."""

    system: str
    tier: str
    seed: int
    seconds: float
    verdict: Verdict
    faults: Counter[str]
    cuts: int
    left_out: dict[str, str]
    slowest_term: float
    settled_in: float
    dead_by_old: int
    held: int
    """Jobs that the held transactions added."""
    waits: Waits
    failures: dict[str, list[Any]] = field(default_factory=dict)
    evidence: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    """Of each failure's first jobs: what their handlers wrote, what we did to their processes, and
    what the queue has on record.
    """

    def told(self) -> str:
        """The failures, for people."""
        lines = [
            f"{name}: {found[:20]}" for name, found in self.failures.items() if found
        ]
        lines += [
            " ".join(map(str, entry))
            for runs in self.evidence.values()
            for entry in runs
        ]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The figures."""
        seen = self.verdict
        recoveries = seen.recoveries
        return {
            "system": self.system,
            "tier": self.tier,
            "seed": self.seed,
            "seconds": round(self.seconds),
            "jobs": seen.jobs,
            "completed": seen.completed,
            "dead": seen.dead,
            "faults": dict(sorted(self.faults.items())),
            "connections_cut": self.cuts,
            "left_out": self.left_out,
            "duplicates": seen.duplicates,
            "explained": dict(seen.explained.most_common()),
            "ran_again_after_return": seen.ran_again_after_return,
            **{name: len(found) for name, found in self.failures.items()},
            "accused": len(seen.accused),
            "innocents_dead_by_old_version": self.dead_by_old,
            "added_by_holds": self.held,
            "held_jobs": len(self.waits.calm),
            "held_wait_p50": _quantile(self.waits.calm, 0.5, 3),
            "held_wait_max": _quantile(self.waits.calm, 1.0, 3),
            "held_wait_max_with_other_faults": _quantile(self.waits.held, 1.0, 3),
            "free_wait_max_with_other_faults": _quantile(self.waits.free, 1.0, 3),
            "recovery_p50": _quantile(recoveries, 0.5),
            "recovery_max": _quantile(recoveries, 1.0),
            "slowest_term": round(self.slowest_term, 1),
            "settled_in": round(self.settled_in, 1),
        }


def _quantile(values: list[float], share: float, digits: int = 1) -> float | None:
    if not values:
        return None
    return round(values[min(len(values) - 1, int(len(values) * share))], digits)


def _of_job(n: int, facts: Facts) -> list[tuple[Any, ...]]:
    entries = facts.ledger.get(n, [])
    pids = {pid for entry in entries for pid in (entry.pid, entry.parent)}
    return [*entries, *(fault for fault in facts.faults if fault.pid in pids)]


@contextlib.contextmanager
def _ledger_home(keep: bool) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="redrive-ledger-"))
    try:
        yield home
    finally:
        if keep:
            print(f"ledger and logs: {home}", file=sys.stderr)
        else:
            subprocess.run(["rm", "-rf", str(home)], check=False)


def _nothing_left(stage: Servers, monkey: Monkey, tell: Callable[[str], None]) -> float:
    """Wait until nothing is left to do, or no job has ended for a while. Return the seconds."""
    began = moved = time.monotonic()
    left = sys.maxsize
    while time.monotonic() - moved < SETTLE_SECONDS:
        monkey.revive()
        asked = time.monotonic()
        with contextlib.suppress(psycopg.Error), stage.connect() as conn:
            before, left = left, _left(conn, monkey.system.live)
            if left == 0:
                break
            moved = asked if left < before else moved
            left = min(left, before)
        tell(f"{left} jobs are left")
        time.sleep(0.3 + 5 * (time.monotonic() - asked))
    return time.monotonic() - began


def _left(conn: psycopg.Connection[Any], live: LiteralString) -> int:
    (found,) = conn.execute(f"select count(*) from ({live}) as live").fetchone() or (0,)
    return found


def run(
    tier: Tier,
    seed: int,
    tell: Callable[[str], None],
    *,
    make: Callable[[Path, Tier], Any] = Redrive,
    keep: bool = False,
    record: Path | None = None,
) -> Outcome:
    """One run of a tier. `record`: a file for what the database did, which the model can judge."""
    with _ledger_home(keep) as home, servers(tier.disk_mb) as stage:
        system = make(home, tier)
        system.set_up(stage.url)
        if record is not None:
            with stage.connect() as conn:
                recorder.install(conn)
        offset = time.time() - time.monotonic()
        monkey = Monkey(system, stage, tier, plan(tier, seed))
        try:
            began = time.monotonic()
            producer = system.producer(monkey.producing.url, seed)
            producer.start()
            monkey.run(lambda line: tell(f"{line}, {len(producer.acknowledged)} jobs"))
            monkey.calm()
            while producer.is_alive():
                monkey.revive()
                producer.join(5)
                tell(f"calm, {len(producer.acknowledged)} jobs")
            held = monkey.end_holds()
            seconds = time.monotonic() - began
            settled_in = _nothing_left(stage, monkey, tell)
            with stage.connect() as conn:
                forgiven = system.dead_by_old(conn) - producer.doomed
                facts = Facts(
                    acknowledged=producer.acknowledged | held,
                    ledger=ledger.read(home),
                    done={n: at - offset for n, at in conn.execute(system.done)},
                    live={n for (n,) in conn.execute(system.live)},
                    dead={n for (n,) in conn.execute(system.dead)},
                    doomed=producer.doomed | forgiven,
                    faults=monkey.faults,
                    silences=system.silences([*monkey.gone, *monkey.workers]),
                )
                waited = waits(
                    monkey.holds, producer.added, facts.ledger, monkey.faults
                )
                more = system.failures(conn)
                if record is not None:
                    recorder.keep(conn, record)
                verdict = judge(facts)
                evidence = {
                    n: [*_of_job(n, facts), *system.recorded(conn, n)]
                    for ns in verdict.failures().values()
                    for n in ns[:5]
                }
            failures = {
                **verdict.failures(),
                **more,
                "crashed": monkey.crashed(),
                "bad_terms": monkey.bad_terms,
            }
            # several processes of one worker are one fault
            done = Counter(
                kind for kind, _ in {(f.kind, f.since) for f in monkey.faults}
            )
            cuts = sum(p.cuts for p in (*monkey.proxies, monkey.producing))
            return Outcome(
                system.name,
                tier.name,
                seed,
                seconds,
                verdict,
                done,
                cuts,
                monkey.left_out,
                monkey.slowest_term,
                settled_in,
                len(forgiven),
                len(held),
                waited,
                failures,
                evidence,
            )
        finally:
            monkey.end()
