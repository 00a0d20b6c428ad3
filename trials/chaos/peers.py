"""The same monkey and the same judge on other queues: `python -m trials.chaos.peers`.

Each has the settings that its own documentation gives for lost workers, set as short as it allows.
A worker that ends by itself is started again, as Kubernetes does. Jobs wait, and do nothing else.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.install import DRIVERS, Peers
from bench.systems import PEERS as BENCHED
from bench.systems import REDRIVE, System
from tests.flow.harness import ROOT, children
from trials.chaos.holding import Hold, hold_row
from trials.chaos.ledger import HOME
from trials.chaos.monkey import run
from trials.chaos.redrive_system import Redrive
from trials.chaos.schedule import HOLDS, PEERS, Tier
from trials.chaos.verdict import Fault

INSTALLED = ROOT / "build" / "peers"
NOBODY: LiteralString = "select 0::bigint where false"


@dataclass(frozen=True)
class Peer:
    """How to see in its tables what is not finished and what was given up, and when it lets go.

    `lock` locks the row of a running job. `ttl`: seconds after
    which a worker that is not heard has lost its jobs, at worst; `gone` is the trigger that
    says so, on the row `{row}`; `recovery` is what was set, and `page` where it is documented.
    """

    name: str
    table: LiteralString
    number: LiteralString
    let_go: LiteralString
    live: LiteralString
    dead: LiteralString
    lock: LiteralString
    ttl: float
    recovery: str
    page: str


ON_PEERS = (
    Peer(
        "procrastinate",
        table="procrastinate_jobs",
        number="({row}.args->>'n')::bigint",
        let_go="update of status on {table} for each row when (new.status = 'succeeded')",
        live="select (args->>'n')::bigint from procrastinate_jobs"
        " where status in ('todo', 'doing') and task_name = 'chaos'",
        dead="select (args->>'n')::bigint from procrastinate_jobs"
        " where status in ('failed', 'cancelled', 'aborted') and task_name = 'chaos'",
        lock="select 1 from procrastinate_jobs where status = 'doing' and task_name = 'chaos'"
        " limit 1 for update skip locked",
        ttl=9,
        recovery="update_heartbeat_interval 1 s, stalled_worker_timeout 3 s, a periodic"
        " retry_stalled_jobs every 5 s",
        page="https://procrastinate.readthedocs.io/en/stable/howto/production/retry_stalled_jobs.html",
    ),
    Peer(
        "pgqueuer",
        table="pgqueuer",
        number="(convert_from({row}.payload, 'utf8')::json->>'n')::bigint",
        let_go="delete on {table} for each row",
        live="select (convert_from(payload, 'utf8')::json->>'n')::bigint from pgqueuer"
        " where status <> 'failed'",
        dead="select (convert_from(payload, 'utf8')::json->>'n')::bigint from pgqueuer"
        " where status = 'failed'",
        lock="select 1 from pgqueuer where status = 'picked' limit 1 for update skip locked",
        ttl=3,
        recovery="heartbeat_timeout 3 s",
        page="https://github.com/janbjorge/pgqueuer/blob/main/docs/guides/heartbeat.md",
    ),
    Peer(
        "graphile-worker",
        table="graphile_worker._private_jobs",
        number="({row}.payload->>'n')::bigint",
        let_go="delete on {table} for each row",
        live="select (payload->>'n')::bigint from graphile_worker._private_jobs",
        dead=NOBODY,
        lock="select 1 from graphile_worker._private_jobs where locked_at is not null"
        " limit 1 for update skip locked",
        ttl=3,
        recovery="none to set: locks of four hours are released, here looked for every 2 s",
        page="https://worker.graphile.org/docs/error-handling",
    ),
    Peer(
        "pg-boss",
        table="pgboss.job",
        number="({row}.data->>'n')::bigint",
        let_go="update on {table} for each row when"
        " (new.state = 'completed' and old.state <> 'completed')",
        live="select (data->>'n')::bigint from pgboss.job"
        " where name = 'chaos' and state < 'completed'",
        dead="select (data->>'n')::bigint from pgboss.job"
        " where name = 'chaos' and state > 'completed'",
        lock="select 1 from pgboss.job where name = 'chaos' and state = 'active'"
        " limit 1 for update skip locked",
        ttl=12,
        recovery="heartbeatSeconds 10, its shortest; supervision every second; retryLimit 100",
        page="https://github.com/timgit/pg-boss/blob/master/docs/api/queues.md",
    ),
    Peer(
        "river",
        table="river_job",
        number="({row}.args->>'n')::bigint",
        let_go="update of state on {table} for each row when"
        " (new.state = 'completed' and old.state <> 'completed')",
        live="select (args->>'n')::bigint from river_job where state in"
        " ('available', 'running', 'retryable', 'scheduled', 'pending')",
        dead="select (args->>'n')::bigint from river_job where state in ('discarded', 'cancelled')",
        lock="select 1 from river_job where state = 'running' limit 1 for update skip locked",
        ttl=36,
        recovery="JobTimeout 5 s, RescueStuckJobsAfter 6 s; looked for every 30 s",
        page="https://pkg.go.dev/github.com/riverqueue/river#Config",
    ),
)

# The payload names the job; the trigger writes in the transaction that lets go of it.
WITNESS: LiteralString = """
    create table public.done (n bigint not null, at timestamptz not null);
    create function public.witness() returns trigger language plpgsql as $$
    begin
        insert into public.done values (%s, clock_timestamp());
        return null;
    end $$;
    create trigger witness after %s execute function public.witness();
