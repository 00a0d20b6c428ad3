"""Redrive under the monkey: by its commands and its `enqueue`, as its users have it."""

import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

from redrive import enqueue, enqueue_many
from redrive.database.connections.connect import connect
from redrive.dead_letters.groups import store as groups
from tests.flow.harness import ROOT, Worker
from trials.chaos.clock import COMPILER, Clock
from trials.chaos.holding import (
    Hold,
    InHandler,
    cancel,
    hold_seconds,
    kill_noting,
    produce,
)
from trials.chaos.ledger import HOME
from trials.chaos.schedule import Tier
from trials.chaos.verdict import Fault

TTL = 3.0
DRAIN = 4.0
ONE_BY_ONE = 5

# What the database itself saw; a trigger of ours in the transaction that lets go of the jobs.
WITNESS: LiteralString = """
    create table effects (n bigint not null);
    create table done (n bigint not null, at timestamptz not null);
    create function witness() returns trigger language plpgsql security definer as $$
    begin
        insert into public.done
        select (payload->>'n')::bigint, clock_timestamp() from gone where payload ? 'n';
        return null;
    end $$;
    create trigger witness after delete on redrive.jobs referencing old table as gone
        for each statement execute function witness();
    grant all on all tables in schema public to public;
"""
# JIT is on wherever Postgres has it. Once published, a table without an identity refuses updates.
AS_USERS_HAVE_IT: LiteralString = """
    alter database chaos set jit = on;
    create publication everything for all tables with (publish_via_partition_root = true);
"""
# The failing jobs and open dead letters of each group.
OF_ROWS: LiteralString = """
    select r.fingerprint, sum(r.failing)::int, sum(r.dead)::int
    from (select fingerprint, 1 as failing, 0 as dead from redrive.jobs
          where failed_at is not null
          union all
          select fingerprint, 0, 1 from redrive.dead_letters where state = 'open') r
    group by 1
"""
BACKLOG: LiteralString = """
    insert into redrive.jobs (kind, queue, payload)
    select 'backlog', 'nobody', jsonb_build_object('s', repeat('x', 1000))
    from generate_series(1, %s)
"""


