"""What became of every job: by the ledger of its handlers, by the list of faults, and by who still
has it. Nothing here knows which queue was tried.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trials.chaos.ledger import Entry

MARGIN = 1.0
"""Seconds before a crash from which a claim, committed relaxed, may have been forgotten; and after
a fault in which what it broke is still begun again.
"""

EVERYBODY = 0
LOSSES = 3
"""`max_losses` of the handlers, which is Redrive's default."""
KILLS = {"kill_runner", "kill_supervisor", "kill_group", "neighbour"}
CAUSES = {
    "kill_runner",
    "kill_supervisor",
    "kill_group",
    "pause_group",
    "pause_supervisor",
    "pause_runner",
    "term",
    "black_hole",
    "immediate_stop",
    "kill_postmaster",
    "kill_backend",
    "fail_over",
    "split",
    "fill_disk",
    "neighbour",
    "switch_over",
    "kill_postgres",
    "kill_node",
    "freeze_node",
    "cut_from_etcd",
    "lose_etcd",
}
"""What may make a handler start twice. A cut connection, a terminated backend, a pooler or balancer
that starts again, one etcd of three, a wrong clock and an upgrade may not.
"""


class Fault(NamedTuple):
    """Something we did, from when until when, to a process or to everybody."""

    kind: str
    pid: int
    since: float
    until: float


class Facts(NamedTuple):
    """What is known at the end.

    `done` is when the database let go of a job, on the ledger's clock; a job that died is in `dead`
    and one that is not finished in `live`. `silences`: supervisors that noticed by themselves that
    they were not heard, and when.
    """

    acknowledged: set[int]
    ledger: Mapping[int, list[Entry]]
    done: Mapping[int, float]
    live: set[int]
    dead: set[int]
    doomed: set[int]
    faults: list[Fault]
    silences: list[Fault]


@dataclass
class Verdict:
    """Jobs by number. All but the first group have to be empty."""

    jobs: int = 0
    completed: int = 0
    dead: int = 0
    duplicates: int = 0
    explained: Counter[str] = field(default_factory=Counter)
    ran_again_after_return: int = 0
    recoveries: list[float] = field(default_factory=list)
    accused: list[int] = field(default_factory=list)

    lost: list[int] = field(default_factory=list)
    stuck: list[int] = field(default_factory=list)
    unexplained: list[int] = field(default_factory=list)
    stale_accepted: list[int] = field(default_factory=list)
    innocents_dead: list[int] = field(default_factory=list)

    def failures(self) -> dict[str, list[int]]:
        """What must be empty."""
        names = ("lost", "stuck", "unexplained", "stale_accepted", "innocents_dead")
        return {name: getattr(self, name) for name in names}


def judge(facts: Facts) -> Verdict:
    """Look at every job whose enqueueing was acknowledged."""
    verdict = Verdict(
        jobs=len(facts.acknowledged), stuck=sorted(facts.live & facts.acknowledged)
    )
    causes = _by_pid([*facts.faults, *_deaths(facts.ledger)])
    silences = _by_pid(facts.silences)
    splits = [f for f in causes.get(EVERYBODY, ()) if f.kind == "split"]
    for n in sorted(facts.acknowledged):
        entries = facts.ledger.get(n, [])
        runs = _runs(entries)
        for first, second in itertools.pairwise(runs):
            _explain(verdict, entries, first, second, causes, silences)
        if n in facts.live:
            continue
        if n in facts.dead:
            verdict.dead += 1
            if n not in facts.doomed:
                accused = _was_killed_each_time(runs, causes)
                (verdict.accused if accused else verdict.innocents_dead).append(n)
        elif n not in facts.done or not any(e.phase == "end" for e in entries):
            verdict.lost.append(n)
        else:
            verdict.completed += 1
            if _is_stale(runs, entries, facts.done[n], splits):
                verdict.stale_accepted.append(n)
    verdict.recoveries = _recoveries(facts)
    return verdict