"""


class Process:
    """A worker of one process: as much of tests.flow.harness.Worker as the monkey needs."""

    def __init__(self, command: list[str], env: Mapping[str, str], home: Path) -> None:
        self.log = Path(tempfile.mkstemp(prefix="worker-", suffix=".log", dir=home)[1])
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def runners(self) -> list[int]:
        """What it has started."""
        return children(self.pid)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Kill what is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class Producer(threading.Thread):
    """Tells a driver's producer what to add, and hears what was acknowledged."""

    def __init__(self, process: "subprocess.Popen[str]", tier: Tier, seed: int) -> None:
        super().__init__(name="producer", daemon=True)
        self._process = process
        self._tier = tier
        self._dice = random.Random(f"producer {seed}")
        self.acknowledged: set[int] = set()
        self.added: dict[int, float] = {}
        """When each job was committed."""
        self.doomed: set[int] = set()

    def run(self) -> None:
        """All jobs of the tier, evenly."""
        hearing = threading.Thread(target=self._hear, daemon=True)
        hearing.start()
        pipe = self._process.stdin
        assert pipe is not None
        began = time.monotonic()
        for n in range(self._tier.jobs):
            due = began + n / self._tier.jobs * self._tier.seconds
            time.sleep(max(0.0, due - time.monotonic()))
            seconds = (
                self._dice.choice([0.2, 0.5, 1.0, 2.5, 4.0]) if n % 4 == 0 else 0.01
            )
            pipe.write(f"{n} {seconds}\n")
            pipe.flush()
        pipe.close()
        hearing.join()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                self.acknowledged.add(int(line))
                self.added[int(line)] = time.monotonic()
        self._process.wait()


