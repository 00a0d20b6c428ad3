"""What is broken and when: made from a tier and a seed alone, before anything runs.

The same tier and seed give the same schedule. A fault whose worker is down already waits for the
next one that is up; what was done, and when, is in the verdict.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

OUTAGES = (
    "immediate_stop",
    "kill_postmaster",
    "kill_backend",
    "fail_over",
    "split",
    "fill_disk",
)
"""Nobody can write meanwhile; they are kept apart, so that work is done between them."""

FAULTS = {
    "kill_runner": "SIGKILL of one runner",
    "kill_supervisor": "SIGKILL of a supervisor",
    "kill_group": "SIGKILL of a supervisor and all its runners at once, as when a node dies",
    "pause_group": "SIGSTOP of a whole worker for 1.1 to 2 times its heartbeat TTL, then SIGCONT",
    "pause_supervisor": "the same, for the supervisor only",
    "pause_runner": "the same, for one runner",
    "term": "SIGTERM of a worker under load, and the start of a new one",
    "terminate": "`pg_terminate_backend` of every connection of every worker",
    "immediate_stop": "`pg_ctl stop -m immediate`, and start",
    "kill_postmaster": "SIGKILL of the postmaster, and start",
    "kill_backend": "SIGKILL of a backend, after which Postgres restarts itself",
    "fail_over": "crash of the primary, promotion of its synchronous standby, a new standby",
    "split": "a network cut in two for 0.5 to 1.5 times the TTL: the standby takes over with half of the"
    " clients, and the old primary continues with the others",
    "fill_disk": "the primary's file system full for 3 seconds, then room again",
    "read_only": "`default_transaction_read_only` for 1 second",
    "cut": "a connection cut at one of its next 20 messages, before or after its delivery",
    "cut_claim": "a claim whose answer is lost",
    "cut_settle": "a settlement whose answer is lost",
    "cut_producer": "a producer cut at a message, also at its COMMIT",
    "black_hole": "a worker's packets silently dropped for 0.3 to 2 times the TTL",
    "kill_pooler": "SIGKILL of PgBouncer, and start",
    "step_clock": "a worker's clock set a day or an hour ahead or back, or corrected",
    "hold_transaction": "a user's transaction held open for 5 to 30 seconds: a handler after"
    " `job.complete(conn)`, the same in SQL with its runner killed, an enqueue of limited, ordered"
    " and unique jobs, or a cancel",
    "kill_redrive": "SIGKILL of `redrive dlq redrive` somewhere in the middle",
    "upgrade": "`redrive migrate` under load, then a rolling restart with the new version",
}


@dataclass(frozen=True)
class Tier:
    """How much is broken in how long, and among how many jobs.

    `backlog` rows of 1 kB wait in the same table in a queue that nobody serves.
    """

    name: str
    seconds: float
    jobs: int
    workers: int
    slots: int
    faults: Mapping[str, int]
    backlog: int = 0
    disk_mb: int = 1500
    runners: int = 2

    def times(self, name: str, seconds: float, factor: int) -> "Tier":
        """The same for longer."""
        faults = {
            kind: count if kind == "upgrade" else count * factor
            for kind, count in self.faults.items()
        }
        jobs = self.jobs * factor
        return Tier(
            name, seconds, jobs, self.workers, self.slots, faults, 1_000_000, 4000
        )

    def part(self, share: float) -> "Tier":
        """The same in a part of the time, with so much of its jobs and faults."""
        faults = {
            kind: max(1, round(count * share)) for kind, count in self.faults.items()
        }
        return replace(
            self,
            name=f"{self.name} {share:g}",
            seconds=self.seconds * share,
            jobs=round(self.jobs * share),
            faults=faults,
        )


SHORT = Tier(
    "short",
    seconds=75,
    jobs=3_000,
    workers=3,
    slots=8,
    backlog=20_000,
    faults={
        "kill_runner": 12,
        "kill_supervisor": 4,
        "kill_group": 3,
        "pause_group": 2,
        "pause_supervisor": 1,
        "pause_runner": 1,
        "term": 4,
        "terminate": 2,
        "immediate_stop": 1,
        "kill_postmaster": 1,
        "kill_backend": 1,
        "fail_over": 1,
        "split": 1,
        "fill_disk": 1,
        "read_only": 1,
        "cut": 6,
        "cut_claim": 3,
        "cut_settle": 4,
        "cut_producer": 3,
        "black_hole": 1,
        "kill_pooler": 1,
        "step_clock": 3,
        "hold_transaction": 6,
        "kill_redrive": 1,
        "upgrade": 1,
    },
)
HEADLINE = Tier(
    "headline",
    seconds=1260,
    jobs=200_000,
    workers=4,
    slots=32,
    backlog=100_000,
    disk_mb=3000,
    faults={
        "kill_runner": 110,
        "kill_supervisor": 50,
        "kill_group": 40,
        "pause_group": 30,
        "pause_supervisor": 10,
        "pause_runner": 10,
        "term": 100,
        "terminate": 15,
        "immediate_stop": 20,
        "kill_postmaster": 15,
        "kill_backend": 15,
        "fail_over": 5,
        "split": 5,
        "fill_disk": 2,
        "read_only": 5,
        "cut": 30,
        "cut_claim": 10,
        "cut_settle": 15,
        "cut_producer": 10,
        "black_hole": 10,
        "kill_pooler": 10,
        "step_clock": 20,
        "hold_transaction": 40,
        "kill_redrive": 5,
        "upgrade": 1,
    },
)
FULL = Tier(
    "full",
    seconds=1380,
    jobs=600_000,
    workers=6,
    slots=64,
    backlog=100_000,
    disk_mb=3500,
    faults={
        "kill_runner": 330,
        "kill_supervisor": 170,
        "kill_group": 170,
        "pause_group": 120,
        "pause_supervisor": 35,
        "pause_runner": 35,
        "term": 360,
        "terminate": 15,
        "immediate_stop": 48,
        "kill_postmaster": 38,
        "kill_backend": 38,
        "fail_over": 2,
        "split": 2,
        "fill_disk": 9,
        "read_only": 5,
        "cut": 30,
        "cut_claim": 15,
        "cut_settle": 15,
        "cut_producer": 15,
        "black_hole": 10,
        "kill_pooler": 10,
        "step_clock": 20,
        "hold_transaction": 60,
        "kill_redrive": 5,
        "upgrade": 1,
    },
)
"""As many jobs and faults as fit into the time of HEADLINE, for the ledger."""
TRACED = Tier(
    "traced",
    seconds=20,
    jobs=400,
    workers=3,
    slots=4,
    faults={
        "kill_runner": 3,
        "kill_supervisor": 1,
        "kill_group": 1,
        "pause_group": 1,
        "term": 2,
        "terminate": 1,
        "immediate_stop": 1,
        "kill_postmaster": 1,
        "split": 1,
        "cut": 2,
        "cut_claim": 2,
        "cut_settle": 2,
        "cut_producer": 1,
        "kill_redrive": 3,
    },
)
"""Short, for the model: many runs say more to it than long ones."""
HOLDS = Tier(
    "holds",
    seconds=40,
    jobs=1_000,
    workers=3,
    slots=8,
    faults={"hold_transaction": 6, "term": 2},
)
"""Open transactions, and two workers that are replaced: half of the slots are free."""
PEERS = Tier(
    "peers",
    seconds=90,
    jobs=4_500,
    workers=3,
    slots=8,
    faults={
        "kill_group": 12,
        "pause_group": 8,
        "term": 6,
        "terminate": 4,
        "immediate_stop": 4,
        "split": 2,
        "cut": 16,
        "hold_transaction": 6,
    },
)
MANY = Tier(
    "many",
    seconds=120,
    jobs=6_000,
    workers=40,
    slots=2,
    runners=1,
    faults={
        "kill_group": 14,
        "terminate": 1,
        "cut_claim": 4,
        "cut_settle": 4,
        "kill_backend": 1,
    },
)
"""Many small workers, and a third of them is killed."""
TIERS = {
    tier.name: tier
    for tier in (
        SHORT,
        TRACED,
        MANY,
        HEADLINE,
        FULL,
        HEADLINE.times("hour", 3300, 2),
        HEADLINE.times("night", 10 * 3600, 20),
    )
}


class Planned(NamedTuple):
    """One fault to come: seconds from the start, what, of which worker, and a number in [0, 1) for
    whatever else there is to choose.
    """

    at: float
    kind: str
    worker: int
    chance: float


def plan(tier: Tier, seed: int) -> list[Planned]:
    """Each kind spread over the whole time, outages one after the other."""
    dice = random.Random(f"{tier.name} {seed}")
    outages = [kind for kind in OUTAGES for _ in range(tier.faults.get(kind, 0))]
    dice.shuffle(outages)
    kinds = [(outages, 0.6)]
    kinds += [
        # early, so that most of what is seen is the new version's doing
        ([kind] * count, 0.25 if kind == "upgrade" else 1.0)
        for kind, count in tier.faults.items()
        if kind not in OUTAGES
    ]
    found = [
        Planned(
            round(2 + (tier.seconds - 2) * (i + dice.random() * width) / len(those), 3),
            kind,
            dice.randrange(tier.workers),
            round(dice.random(), 6),
        )
        for those, width in kinds
        for i, kind in enumerate(those)
    ]
    return sorted(found)


def as_text(planned: list[Planned]) -> str:
    """A fault a line."""
    return "\n".join(json.dumps(fault) for fault in planned)
