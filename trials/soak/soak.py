"""Load of jobs that behave beside jobs that do not, and the account of the good ones.

There are three groups of workers with the same good load. `gentle` also runs handlers
that leave things behind or spoil their process. It keeps its runner, unless a handler
outlives its timeout: a pool of processes does not end after another handler has stopped
the clock. `harsh` runs some that end, block or break their runner, too. `control` runs
nothing else: how late its jobs are tells what the machine itself is to blame for.

A process that runs no misbehaving handler must not grow: that is each supervisor, and
the runner of `control`. In another runner, handlers use up memory, because
one of them turns the garbage collection off, and they leave pipes open. The code of a
runner opens no pipe. All its other descriptors are judged.
"""

import contextlib
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from redrive import enqueue
from redrive.database.embedded import NEWEST
from tests.flow.breaking import BREAKS
from tests.flow.harness import Entry, Worker, memory_kib
from tests.flow.parents import CHILDREN, SPOILS
from tests.postgres import Database, embedded

HANDLERS = "trials.soak.handlers:jobs"
LATE_SECONDS = 5.0
MACHINE_SECONDS = 1.0
"""The machine is to blame if the control's jobs, or this program, were as late as this."""
NEAR_SECONDS = 15.0
"""How near to each other in time."""
SAMPLE_SECONDS, SAY_SECONDS = 30.0, 300.0
WARM_UP = 0.15
"""Share of the run after which memory and descriptors must stay as they are."""
GROWN_KIB, GROWN_DESCRIPTORS = 16 << 10, 8
OURS = frozenset(
    {"gentle supervisor", "harsh supervisor", "control supervisor", "control runner"}
)
"""Processes without a handler that misbehaves."""
DRAIN_SECONDS = 180.0

GOOD: dict[str, tuple[float, float]] = {
    "good.async": (0.0, 0.2),
    "good.sync": (0.0, 0.2),
    "good.retry": (0.0, 0.0),
}
"""Kinds, and the range of seconds that their jobs take; some take longer."""
LONG = 2.0
STARTS = Counter({"good.async": 1, "good.sync": 1, "good.retry": 2})

Bad = tuple[str, dict[str, Any]]
GENTLE: list[Bad] = [
    *((f"spoil.{how}", {"what": what}) for what in SPOILS for how in ("sync", "async")),
    *((f"context.{how}", {}) for how in ("sync", "async")),
    *((f"fork.{how}", {}) for how in ("sync", "raises", "async", "waits")),
    *((f"returns.{how}", {}) for how in ("awaitable", "coroutine", "task", "future")),
    *((f"yields.{how}", {}) for how in ("sync", "async")),
    *((f"raises.{how}", {}) for how in ("slow", "classless")),
    *(("start", {"how": how}) for how in CHILDREN),
    ("leave.task", {}),
    ("leave.thread", {}),
    ("cancel.later", {}),
    ("cancel.prepare", {}),
    ("cancel.all", {}),
    ("cancel.all-from-thread", {}),
    ("cancel.as-it-ends", {}),
    ("orphan", {}),
    ("plain.hangs", {}),
    ("plain.fails", {}),
    ("break", {"how": "generator-exit"}),
]
HARSH: list[Bad] = [
    *(("break", {"how": how}) for how in BREAKS),
    *(("bad.block", {"seconds": seconds}) for seconds in (0.5, 2, 4, 8, 16)),
    ("thread.refuse", {"times": 3}),
    ("clock", {}),
    ("close", {}),
    ("channel", {}),
]
ENDS_NEIGHBOURS = frozenset({"clock", "close", "channel"})
"""Kinds after which the jobs that run in their process cannot end, or are killed with it."""


class Sample(NamedTuple):
    """What a process holds `at` this many seconds after the begin. `other`: descriptors."""

    at: float
    kib: int
    pipes: int
    other: int


@dataclass(slots=True)
class Group:
    """Workers, the queue that they run, and what else there is in it."""

    name: str
    database: Database
    workers: list[Worker]
    bad: list[Bad]
    bad_every: float

    def samples(self, at: float) -> Iterator[tuple[str, int, Sample]]:
        """Yield name and pid of each process that lasts, and what it holds."""
        for worker in self.workers:
            for pid, name in [
                (worker.pid, "supervisor"),
                *((r, "runner") for r in worker.runners),
            ]:
                with contextlib.suppress(OSError):
                    held = Sample(at, memory_kib(pid, "Rss"), *_descriptors(pid))
                    yield f"{self.name} {name}", pid, held