class Redrive:
    """How to set it up, work on it, add to it and look at it."""

    name = "redrive"
    ttl = TTL
    live: LiteralString = (
        "select (payload->>'n')::bigint from redrive.jobs where payload ? 'n'"
    )
    # One buried over a worker that is there again goes back to work; its dead letter is kept.
    dead: LiteralString = (
        "select (payload->>'n')::bigint from redrive.dead_letters"
        " where payload ? 'n' and state = 'open'"
    )
    done: LiteralString = (
        "select n, extract(epoch from max(at))::float8 from done group by n"
    )

    def __init__(self, home: Path, tier: Tier) -> None:
        self.home = home
        self.tier = tier
        self.old = previous_version(home) if "upgrade" in tier.faults else None
        self._version = self.old
        self._stepped: set[int] = set()
        self._old: set[int] = set()
        self._old_until = 0.0
        self.clock = Clock(home) if COMPILER else None
        """The first worker's clock."""

    def set_up(self, url: str) -> None:
        """Its schema, a witness, and the rows that are in the way."""
        self._run(url, self._version, "migrate")
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(AS_USERS_HAVE_IT)
            conn.execute(WITNESS)
            conn.execute(BACKLOG, (self.tier.backlog,))
            conn.execute(
                "select redrive.set_limit_v1('held', 2, null, 'monkey', 'chaos')"
            )

    def upgrade(self, url: str) -> None:
        """Migrate while everything runs."""
        self._version = None
        self._run(url, None, "migrate")

    def is_old(self, worker: Worker) -> bool:
        """Whether it runs the version before the newest migration."""
        return worker.pid in self._old

    def old_is_gone(self) -> None:
        """From here on whatever happens is the new version's doing."""
        self._old_until = time.time()

    def dead_by_old(self, conn: psycopg.Connection[Any]) -> set[int]:
        """Jobs that died while there were workers of the old version."""
        died: LiteralString = self.dead + " and died_at < to_timestamp(%s)"
        return {n for (n,) in conn.execute(died, (self._old_until,))}

    def redrive(self, url: str, seconds: float) -> None:
        """Put dead letters back to work, and die over it."""
        why = [
            "--kind",
            "chaos.poison",
            "--yes",
            "--why",
            "the monkey",
            "--max-redrives",
            "1000",
        ]
        process = self._start(url, self._version, "dlq", "redrive", *why)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()

    def worker(self, n: int, url: str, effects_url: str) -> Worker:
        """Worker `n`, of the version of the moment. The clock of the first can be stepped."""
        env: dict[str, object] = {HOME: self.home}
        if self._version is not None:
            env["PYTHONPATH"] = self._version / "service"
        if n == 0 and self.clock is not None:
            env |= self.clock.environment
        worker = Worker(
            url,
            self.home,
            *("--slots", str(self.tier.slots), "--runners", str(self.tier.runners)),
            handlers="trials.chaos.handlers:jobs",
            redrive_heartbeat_ttl=TTL,
            redrive_drain_timeout=DRAIN,
            redrive_http_port=0,
            redrive_log_level="warning",
            redrive_test_url=effects_url,
            **env,
        )
        if n == 0:
            self._stepped.add(worker.pid)
        if self._version is not None:
            self._old.add(worker.pid)
        return worker

    def producer(self, url: str, seed: int) -> "Producer":
        """Who adds its jobs."""
        return Producer(url, self.tier, seed)

    def hold(
        self, url: str, n: int, chance: float, note: Callable[[str, int], None]
    ) -> Hold:
        """Return a transaction that a user keeps open, of one of four kinds."""
        way, seconds = int(chance * 4), hold_seconds(chance)
        if way == 0:
            return InHandler(url, seconds, n, self.home, None)
        if way == 1:
            return InHandler(url, seconds, n, self.home, kill_noting(note))
        if way == 2:
            return Hold(url, seconds, produce(n))
        return Hold(url, seconds, cancel(url, n), commits=False)

    def failures(self, conn: psycopg.Connection[Any]) -> dict[str, list[Any]]:
        """What else must be empty: effects that were not had once, and groups whose
        counts differ from the rows.
        """
        twice = conn.execute(
            "select n from effects group by n having count(*) > 1"
        ).fetchall()
        counted = {(g["group"], g["failing"], g["open"]) for g in groups.find(conn)}
        return {
            "effects_twice": [n for (n,) in twice],
            "miscounted": sorted(counted ^ {*conn.execute(OF_ROWS)}),
        }

    def recorded(self, conn: psycopg.Connection[Any], n: int) -> list[tuple[Any, ...]]:
        """What is on record of a job's failures."""
        return conn.execute(
            "select f.at, f.deliveries, f.attempt, f.worker, f.error_class, f.message, f.detail"
            " from redrive.failures f join redrive.dead_letters d on d.id = f.job"
            " where (d.payload->>'n')::bigint = %s order by f.at",
            (n,),
        ).fetchall()

    def silences(self, workers: list[Worker]) -> list[Fault]:
        """When workers noticed by themselves that they were not heard."""
        offset = time.time() - time.monotonic()
        lost = [
            (
                worker.pid,
                datetime.fromisoformat(json.loads(line)["time"]).timestamp() - offset,
            )
            for worker in workers
            for line in worker.log.read_text(errors="replace").splitlines()
            if '"declared lost"' in line
        ]
        # the log of a worker whose clock is wrong says that it happened, and not when
        always = (0.0, time.monotonic())
        return [
            Fault("silence", pid, *(always if pid in self._stepped else (at, at)))
            for pid, at in lost
        ]

    def _start(
        self, url: str, version: Path | None, *command: str
    ) -> subprocess.Popen[bytes]:
        path = {"PYTHONPATH": str(version / "service")} if version else {}
        with (self.home / "commands.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "redrive", *command],
                env=os.environ | {"REDRIVE_DATABASE_URL": url} | path,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _run(self, url: str, version: Path | None, *command: str) -> None:
        for _ in range(10):  # an outage is no reason not to upgrade
            if self._start(url, version, *command).wait() == 0:
                return
            time.sleep(1)
        msg = f"redrive {command[0]} failed: {(self.home / 'commands.log').read_text()[-2000:]}"
        raise AssertionError(msg)


PREVIOUS = ""
"""The tag of the release before; empty until there is one."""


def previous_version(home: Path) -> Path | None:
    """Return the source of $REDRIVE_CHAOS_OLD or of the release before; None if there is none."""
    try:
        old = os.environ.get("REDRIVE_CHAOS_OLD") or PREVIOUS
        if not old:
            return None
        source = _git("archive", old, "service", "sql", "alerts")
    except (OSError, subprocess.CalledProcessError):
        return None
    path = home / "previous"
    with tarfile.open(fileobj=BytesIO(source)) as archive:
        archive.extractall(path, filter="tar")
    return path


def _git(*arguments: str) -> bytes:
    git = shutil.which("git") or "git"
    command = [git, "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


class Producer(threading.Thread):
    """Enqueues with idempotency keys, repeats what it does not know the end of, and remembers what
    was committed.
    """

    def __init__(self, url: str, tier: Tier, seed: int) -> None:
        super().__init__(name="producer", daemon=True)
        self._url = make_conninfo(url, connect_timeout=5)
        self._tier = tier
        self._seed = seed
        self._dice = random.Random(f"producer {seed}")
        self.acknowledged: set[int] = set()
        self.added: dict[int, float] = {}
        """When each job that no other job holds up was committed."""
        self.doomed: set[int] = set()

    def run(self) -> None:
        """All jobs of the tier, evenly; what an outage held up comes after it."""
        began, made = time.monotonic(), 0
        conn: psycopg.Connection[Any] | None = None
        total, rate = self._tier.jobs, self._tier.jobs / self._tier.seconds
        while made < total:
            by_now = int(rate * (time.monotonic() - began))
            due = min(total, by_now, made + max(50, int(rate))) - made
            if due < min(rate / 10, total - made):
                time.sleep(0.02)
                continue
            jobs = [self._job(made + i) for i in range(due)]
            while True:
                try:
                    conn = conn or connect(self._url, name="producer")
                    with conn.transaction():
                        for job in jobs[:ONE_BY_ONE]:
                            enqueue(conn, **job)
                        enqueue_many(conn, jobs[ONE_BY_ONE:])
                    break
                except psycopg.Error:
                    if conn is not None:
                        conn.close()
                    conn = None
                    time.sleep(0.2)
            self.acknowledged.update(range(made, made + due))
            now = time.monotonic()
            free = (job["payload"]["n"] for job in jobs if "ordering_key" not in job)
            self.added |= dict.fromkeys(free, now)
            made += due
        if conn is not None:
            conn.close()

    def _job(self, n: int) -> dict[str, Any]:
        dice, is_dense = self._dice, self._tier.jobs / self._tier.seconds >= 200
        kind = dice.choices(
            [
                "chaos.sync",
                "chaos.async",
                "chaos.fails",
                "chaos.effect",
                "chaos.poison",
            ],
            # an effect opens a connection, which costs as much as fifty other jobs
            [30, 45, 14, 0.3 if is_dense else 3, min(1.0, 1000 / self._tier.jobs)],
        )[0]
        long = 0.3 if self._tier.jobs / self._tier.seconds < 60 else 0.05
        seconds = (
            dice.choice([0.2, 0.2, 0.5, 1.0, 2.5]) if dice.random() < long else 0.01
        )
        if kind == "chaos.effect":
            seconds = min(seconds, 0.5)
        payload = {"n": n, "seconds": seconds, "times": dice.randint(1, 3)}
        job: dict[str, Any] = {"kind": kind, "payload": payload}
        job["idempotency_key"] = f"{self._seed}-{n}"
        if kind == "chaos.poison":
            self.doomed.add(n)
        elif dice.random() < 0.1:
            job["ordering_key"] = f"key-{dice.randint(1, 1000 if is_dense else 50)}"
        return job