class OnPeer:
    """Another queue under the monkey, as trials.chaos.redrive_system.Redrive is."""

    clock = None
    old = None
    done: LiteralString = (
        "select n, extract(epoch from max(at))::float8 from done group by n"
    )

    def __init__(self, peer: Peer, command: list[str], home: Path, tier: Tier) -> None:
        self.peer = peer
        self.name = peer.name
        self.live, self.dead, self.ttl = peer.live, peer.dead, peer.ttl
        self.home = home
        self.tier = tier
        self._command = command

    def _env(self, conninfo: str) -> dict[str, str]:
        known = conninfo_to_dict(conninfo)
        url = "postgresql://{user}@{host}:{port}/{dbname}".format(**known)
        own = {
            "CHAOS_URL": url,
            "BENCH_URL": url,
            "BENCH_PROGRESS": "",
            HOME: str(self.home),
        }
        return os.environ | own | {"PYTHONPATH": str(ROOT), "NODE_NO_WARNINGS": "1"}

    def _of(self, verb: str) -> str:
        # River's one program carries out the commands of the benchmark, too
        return f"chaos-{verb}" if self.name == "river" else verb

    def set_up(self, url: str) -> None:
        """Its schema, and the witness."""
        env, command = self._env(url), [*self._command, "setup"]
        with (self.home / "setup.log").open("wb") as log:
            subprocess.run(
                command, env=env, cwd=ROOT, stdout=log, stderr=log, check=True
            )
        peer = self.peer
        row = "old" if peer.let_go.startswith("delete") else "new"
        witness = WITNESS % (
            peer.number.format(row=row),
            peer.let_go.format(table=peer.table),
        )
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(witness)

    def worker(self, n: int, url: str, effects_url: str) -> Process:  # noqa: ARG002 # as Redrive's
        """A worker."""
        command = [*self._command, self._of("worker"), str(self.tier.slots)]
        return Process(command, self._env(url), self.home)

    def producer(self, url: str, seed: int) -> Producer:
        """Who adds its jobs."""
        with (self.home / "producer.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._command, self._of("produce")],
                env=self._env(url),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return Producer(process, self.tier, seed)

    def dead_by_old(self, conn: psycopg.Connection[Any]) -> set[int]:  # noqa: ARG002 # as Redrive's
        """There is one version of it."""
        return set()

    def hold(self, url: str, n: int, chance: float, note: Any) -> Hold:  # noqa: ARG002 # as Redrive's
        """Return a transaction that locks the row of a running job."""
        return hold_row(url, chance, self.peer.lock)

    def failures(self, conn: psycopg.Connection[Any]) -> dict[str, list[Any]]:  # noqa: ARG002 # as Redrive's
        """Nothing more is known of it."""
        return {}

    def recorded(self, conn: psycopg.Connection[Any], n: int) -> list[tuple[Any, ...]]:  # noqa: ARG002 # as Redrive's
        """Nothing."""
        return []

    def silences(self, workers: list[Any]) -> list[Fault]:  # noqa: ARG002 # as Redrive's
        """It does not say."""
        return []


RUNNING: LiteralString = (
    "select 1 from redrive.jobs j join redrive.claims c on j.id = any (c.ids)"
    " limit 1 for update of j skip locked"
)


class Ours(Redrive):
    """Redrive with the producer and the jobs that the others have."""

    def hold(self, url: str, n: int, chance: float, note: Any) -> Hold:  # noqa: ARG002 # as the others
        """Return a transaction that locks the row of a running job."""
        return hold_row(url, chance, RUNNING)

    def producer(self, url: str, seed: int) -> Any:
        """Who adds its jobs."""
        process = subprocess.Popen(
            [sys.executable, str(DRIVERS / "chaos_redrive.py"), "produce"],
            env=os.environ | {"CHAOS_URL": url, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return Producer(process, self.tier, seed)


class OurFunctions(Ours):
    """Redrive with the same jobs, and transactions held by its own functions."""

    hold = Redrive.hold


def _driver(peers: Peers, system: System) -> list[str]:
    if system.made_of == "go":
        return [str(peers.home / "go" / "riverbench")]
    return peers.command(
        replace(system, driver=system.driver.replace("drive_", "chaos_"))
    )


def main() -> int:
    """Run them one after the other, and write what was found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument("--only", nargs="*", help="these alone, by name")
    options.add_argument("--holds", action="store_true", help="open transactions alone")
    options.add_argument(
        "--keep", action="store_true", help="keep the ledgers and the logs"
    )
    options.add_argument("--output", type=Path)
    chosen = options.parse_args()
    by_name = {system.name: system for system in BENCHED}
    wanted = [p for p in ON_PEERS if not chosen.only or p.name in chosen.only]
    peers = Peers(INSTALLED)
    INSTALLED.mkdir(parents=True, exist_ok=True)
    ready = peers.install([by_name[peer.name] for peer in wanted])
    results: list[dict[str, Any]] = []

    def one(name: str, make: Any, **more: str) -> None:
        outcome = run(
            HOLDS if chosen.holds else PEERS,
            chosen.seed,
            lambda line: print(name, line, flush=True),
            make=make,
            keep=chosen.keep,
        )
        found = outcome.as_json() | more
        print(json.dumps(found), outcome.told(), sep="\n", flush=True)
        results.append(found | {"system": name})

    if not chosen.only or REDRIVE.name in chosen.only:
        recovery = "REDRIVE_HEARTBEAT_TTL 3 s"
        ours = {"version": "this checkout", "recovery": recovery, "page": "settings.md"}
        one(REDRIVE.name, Ours, **ours)
        if chosen.holds:
            one(f"{REDRIVE.name}, its functions", OurFunctions, **ours)
    for peer in wanted:
        system = by_name[peer.name]
        if system in ready:
            command = _driver(peers, system)
            one(
                peer.name,
                lambda home, tier, peer=peer, command=command: OnPeer(
                    peer, command, home, tier
                ),
                version=peers.versions[peer.name],
                recovery=peer.recovery,
                page=peer.page,
            )
    if chosen.output:
        chosen.output.write_text(
            json.dumps(
                {"seed": chosen.seed, "results": results, "missing": peers.missing},
                indent=2,
            )
            + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
