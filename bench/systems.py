"""The systems under test: how to get each, how to drive it, and how to see in its database what is
not done yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, LiteralString

Config = Mapping[str, Any]


@dataclass(frozen=True)
class System:
    """One system.

    `left` counts jobs that have not been settled in the database, cheaply near the end, and `dead`
    those it keeps as dead letters; `pace` is how many jobs it is given where the fast ones get 1.0.
    Each config is the best setting we found for that use, and is in the report.
    """

    name: str
    made_of: Literal["python", "node", "go", "rust", "ours"]
    packages: tuple[str, ...]
    driver: str
    left: LiteralString
    dead: LiteralString | None = None
    pace: float = 1.0
    pace_of_death: float = 1.0
    drain: Config | None = None
    steady: Config | None = None  # mixed and held snapshot
    latency: Config | None = None
    slots: Config | None = None  # handlers that wait
    # handlers that use the processor, where that asks for another setting
    computing: Config | None = None
    burying: Config | None = None  # handlers that fail for good
    needs: str | None = None
    """An environment variable that must name what no registry has."""

    def config(self, use: str) -> dict[str, Any]:
        """Its setting for a use."""
        special = {
            "latency": self.latency,
            "slots": self.slots,
            "computing": self.computing or self.slots,
            "steady": self.steady,
            "burying": self.burying,
        }
        return dict(special.get(use) or self.drain or {})


REDRIVE = System(
    "redrive",
    "ours",
    (),
    "drive_redrive.py",
    "select exists(select from redrive.jobs)::int",
    dead="select count(*) from redrive.dead_letters",
    slots={"slots": 256},
    computing={"slots": 128, "runners": 2},
)

# Enqueued less ended, as awa's own counts have it. Its view awa.jobs takes more than 40 s after
# 60,000 jobs.
_AWA_LEFT = """
    select (select sum(awa.sequence_next_value(seq_name) - 1) from awa.queue_enqueue_heads)
        - (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)
        - (select count(*) from awa.done_entries)
        - (select count(*) from awa.dlq_entries)
        - (select coalesce(sum(pruned_completed_count + pruned_failed_count), 0)
           from awa.queue_terminal_rollups)
"""
_AWA_DEAD = "select count(*) from awa.dlq_entries"

PEERS = (
    System(
        "graphile-worker",
        "node",
        ("graphile-worker@0.18.0",),
        "drive_graphile.mjs",
        "select exists(select from graphile_worker._private_jobs)::int",
        drain={"batching": True},
        latency={"batching": False, "slots": 10},
        slots={"batching": True, "slots": 256},
    ),
    System(
        "pg-boss",
        "node",
        ("pg-boss@12.38.0", "pg@8.23.1"),
        "drive_pgboss.mjs",
        "select exists(select from pgboss.job where name = 'bench' and state < 'completed')::int",
        drain={"batch": 1000},
        latency={"batch": 100},
        slots={"batch": 256},
    ),
    System(
        "pgqueuer",
        "python",
        ("pgqueuer", "asyncpg", "uvloop"),
        "drive_pgqueuer.py",
        "select exists(select from pgqueuer)::int",
        drain={"consumers": 1, "batch": 1000},
        steady={"consumers": 1, "batch": 500},
        latency={"consumers": 1, "batch": 10},
        slots={"consumers": 1, "batch": 256},
    ),
    System(
        "river",
        "go",
        (),
        "river",
        "select exists(select from river_job where state in"
        " ('available', 'running', 'retryable', 'scheduled', 'pending'))::int",
        drain={"max_workers": 2000},
        latency={"max_workers": 100},
        slots={"max_workers": 256},
    ),
    System(
        "awa-native",
        "rust",
        (),
        "awa",
        _AWA_LEFT,
        dead=_AWA_DEAD,
        pace_of_death=0.03,
        drain={"slots": 1024},
        latency={"slots": 256},
        slots={"slots": 256},
        burying={"slots": 256, "deadline": 300},
    ),
    System(
        "awa",
        "python",
        ("awa-pg",),
        "drive_awa.py",
        _AWA_LEFT,
        pace=0.2,
        drain={"slots": 256},
        slots={"slots": 256},
    ),
    System(
        "chancy",
        "python",
        ("chancy", "uvloop"),
        "drive_chancy.py",
        "select count(*) from chancy_jobs where state in ('pending', 'running', 'retrying')",
        pace=0.1,
        drain={"slots": 500},
        slots={"slots": 256},
    ),
    System(
        "absurd",
        "python",
        ("absurd-sdk", "uvloop"),
        "drive_absurd.py",
        "select count(*) from absurd.t_bench where state in ('pending', 'running', 'sleeping')",
        pace=0.03,
        drain={"slots": 100},
        needs="ABSURD_SQL",
    ),
    System(
        "procrastinate",
        "python",
        ("procrastinate", "psycopg[binary,pool]", "uvloop"),
        "drive_procrastinate.py",
        "select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
        pace=0.03,
        drain={"slots": 20},
        slots={"slots": 256},
    ),
)

PGBENCH = ("pgbench", "pgbench-fused")
ALL = (REDRIVE, *PEERS)


def chosen(names: list[str] | None) -> list[System]:
    """The systems of these names, or of names that begin so; all when None."""
    if names is None:
        return list(ALL)
    return [
        system for system in ALL if any(system.name.startswith(name) for name in names)
    ]
