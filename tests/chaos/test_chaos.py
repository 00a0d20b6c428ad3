"""Kill, stop, crash, cut and restart everything, again and again, and count what became of every
job.

REDRIVE_CHAOS_SECONDS   how long faults are injected (45)
REDRIVE_CHAOS_SEED      repeat a run's choices

What a zero means (rule of three, 95 %): with none lost among n jobs, less than 3 / n of jobs are.
"""

import contextlib
import heapq
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import enqueue
from redrive.database.connect import connect
from redrive.database.embedded import EmbeddedPostgres
from tests.chaos.verdict import Fault, Verdict, judge
from tests.flow.harness import Worker, wait_for
from tests.flow.proxy import CLAIMING, SETTLING, Proxy
from tests.postgres import Session

SECONDS = float(os.environ.get("REDRIVE_CHAOS_SECONDS", "45"))
SEED = int(os.environ.get("REDRIVE_CHAOS_SEED", time.time_ns() % 1_000_000))
WORKERS = 3
TTL = 3.0
DRAIN = 4.0
JOBS_PER_SECOND = 25.0
SETTLE_SECONDS = 90.0

# What the database itself saw, apart from Redrive's own tables.
WITNESS = """
    create table effects (job bigint not null);
    create table admitted (job bigint primary key, kind text not null);
    create table ended (job bigint not null, deliveries int not null, at timestamptz not null);
    create table moves (n bigint generated always as identity primary key,
                        job bigint not null, deliveries int not null,
                        worker_before int, worker_after int,
                        at timestamptz not null default clock_timestamp());
    create function witness() returns trigger language plpgsql security definer as $$
    begin
        if tg_op = 'INSERT' then
            insert into public.admitted values (new.id, new.kind) on conflict do nothing;
        elsif tg_op = 'DELETE' then
            insert into public.ended values (old.id, old.deliveries, clock_timestamp());
        elsif old.worker is distinct from new.worker then
            insert into public.moves (job, deliveries, worker_before, worker_after)
            values (new.id, new.deliveries, old.worker, new.worker);
        end if;
        return null;
    end $$;
    create trigger witness after insert or update or delete on redrive.jobs
        for each row execute function witness();
    grant all on all tables in schema public to public;
"""