def _runs(entries: Iterable[Entry]) -> list[Entry]:
    # By token and not by time: a worker frozen between claim and start begins after those that
    # took its job.
    starts = (entry for entry in entries if entry.phase == "start")
    return sorted(starts, key=lambda entry: (entry.token, entry.at))


def _is_stale(
    runs: list[Entry], entries: list[Entry], done: float, splits: list[Fault]
) -> bool:
    """Whether the job was finished while its newest run was not: somebody else's word counted.

    Both servers of a split hand out the same token. Only the word of one of them is kept, and the
    ledger does not know which one: either run is the newest.
    """
    begun = [run for run in runs if run.at < done]
    if not begun:
        return False
    newest = {
        run.pid
        for run in begun
        if run is begun[-1]
        or (run.token == begun[-1].token and _is_during(run, splits))
    }
    return not any(
        e.phase == "end"
        and e.at <= done
        and e.token == begun[-1].token
        and e.pid in newest
        for e in entries
    )


def _is_during(run: Entry, faults: list[Fault]) -> bool:
    return any(f.since - MARGIN <= run.at <= f.until + MARGIN for f in faults)


def _was_killed_each_time(runs: list[Entry], causes: Mapping[int, list[Fault]]) -> bool:
    """Whether we killed three processes under a job, and the one of its last run among them.

    No queue can tell that from a job that kills its process.
    """
    killed = [
        any(
            fault.kind in KILLS and fault.since >= run.at
            for pid in (run.pid, run.parent)
            for fault in causes.get(pid, ())
        )
        for run in runs
    ]
    return killed[-1:] == [True] and sum(killed) >= LOSSES


def _by_pid(faults: Iterable[Fault]) -> Mapping[int, list[Fault]]:
    found: defaultdict[int, list[Fault]] = defaultdict(list)
    for fault in faults:
        found[fault.pid].append(fault)
    return found


def _deaths(ledger: Mapping[int, list[Entry]]) -> list[Fault]:
    """Processes that a job killed, and with them its neighbours."""
    return [
        Fault("neighbour", entry.pid, entry.at, entry.at)
        for entries in ledger.values()
        for entry in entries
        if entry.phase == "die"
    ]


def _explain(
    verdict: Verdict,
    entries: list[Entry],
    first: Entry,
    second: Entry,
    causes: Mapping[int, list[Fault]],
    silences: Mapping[int, list[Fault]],
) -> None:
    """Name the reason for which a job was begun a second time."""
    verdict.duplicates += 1
    since, until = sorted((first.at, second.at))
    of_first = [e for e in entries if (e.token, e.pid) == (first.token, first.pid)]
    own = next((e.phase for e in of_first if e.phase in {"fail", "die"}), None)
    if own is not None:
        verdict.explained[own] += 1
        return
    for pid in (first.pid, first.parent, EVERYBODY):
        for fault in causes.get(pid, ()):
            if (
                fault.kind in CAUSES
                and fault.since - MARGIN <= until
                and fault.until + MARGIN >= since
            ):
                verdict.explained[fault.kind] += 1
                returned = any(
                    e.phase == "end" and e.at < fault.since for e in of_first
                )
                verdict.ran_again_after_return += pid == EVERYBODY and returned
                return
    if any(
        s.since <= until + 5 and s.until >= since - 5
        for s in silences.get(first.parent, ())
    ):
        verdict.explained["starved"] += 1
    else:
        verdict.unexplained.append(first.n)


def _recoveries(facts: Facts) -> list[float]:
    """Seconds from the death of a worker to the next start of what it ran."""
    died = {
        f.pid: f.since
        for f in facts.faults
        if f.kind in {"kill_supervisor", "kill_group"}
    }
    found: list[float] = []
    for entries in facts.ledger.values():
        for entry in entries:
            at = died.get(entry.parent, died.get(entry.pid))
            if entry.phase != "start" or at is None:
                continue
            of_run = [
                e for e in entries if (e.token, e.pid) == (entry.token, entry.pid)
            ]
            if of_run[-1].phase == "start":
                later = [e.at for e in entries if e.phase == "start" and e.at > at]
                found += [min(later) - at] if later else []
    return sorted(found)