@dataclass(slots=True)
class Sent:
    """A job that behaves."""

    group: str
    kind: str
    due: float
    seconds: float


@dataclass(slots=True)
class Verdict:
    """What is wrong, and the figures."""

    seed: int
    minutes: float
    lost: list[str] = field(default_factory=list[str])
    repeated: list[str] = field(default_factory=list[str])
    late: list[str] = field(default_factory=list[str])
    unclean: list[str] = field(default_factory=list[str])
    grown: list[str] = field(default_factory=list[str])
    unsettled: list[str] = field(default_factory=list[str])
    figures: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_good(self) -> bool:
        """Return True if nothing is wrong."""
        wrong = (
            self.lost,
            self.repeated,
            self.late,
            self.unclean,
            self.grown,
            self.unsettled,
        )
        return not any(wrong)

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return asdict(self)


class Soak:
    """One run. `tell` gets a line now and then."""

    def __init__(
        self, home: Path, seed: int, minutes: float, tell: Callable[[str], None]
    ) -> None:
        self._home = home
        self._random = random.Random(seed)
        self._tell = tell
        self._groups: list[Group] = []
        self._sent: dict[tuple[str, int], Sent] = {}
        self._bad: dict[tuple[str, int], str] = {}
        self._samples: dict[tuple[str, int], list[Sample]] = {}
        self._stalls: list[tuple[float, float]] = []
        self._loads: list[tuple[float, float]] = []
        self._seconds = minutes * 60
        self.verdict = Verdict(seed, minutes)

    def run(self, rate: float, bad_every: tuple[float, float]) -> Verdict:
        """Run for the minutes, wait for the rest, and return the verdict."""
        with ExitStack() as stack:
            server = stack.enter_context(embedded(NEWEST, autovacuum="on"))
            databases = [stack.enter_context(server.database()) for _ in range(3)]
            gentle, harsh, control = databases
            self._add(stack, "gentle", gentle, 1, GENTLE, bad_every[0])
            self._add(stack, "harsh", harsh, 2, HARSH + GENTLE[::7], bad_every[1])
            self._add(stack, "control", control, 1, [], float("inf"))
            for group in self._groups:
                for worker in group.workers:
                    worker.wait_ready()

            self._began = time.monotonic()
            self._load(rate)
            self._drain()
            self._judge()
            self._stop()
        return self.verdict

    def _add(
        self,
        stack: ExitStack,
        name: str,
        database: Database,
        count: int,
        bad: list[Bad],
        every: float,
    ) -> None:
        home = self._home / name
        home.mkdir()
        workers: list[Worker] = []
        for _ in range(count):
            worker = Worker(
                database.url,
                home,
                "--slots",
                "8",
                "--runners",
                str(count),
                handlers=HANDLERS,
            )
            stack.callback(worker.end)
            workers.append(worker)
        self._groups.append(Group(name, database, workers, bad, every))

    # ------------------------------------------------------------------ load

    def _load(self, rate: float) -> None:
        """Enqueue good jobs at `rate` per second and group, and each group's bad ones."""
        end = self._began + self._seconds
        next_good, next_sample, told = self._began, self._began, self._began
        next_bad = {group.name: self._began + 5 for group in self._groups}
        looked = time.monotonic()
        while (now := time.monotonic()) < end:
            if now - looked > MACHINE_SECONDS:
                self._stalls.append((now, now - looked))
            looked = now

            while next_good <= now:
                self._send_good()
                next_good += self._random.expovariate(rate)
            for group in self._groups:
                if group.bad and next_bad[group.name] <= now:
                    kind, payload = self._random.choice(group.bad)
                    job = enqueue(group.database.conn, kind, payload)
                    self._bad[group.name, job] = kind
                    next_bad[group.name] = now + self._random.expovariate(
                        1 / group.bad_every
                    )
            if next_sample <= now:
                self._sample(now)
                next_sample = now + SAMPLE_SECONDS
            if now - told > SAY_SECONDS:
                self._say(now)
                told = looked = time.monotonic()
            time.sleep(0.02)

    def _send_good(self) -> None:
        kind = self._random.choice(sorted(GOOD))
        seconds = self._random.uniform(*GOOD[kind])
        if self._random.random() < 0.05:
            seconds *= LONG / 0.2
        for group in self._groups:
            job = enqueue(group.database.conn, kind, {"seconds": seconds})
            self._sent[group.name, job] = Sent(
                group.name, kind, time.monotonic(), seconds
            )

    def _sample(self, now: float) -> None:
        self._loads.append((now, os.getloadavg()[0]))
        for group in self._groups:
            for name, pid, sample in group.samples(now - self._began):
                self._samples.setdefault((name, pid), []).append(sample)

    def _say(self, now: float) -> None:
        late = {
            name: round(max(found, default=0.0), 2)
            for name, found in self._lateness().items()
        }
        self._tell(
            f"{(now - self._began) / 60:.0f} min, {len(self._sent)} good and"
            f" {len(self._bad)} bad jobs, load {os.getloadavg()[0]:.1f}, latest {late}"
        )

    def _drain(self) -> None:
        """Wait until no job is left."""
        deadline = time.monotonic() + DRAIN_SECONDS
        for group in self._groups:
            while left := self._left(group):
                if time.monotonic() > deadline:
                    self.verdict.unsettled += [
                        f"{group.name} {kind} {job}" for job, kind in left[:20]
                    ]
                    break
                time.sleep(0.5)

    @staticmethod
    def _left(group: Group) -> list[tuple[int, str]]:
        return group.database.rows("select id, kind from redrive.jobs order by id")

    def _stop(self) -> None:
        for group in self._groups:
            for worker in group.workers:
                status, _ = worker.stop()
                if status:
                    self.verdict.unsettled.append(
                        f"{group.name} worker ended with {status}"
                    )

    # ------------------------------------------------------------------ account

    def _entries(self, group: str, prefix: str) -> list[Entry]:
        entries: list[Entry] = []
        for path in (self._home / group).glob(f"{prefix}-*"):
            for line in path.read_text().splitlines():
                phase, job, delivery, attempt, pid, at = line.split()
                entries.append(
                    Entry(
                        phase,
                        int(job),
                        int(delivery),
                        int(attempt),
                        int(pid),
                        float(at),
                    )
                )
        return sorted(entries, key=lambda entry: entry.at)

    def _starts(self, group: str) -> dict[int, list[Entry]]:
        found: dict[int, list[Entry]] = {}
        for entry in self._entries(group, "good"):
            found.setdefault(entry.job, []).append(entry)
        return found

    def _lateness(self) -> dict[str, list[float]]:
        """Return by group how long after it was enqueued each job began."""
        found: dict[str, list[float]] = {}
        for group in self._groups:
            starts = self._starts(group.name)
            found[group.name] = [
                max(0.0, entries[0].at - sent.due)
                for (name, job), sent in self._sent.items()
                if name == group.name and (entries := starts.get(job))
            ]
        return found

    def _judge(self) -> None:
        slow = list(self._stalls)
        for group in reversed(self._groups):  # the control comes first
            entries = self._starts(group.name)
            killers, outlived = self._killers(group), _outlived(group)
            dead = {
                job
                for (job,) in group.database.rows("select id from redrive.dead_letters")
            }
            for (name, job), sent in self._sent.items():
                if name == group.name:
                    self._judge_one(
                        job, sent, entries.get(job, []), killers, outlived, dead
                    )
                    lateness = _lateness_of(sent, entries.get(job, []))
                    if group.name == "control" and lateness > MACHINE_SECONDS:
                        slow.append((sent.due, lateness))
            if group.name != "control":
                self._judge_lateness(group.name, entries, slow)

        self._judge_growth()
        self.verdict.figures |= {
            "good": dict(Counter(sent.group for sent in self._sent.values())),
            "bad": dict(
                Counter(f"{name} {kind}" for (name, _), kind in self._bad.items())
            ),
            "lateness": {
                name: _shares(found) for name, found in self._lateness().items()
            },
            "load": _shares([load for _, load in self._loads]),
            "machine_stalls": len(slow),
        }

    def _killers(self, group: Group) -> set[int]:
        """Return the processes in which a job has run that ends its neighbours."""
        return {
            entry.pid
            for entry in self._entries(group.name, "ledger")
            if self._bad.get((group.name, entry.job)) in ENDS_NEIGHBOURS
        }

    def _judge_one(
        self,
        job: int,
        sent: Sent,
        entries: list[Entry],
        killers: set[int],
        outlived: set[int],
        dead: set[int],
    ) -> None:
        name = f"{sent.group} {sent.kind} {job}"
        phases = [entry.phase for entry in entries]
        if "end" not in phases or job in dead:
            self.verdict.lost.append(f"{name}: {phases}")
        if unclean := {"context", "task"}.intersection(phases):
            self.verdict.unclean.append(f"{name}: {unclean}")

        starts = [entry for entry in entries if entry.phase == "start"]
        again = len(starts) - STARTS[sent.kind]
        if again <= 0:
            return
        # The reason is noted in the process of an earlier start.
        cancelled = phases.count("cancelled")
        killed = sum(
            entry.pid in killers
            # A job that outlived its own timeout has failed, so its attempt counts.
            or (entry.pid in outlived and entry.attempt == after.attempt)
            for entry, after in pairwise(starts)
        )
        if cancelled:
            self._count("cancelled by another job", sent.group)
        if killed:
            self._count("killed with its process", sent.group)
        if again > cancelled + killed:
            self.verdict.repeated.append(
                f"{name}: {[(e.phase, e.pid, e.delivery, e.attempt) for e in entries]}"
            )

    def _count(self, what: str, group: str) -> None:
        found = self.verdict.figures.setdefault(what, {})
        found[group] = found.get(group, 0) + 1

    def _judge_lateness(
        self,
        group: str,
        entries: dict[int, list[Entry]],
        slow: list[tuple[float, float]],
    ) -> None:
        for (name, job), sent in self._sent.items():
            if name != group:
                continue
            lateness = _lateness_of(sent, entries.get(job, []))
            if lateness <= LATE_SECONDS:
                continue
            near = [
                late
                for at, late in slow
                if abs(at - sent.due) < NEAR_SECONDS + lateness
            ]
            if lateness - max(near, default=0.0) <= LATE_SECONDS:
                self._count("late with the machine", group)
            else:
                at = sent.due - self._began
                load = min(self._loads, key=lambda each: abs(each[0] - sent.due))[1]
                self.verdict.late.append(
                    f"{group} {sent.kind} {job} at {at:.0f} s: {lateness:.1f} s;"
                    f" the machine: {max(near, default=0.0):.1f} s, load {load:.1f}"
                )

    def _judge_growth(self) -> None:
        """Compare what processes had after the warm-up with what they have at the end."""
        figures: dict[str, Any] = {}
        for (name, pid), samples in self._samples.items():
            if samples[-1].at - samples[0].at < self._seconds / 2:
                continue  # a runner that was replaced
            kept = [
                each for each in samples if each.at > self._seconds * WARM_UP
            ] or samples
            third = max(1, len(kept) // 3)
            first, last = kept[:third], kept[-third:]
            found = {
                what: [
                    statistics.median(getattr(each, what) for each in part)
                    for part in (first, last)
                ]
                for what in ("kib", "pipes", "other")
            }
            figures[f"{name} {pid}"] = {**found, "samples": len(samples)}
            grown = {what: after - before for what, (before, after) in found.items()}
            descriptors = grown["other"]
            if name in OURS:
                descriptors += grown["pipes"]
            is_larger = name in OURS and grown["kib"] > GROWN_KIB
            if is_larger or descriptors > GROWN_DESCRIPTORS:
                self.verdict.grown.append(f"{name} {pid}: {found}")
        self.verdict.figures["growth"] = figures
        self.verdict.figures["runners seen"] = dict(
            Counter(name for name, _ in self._samples if name.endswith("runner"))
        )


def _descriptors(pid: int) -> tuple[int, int]:
    """Return how many pipes and other descriptors a process has open."""
    kinds = Counter[bool]()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            kinds[str(entry.readlink()).startswith("pipe:")] += 1
    return kinds[True], kinds[False]


def _outlived(group: Group) -> set[int]:
    """Return the runners that were killed for a job that outlived its timeout."""
    return {
        event["pid"]
        for worker in group.workers
        for event in worker.events()
        if event["event"] == "runner died" and event["cause"] == "deadline"
    }


def _lateness_of(sent: Sent, entries: list[Entry]) -> float:
    return entries[0].at - sent.due if entries else 0.0


def _shares(found: list[float]) -> dict[str, float]:
    if not found:
        return {}
    found = sorted(found)
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    shares = {
        name: round(found[int(share * (len(found) - 1))], 3)
        for name, share in at.items()
    }
    return {**shares, "max": round(found[-1], 3), "count": len(found)}