class Producer(threading.Thread):
    """Enqueues with idempotency keys, repeats what it does not know the end of, and remembers what
    was committed.
    """

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(name="producer", daemon=True)
        self._url = url
        self._dice = random.Random(seed)
        self.stopping = threading.Event()
        self.acknowledged: list[int] = []

    def run(self) -> None:
        """Until told to stop."""
        conn: psycopg.Connection[Any] | None = None
        n = 0
        while not self.stopping.is_set():
            n += 1
            kind, payload, options = self._job()
            while True:
                try:
                    conn = conn or connect(self._url, name="producer")
                    with conn.transaction():
                        job = enqueue(conn, kind, payload, idempotency_key=f"{SEED}-{n}", **options)
                    self.acknowledged.append(job)
                    break
                except psycopg.Error:
                    if conn is not None:
                        conn.close()
                    conn = None
                    self.stopping.wait(0.2)
            self.stopping.wait(self._dice.expovariate(JOBS_PER_SECOND))
        if conn is not None:
            conn.close()

    def _job(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        dice = self._dice
        kind = dice.choices(
            ["chaos.sync", "chaos.async", "chaos.fails", "chaos.effect", "chaos.poison"],
            [30, 45, 14, 10, 1],
        )[0]
        seconds = dice.choice([0.0, 0.0, 0.01, 0.05, 0.2, 0.2, 1.0, 2.5])
        payload = (
            {"times": dice.randint(1, 3)}
            if kind == "chaos.fails"
            else {"seconds": min(seconds, 0.5) if kind == "chaos.effect" else seconds}
        )
        options = (
            {"ordering_key": f"key-{dice.randint(1, 5)}"}
            if dice.random() < 0.1 and kind != "chaos.poison"
            else {}
        )
        return kind, payload, options


class Monkey:
    """The workers, and everything that is done to them."""

    def __init__(self, postgres: EmbeddedPostgres, home: Path) -> None:
        self.postgres = postgres
        self.home = home
        self.url = postgres.url("chaos")
        self.dice = random.Random(SEED)
        self.proxies = [Proxy(self.url) for _ in range(WORKERS)]
        self.workers = [self._start(n) for n in range(WORKERS)]
        self.gone: list[Worker] = []
        self.faults: list[Fault] = []
        self.slowest_term = 0.0
        self.bad_terms: list[str] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._crash_after = time.monotonic() + 5
        self._count = 0

    def _start(self, n: int) -> Worker:
        return Worker(
            self.proxies[n].url,
            self.home,
            *("--slots", "4", "--runners", "2"),
            handlers="tests.chaos.handlers:jobs",
            redrive_heartbeat_ttl=TTL,
            redrive_drain_timeout=DRAIN,
            redrive_http_port=0,
            redrive_test_url=self.url,
        )

    def _restart(self, n: int) -> None:
        self.gone.append(self.workers[n])
        self.workers[n] = self._start(n)

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._later, (time.monotonic() + seconds, self._count, act))

    def _fault(self, kind: str, pid: int) -> None:
        self.faults.append(Fault(kind, pid, time.time()))

    def run(self, seconds: float) -> None:
        """Break something about twice a second."""
        until = time.monotonic() + seconds
        next_at = time.monotonic() + 2
        while time.monotonic() < until or self._later:
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            if now >= next_at and now < until:
                self._break_something()
                next_at = now + self.dice.uniform(0.2, 0.9)
            time.sleep(0.02)

    def _break_something(self) -> None:
        n = self.dice.randrange(WORKERS)
        act = self.dice.choices(
            [
                self.kill_runner,
                self.kill_supervisor,
                self.pause,
                self.crash,
                self.terminate,
                self.cut,
                self.term,
            ],
            [8, 3, 2, 2, 3, 8, 2],
        )[0]
        if self.workers[n].process.poll() is None and self.workers[n].pid not in self._paused():
            act(n)

    def _paused(self) -> set[int]:
        stopped: set[int] = set()
        for fault in self.faults:
            if fault.kind == "pause":
                stopped.add(fault.pid)
            elif fault.kind == "resume":
                stopped.discard(fault.pid)
        return stopped

    def kill_runner(self, n: int) -> None:
        """kill -9 of one runner."""
        runners = self.workers[n].runners
        if runners:
            pid = self.dice.choice(runners)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self._fault("kill", pid)

    def kill_supervisor(self, n: int) -> None:
        """kill -9 of a supervisor; a new worker takes its place."""
        worker = self.workers[n]
        self._fault("kill_supervisor", worker.pid)
        worker.process.kill()
        worker.process.wait()
        self._in(self.dice.uniform(0.1, 1.0), lambda: self._restart(n))

    def pause(self, n: int) -> None:
        """Freeze a whole worker for longer than its ttl, as a host that hangs does."""
        worker = self.workers[n]
        pids = [worker.pid, *worker.runners]
        self._fault("pause", worker.pid)
        self._signal(pids, signal.SIGSTOP)

        def resume() -> None:
            self._signal(pids, signal.SIGCONT)
            self._fault("resume", worker.pid)

        self._in(TTL * self.dice.uniform(1.1, 2.0), resume)

    @staticmethod
    def _signal(pids: list[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def crash(self, n: int) -> None:
        """pg_ctl stop -m immediate, and start again."""
        del n
        if time.monotonic() < self._crash_after:
            return
        self._fault("crash", 0)
        self.postgres.stop("immediate")
        self.postgres.start()
        self._crash_after = time.monotonic() + 8

    def terminate(self, n: int) -> None:
        """End every connection of every worker, from the server's side."""
        del n
        with contextlib.suppress(psycopg.Error), connect(self.url, name="monkey") as conn:
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = 'chaos' and application_name like 'redrive%'"
            )
            self.faults.append(Fault("terminate", -1, time.time()))

    def cut(self, n: int) -> None:
        """Lose the answer to the worker's next settlement or claim."""
        self.proxies[n].cut_after = self.dice.choice([SETTLING, CLAIMING])

    def term(self, n: int) -> None:
        """A rolling restart."""
        worker = self.workers[n]
        began = time.monotonic()
        self._fault("term", worker.pid)
        worker.signal(signal.SIGTERM)

        def look() -> None:
            took = time.monotonic() - began
            if worker.process.poll() is None and took < DRAIN + 6:
                self._in(0.02, look)
                return
            self.slowest_term = max(self.slowest_term, took)
            if worker.process.poll() is None:
                self.bad_terms.append(
                    f"still there after {took:.1f} s: {worker.log.read_text()[-500:]}"
                )
                worker.process.kill()
            self._restart(n)

        look()

    def silences(self) -> list[Fault]:
        """When workers noticed by themselves that they were not heard."""
        return [
            Fault("silence", worker.pid, datetime.fromisoformat(event["time"]).timestamp())
            for worker in (*self.gone, *self.workers)
            for event in worker.events()
            if event["event"] == "declared lost"
        ]

    def crashed(self) -> list[str]:
        """Workers that ended though nobody ended them."""
        wanted = {fault.pid for fault in self.faults if fault.kind in {"kill_supervisor", "term"}}
        everybody = [*self.gone, *self.workers]
        return [
            f"exit {w.process.returncode}: {w.log.read_text()[-2000:]}"
            for w in everybody
            if w.process.poll() is not None and w.pid not in wanted
        ]

    def end(self) -> None:
        """End everything."""
        for worker in (*self.gone, *self.workers):
            worker.end()
        for proxy in self.proxies:
            proxy.stop()


@pytest.fixture
def monkey(postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[Monkey]:
    with connect(postgres.url("chaos")) as conn, conn.transaction():
        conn.execute(WITNESS)
    monkey = Monkey(postgres, tmp_path)
    try:
        yield monkey
    finally:
        monkey.end()


@pytest.mark.chaos
@pytest.mark.slow
def test_no_job_is_lost_stuck_or_run_twice_without_a_reason_whatever_breaks(
    monkey: Monkey, tmp_path: Path, capsys
):
    producer = Producer(monkey.url, SEED)
    producer.start()
    monkey.run(SECONDS)
    producer.stopping.set()
    producer.join()
    for proxy in monkey.proxies:
        proxy.cut_after = ()
    calm_at = time.monotonic()
    session = Session(connect(monkey.url, name="judge"))
    with contextlib.suppress(AssertionError):
        wait_for(
            lambda: session.value("select count(*) from redrive.jobs") == 0,
            SETTLE_SECONDS,
            every=0.2,
        )
    drained = time.monotonic() - calm_at
    verdict = judge(session, tmp_path, producer.acknowledged, monkey.faults, monkey.silences())
    left = session.rows(
        "select id, kind, worker, deliveries, attempt, losses, run_at, ordering_key"
        " from redrive.jobs limit 20"
    )
    died = session.rows(
        "select d.id, d.kind, d.reason, d.losses, d.attempts,"
        " (select array_agg(f.deliveries || ' ' || f.error_class || ': '"
        " || f.message || ' ' || f.detail::text order by f.deliveries)"
        " from redrive.failures f where f.job = d.id)"
        " from redrive.dead_letters d where d.id = any (%s)",
        verdict.innocents_dead,
    )
    session.close()
    with capsys.disabled():
        print("\n" + summary(monkey, verdict, drained))

    assert left == [], "stuck"
    assert verdict.lost == []
    assert verdict.unexplained == []
    assert verdict.stale_accepted == []
    assert verdict.overlapping_claims == []
    assert verdict.two_ends == []
    assert verdict.effects_twice == []
    print(*died, sep="\n")
    assert died == [], "innocent"
    assert monkey.crashed() == []
    assert monkey.bad_terms == []
    assert monkey.slowest_term < DRAIN + 2 or os.getloadavg()[0] > 4
    assert verdict.counters["enqueued"] == verdict.counters["completed"] + verdict.counters.get(
        "dead", 0
    )
    assert verdict.jobs > SECONDS * JOBS_PER_SECOND / 8, (
        "hardly anything ran: the test says nothing"
    )


def summary(monkey: Monkey, verdict: Verdict, drained: float) -> str:
    """One line for people, one of JSON."""
    done = Counter(fault.kind for fault in monkey.faults)
    cuts = sum(proxy.cuts for proxy in monkey.proxies)
    kills = done["kill"] + done["kill_supervisor"]
    figures = {
        "seed": SEED,
        "seconds": SECONDS,
        "kills": kills,
        "pauses": done["pause"],
        "crashes": done["crash"],
        "cuts": cuts,
        "terminations": done["terminate"],
        "terms": done["term"],
        "jobs": verdict.jobs,
        "completed": verdict.completed,
        "poison_dead": verdict.dead,
        "lost": len(verdict.lost),
        "stuck": len(verdict.stuck),
        "stale_accepted": len(verdict.stale_accepted),
        "overlapping_claims": len(verdict.overlapping_claims),
        "dup": verdict.duplicates,
        "explained": verdict.explained,
        "starved": verdict.starved,
        "recovery_p50": _quantile(verdict.recoveries, 0.5),
        "recovery_max": _quantile(verdict.recoveries, 1.0),
        "slowest_term": round(monkey.slowest_term, 2),
        "drained_in": round(drained, 1),
    }
    told = ["kills", "pauses", "crashes", "cuts", "terms", "jobs", "lost", "dup", "explained"]
    people = " ".join(f"{name}={figures[name]}" for name in told)
    return people + "\n" + json.dumps(figures)


def _quantile(values: list[float], share: float) -> float | None:
    return round(values[min(len(values) - 1, int(len(values) * share))], 2) if values else None
