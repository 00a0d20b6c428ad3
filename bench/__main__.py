"""python -m bench: run the benchmark, or a part of it.

python -m bench                                        everything, medians of three
python -m bench --quick --only drain,latency --systems redrive,graphile,pgbench
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import campaigns, console, features, fleet, recovery, scenarios
from bench.collectors import COLLECTORS
from bench.install import Peers
from bench.report import Report
from bench.scenarios import Figures, Lab
from bench.server import running
from bench.session import SystemFailed
from bench.systems import PGBENCH, REDRIVE, System, chosen

QUICK = 0.2
HANDLERS = {  # at which setting, what 256 slots do with a job, its payload, and how many of them
    "waits 1 ms": ("slots", "wait:1", 0, 60_000),
    "waits 50 ms": ("slots", "wait:50", 0, 40_000),
    "computes 1 ms": ("computing", "spin:1", 0, 20_000),
    "payload 1 kB": ("slots", "", 1_000, 100_000),
    "payload 64 kB": ("slots", "", 64_000, 4_000),
}


@dataclass(frozen=True)
class Case:
    """One row of one table."""

    scenario: str
    system: str
    run: Callable[[], Figures]


Measure = Callable[..., Figures]


@dataclass(frozen=True)
class Table:
    """One table: a scenario, and which systems are in it."""

    group: str
    title: str
    measure: Measure
    only_ours: bool = False
    only_burying: bool = False
    """Of those that keep dead letters."""
    clients: int = 0
    """Of pgbench beside it; 0 = none."""
    variants: tuple[str, ...] = ()
    """What is compared, in place of systems: collectors of ours, sizes of the table."""
    once: bool = False
    """So long that one run says enough."""

    def takes(self, system: System) -> bool:
        """Whether a system has a row in it."""
        if self.only_burying:
            return system.dead is not None
        return system is REDRIVE or not self.only_ours


def _tables(*, full: bool) -> Iterator[Table]:
    """All there are, in the order of the report."""
    for n in (1, 2, 4):
        yield Table(
            f"drain{n}",
            f"drain, {n} worker{'s' * (n > 1)}",
            partial(scenarios.drain, workers=n),
            clients=n,
        )
    yield Table(
        "tracing", "drain, spans exported", scenarios.traced, variants=tuple(COLLECTORS)
    )
    yield Table("idle", "idle worker", scenarios.idle, only_ours=True)
    yield Table("latency", "latency, idle", scenarios.latency)
    yield Table(
        "enqueue",
        "enqueue, one by one",
        partial(scenarios.enqueue, way="single", full=2000),
    )
    yield Table(
        "enqueue",
        "enqueue, thousands at once",
        partial(scenarios.enqueue, way="bulk", full=200_000),
    )
    yield Table("mixed", "mixed, 1 producer and 1 worker", scenarios.mixed)
    for part in (0.5, 0.9):
        title = f"latency, at {part:.0%} of its mixed speed"
        yield Table(f"load{part:.0%}", title, partial(_at_load, part=part))
    for name, (use, work, payload, jobs) in HANDLERS.items():
        measure = partial(
            scenarios.drain, use=use, work=work, payload=payload, full=jobs
        )
        yield Table(f"handlers {name}", f"256 slots, {name}", measure)
    for held, snapshot in (
        (False, "no snapshot held"),
        (True, "one snapshot held open"),
    ):
        title, long = (
            f"mixed for 60 s, {snapshot}",
            partial(scenarios.mixed, full=60, batch=500),
        )
        yield Table("snapshot", title, partial(long, held=held), once=True)
        title = f"2,000 jobs/s of 1 ms for 3 minutes, {snapshot}"
        yield Table("steady", title, partial(scenarios.steady, held=held), once=True)
    for n in fleet.SIZES:
        run = partial(fleet.fleet, workers=n)
        few = n <= fleet.MOST_PROCESSES
        yield Table(f"workers {n} ", f"{n} workers", run, only_ours=not few)
    yield Table(
        "pooled",
        f"{fleet.POOLED_WORKERS} workers behind PgBouncer",
        fleet.pooled,
        variants=tuple(fleet.POOLED),
    )
    yield Table(
        "processes", "many workers", scenarios.fleet, variants=tuple(scenarios.FLEETS)
    )
    yield Table("backlog", "a million waiting", scenarios.backlog, once=True)
    depths = (10_000, 1_000_000, 10_000_000) if full else (10_000, 1_000_000)
    yield Table(
        "claim",
        "claim of 100",
        partial(scenarios.claims, depths=depths),
        only_ours=True,
        once=True,
    )
    title = "what features cost, from enqueue to end"
    yield Table("features", title, features.feature, variants=tuple(features.FEATURES))
    sizes = recovery.FULL if full else recovery.QUICK
    title = "recovery beside jobs of 1 kB"
    yield Table("recovery", title, recovery.recovery, variants=sizes, once=True)
    yield Table("dlq", "dead letters", scenarios.dead_letters, only_burying=True)
    yield Table("dlq", "dead letters, all redriven", scenarios.redriven, only_ours=True)
    title = "a campaign over many dead letters"
    yield Table("campaign", title, campaigns.campaign, variants=tuple(campaigns.CASES))
    title = "console, beside a million dead letters and five million live jobs"
    yield Table(
        "console", title, console.Pages(), variants=tuple(console.PATHS), once=True
    )


def _cases(
    table: Table, lab: Lab, systems: list[System], pgbench: Sequence[str]
) -> Iterator[Case]:
    """The rows of a table."""
    for variant in table.variants if REDRIVE in systems else ():
        yield Case(table.title, variant, partial(table.measure, lab, REDRIVE, variant))
    for system in () if table.variants else systems:
        if table.takes(system):
            yield Case(table.title, system.name, partial(table.measure, lab, system))
    for name in pgbench if table.clients else []:
        script = "fused.sql" if name.endswith("fused") else "loop.sql"
        yield Case(
            table.title,
            name,
            partial(scenarios.pgbench, lab, script, clients=table.clients),
        )


_mixed_speed: dict[str, float] = {}


def _at_load(lab: Lab, system: System, *, part: float) -> Figures:
    """Latency at a part of the speed that producer and worker reach together, measured first if it
    was not yet.
    """
    if system.name not in _mixed_speed:
        _mixed_speed[system.name] = scenarios.mixed(lab, system, full=10)[
            "jobs_per_second"
        ]
    return scenarios.loaded(lab, system, rate=_mixed_speed[system.name] * part)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Redrive and its peers on one Postgres."
    )
    parser.add_argument(
        "--only",
        help="drain (or drain1,drain2,drain4), tracing, idle, latency, enqueue, mixed,"
        " load (or load50,load90), handlers (or 'handlers waits'), snapshot, steady, workers (or 'workers 100 '),"
        " pooled, processes, backlog, claim, features, recovery, dlq, campaign, console",
    )
    parser.add_argument(
        "--systems", help="names or their beginnings, and pgbench; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the length")
    parser.add_argument(
        "--repeat",
        type=int,
        default=3,
        help="runs of each, interleaved (3); the longest have one",
    )
    parser.add_argument(
        "--peers",
        type=Path,
        help="where peers are installed and stay; by default they go with the run",
    )
    parser.add_argument(
        "--name", default="latest", help="of the files in bench/results"
    )
    return parser.parse_args()


def _run(case: Case, report: Report) -> None:
    began = time.monotonic()
    try:
        figures = case.run()
    except SystemFailed as error:
        report.failed[f"{case.system}, {case.scenario}"] = str(error)
        print(f"FAILED {case.scenario}: {error}", file=sys.stderr, flush=True)
        return
    report.add(case.scenario, case.system, figures)
    shown = " ".join(f"{name}={value:.5g}" for name, value in figures.items())
    print(
        f"{case.scenario} | {case.system} | {shown} | {time.monotonic() - began:.0f} s",
        flush=True,
    )


def main() -> int:
    """Run what was asked for. Returns the exit status."""
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # take servers and workers along
    asked = _arguments()
    only = tuple(asked.only.split(",")) if asked.only else None
    names = asked.systems.split(",") if asked.systems else None
    report = Report(QUICK if asked.quick else 1.0)
    with (
        tempfile.TemporaryDirectory(
            prefix="redrive-bench-peers-", ignore_cleanup_errors=True
        ) as scratch,
        running() as server,
    ):
        peers = Peers(asked.peers or Path(scratch))
        systems = peers.install(chosen(names))
        report.versions, report.missing = peers.versions, peers.missing
        pgbench = (
            list(PGBENCH)
            if names is None or any(name.startswith("pgbench") for name in names)
            else []
        )
        lab = Lab(server, peers, report.size)
        for table in _tables(full=not asked.quick):
            if only is not None and not table.group.startswith(only):
                continue
            for _ in range(1 if table.once else asked.repeat):
                for case in _cases(table, lab, systems, pgbench):
                    _run(case, report)
            if table.group == "mixed":
                _mixed_speed.update(report.speeds(table.title))
            report.save(asked.name)
    print(report.save(asked.name).read_text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
