"""What the ledger, the database and the list of faults say together."""

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.postgres import Session

CRASH_MARGIN = 1.0
"""Seconds before a crash from which a claim, committed relaxed, may have been forgotten."""


class Entry(NamedTuple):
    """One line of the ledger."""

    phase: str
    job: int
    delivery: int
    attempt: int
    pid: int
    supervisor: int
    at: float


class Fault(NamedTuple):
    """Something we did. `pid` 0 = to everybody."""

    kind: str
    pid: int
    at: float


@dataclass
class Verdict:
    """The figures of one run; all but the first two groups have to be 0."""

    jobs: int = 0
    completed: int = 0
    dead: int = 0
    duplicates: int = 0
    explained: int = 0
    starved: int = 0
    lost: list[int] = field(default_factory=list)
    stuck: list[int] = field(default_factory=list)
    stale_accepted: list[int] = field(default_factory=list)
    overlapping_claims: list[int] = field(default_factory=list)
    two_ends: list[int] = field(default_factory=list)
    effects_twice: list[int] = field(default_factory=list)
    innocents_dead: list[int] = field(default_factory=list)
    unexplained: list[tuple[Entry, Entry]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    recoveries: list[float] = field(default_factory=list)


def read_ledger(home: Path) -> list[Entry]:
    """Every whole line of every process, by time."""
    found = []
    for path in home.glob("ledger-*"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                phase, *numbers, at = line.split()
                found.append(Entry(phase, *map(int, numbers), float(at)))
    return sorted(found, key=lambda entry: entry.at)


def judge(
    session: Session,
    home: Path,
    acknowledged: list[int],
    faults: list[Fault],
    silences: list[Fault],
) -> Verdict:
    """Join them."""
    ledger = read_ledger(home)
    by_job: dict[int, list[Entry]] = defaultdict(list)
    for entry in ledger:
        by_job[entry.job].append(entry)
    dead = dict(session.rows("select id, kind from redrive.dead_letters"))
    live = set(session.column("select id from redrive.jobs"))
    ends = {
        job: (delivery, at)
        for job, delivery, at in session.rows(
            "select job, deliveries, extract(epoch from at)::float8 from ended order by at"
        )
    }
    effects = dict(session.rows("select job, count(*) from effects group by job"))
    kinds = dict(session.rows("select job, kind from admitted"))
    verdict = Verdict(jobs=len(set(acknowledged)), dead=len(dead), stuck=sorted(live))
    for job in sorted(set(acknowledged)):
        finished = {e.delivery for e in by_job[job] if e.phase == "end"}
        if job in live:
            continue
        if job in dead:
            if kinds.get(job) != "chaos.poison":
                verdict.innocents_dead.append(job)
            continue
        verdict.completed += 1
        if job not in ends or not finished:
            verdict.lost.append(job)
        elif ends[job][0] not in finished and kinds.get(job) != "chaos.effect":
            # settled by a delivery that had not ended: somebody else's settlement was taken
            verdict.stale_accepted.append(job)
        if kinds.get(job) == "chaos.effect" and effects.get(job) != 1:
            verdict.effects_twice.append(job)
    verdict.two_ends = sorted(
        set(dead) & (set(ends) - set(session.column("select id from redrive.dead_letters")))
    )
    verdict.overlapping_claims = _overlaps(session)
    claimed = {
        (job, delivery): at
        for job, delivery, at in session.rows(
            "select job, deliveries, extract(epoch from min(at))::float8 from moves"
            " where worker_after is not null group by job, deliveries"
        )
    }
    _explain(verdict, by_job, claimed, faults, silences)
    verdict.recoveries = _recoveries(by_job, faults)
    verdict.counters = dict(
        session.rows("select event, sum(n)::bigint from redrive.totals group by event")
    )
    return verdict


def _overlaps(session: Session) -> list[int]:
    """Jobs that were claimed while they were held, or whose deliveries did not rise by one."""
    found = []
    held: dict[int, tuple[int | None, int]] = {}
    for job, delivery, before, after in session.rows(
        "select job, deliveries, worker_before, worker_after from moves order by n"
    ):
        worker, last = held.get(job, (None, 0))
        if after is not None and (worker is not None or before is not None or delivery <= last):
            found.append(job)
        held[job] = (after, max(last, delivery))
    return sorted(set(found))


def _explain(
    verdict: Verdict,
    by_job: dict[int, list[Entry]],
    claimed: dict[tuple[int, int], float],
    faults: list[Fault],
    silences: list[Fault],
) -> None:
    died = {entry.pid for entries in by_job.values() for entry in entries if entry.phase == "die"}
    for entries in by_job.values():
        # By delivery and not by time: a worker frozen between claim and start begins after those
        # that took its job.
        starts = sorted(
            (entry for entry in entries if entry.phase == "start"), key=lambda e: (e.delivery, e.at)
        )
        for first, second in itertools.pairwise(starts):
            verdict.duplicates += 1
            since = min(first.at, claimed.get((first.job, first.delivery), first.at))
            until = max(first.at, second.at)
            ended_badly = any(e.phase == "fail" and e.delivery == first.delivery for e in entries)
            by_fault = any(
                fault.at - (CRASH_MARGIN if fault.kind == "crash" else 0) <= until
                and fault.at >= since - CRASH_MARGIN
                and fault.pid in {first.pid, first.supervisor, 0}
                for fault in faults
            )
            if ended_badly or first.pid in died or by_fault:
                verdict.explained += 1
            elif any(
                s.pid == first.supervisor and since - 5 <= s.at <= until + 5 for s in silences
            ):
                # it noticed by itself that it was not heard: the machine had no time for it
                verdict.starved += 1
            else:
                verdict.unexplained.append((first, second))


def _recoveries(by_job: dict[int, list[Entry]], faults: list[Fault]) -> list[float]:
    """Seconds from the death of a worker to the next start of what it ran."""
    found = []
    for fault in faults:
        if fault.kind != "kill_supervisor":
            continue
        for entries in by_job.values():
            before = [e for e in entries if e.supervisor == fault.pid and e.at <= fault.at]
            if before and before[-1].phase == "start":
                after = [e.at for e in entries if e.phase == "start" and e.at > fault.at]
                found += [min(after) - fault.at] if after else []
    return sorted(found)
