"""Draw the overview for the README: `python -m tools.dashboards.picture`.

A small real installation runs through an incident, a rollout of the exporter and a
restore of the database. It has Postgres, an exporter, two workers, and Prometheus with
the shipped rules. This program sends the dashboard's own queries to Prometheus and
draws the answers. No figure is invented, and Grafana does not run.

--help describes the options. matplotlib is required, which no other tool here uses:
`pip install matplotlib`.
"""

import argparse
import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from redrive import enqueue
from redrive.database.embedded import EmbeddedPostgres
from tools.dashboards.rehearsal import (
    ROOT,
    Rehearsal,
    concrete,
    prometheus_program,
    rehearsal,
)
from tools.scratch import scratch_postgres

STEP = 5.0
RATES = {"mail.welcome": 14.0, "invoice.charge": 5.0, "report.build": 0.9}


def main() -> None:
    """Run the incident, or draw a recorded run."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "output", nargs="?", type=Path, default=ROOT / "docs" / "overview.png"
    )
    options.add_argument(
        "--minutes", type=float, default=12, help="how long the incident takes"
    )
    options.add_argument(
        "--data",
        type=Path,
        help="keep the answers here; draw them again when they are there",
    )
    chosen = options.parse_args()
    if find_spec("matplotlib") is None:
        sys.exit("matplotlib is missing: pip install matplotlib")
    if chosen.data is not None and chosen.data.exists():
        answers = json.loads(chosen.data.read_text())
    else:
        answers = perform(chosen.minutes * 60)
        if chosen.data is not None:
            chosen.data.write_text(json.dumps(answers))
    from tools.dashboards.drawing import draw  # noqa: PLC0415 # wants matplotlib

    draw(answers, chosen.output)


def perform(seconds: float) -> dict[str, Any]:
    """Run an incident from beginning to end.

    Returns the answers to every query of the overview.
    """
    program = prometheus_program()
    if program is None:
        sys.exit(
            "prometheus is missing: install it (Debian: apt-get install prometheus)"
        )
    with (
        scratch_postgres() as postgres,
        rehearsal(postgres.url(), postgres.home) as stage,
    ):
        return _incident(stage, program, Backup(postgres), seconds)


class Backup:
    """Dump of the database.

    It is restored aside and then replaces the database while clients use it.
    """

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self._postgres, self._file = postgres, postgres.home / "dump"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._postgres.program(program), *arguments], check=True, timeout=60
        )

    def take(self) -> None:
        """Dump the database in its current state."""
        url = self._postgres.url()
        self._run("pg_dump", "--format=custom", f"--file={self._file}", url)

    def restore(self) -> None:
        """Restore the dump."""
        with psycopg.connect(self._postgres.url("template1"), autocommit=True) as conn:
            conn.execute("create database fresh template template0")
            self._run(
                "pg_restore", f"--dbname={self._postgres.url('fresh')}", str(self._file)
            )
            conn.execute("alter database postgres allow_connections false")
            conn.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where datname = 'postgres'"
            )
            conn.execute("alter database postgres rename to old")
            conn.execute("alter database fresh rename to postgres")


def _incident(
    stage: Rehearsal, program: str, backup: Backup, seconds: float
) -> dict[str, Any]:
    with psycopg.connect(stage.url, autocommit=True) as conn:
        objective = "'billing', 'dlq_added_5m', 60, 'picture', 'a busy queue'"
        conn.execute(f"select redrive.set_objective_v1({objective})")
    _open(stage, program)
    over = threading.Event()
    producer = threading.Thread(target=_produce, args=(stage.url, over))
    producer.start()
    began = time.time()
    events: dict[str, float] = {}

    def at(share: float, act: Callable[[], object], event: str = "") -> None:
        time.sleep(max(0.0, began + share * seconds - time.time()))
        if event:
            events[event] = time.time()
        act()

    try:
        at(
            0.08, lambda: stage.wrong("mail-provider", so=True)
        )  # retries, no dead letters
        at(0.12, lambda: stage.wrong("mail-provider", so=False))
        at(
            0.22, lambda: stage.wrong("billing-release", so=True)
        )  # a release that cannot charge
        at(0.30, backup.take)
        at(0.32, lambda: _replace_exporter(stage), "exporter replaced")
        at(
            0.40, lambda: stage.wrong("billing-release", so=False)
        )  # the release is rolled back
        at(0.48, lambda: _redrive(stage, 20, 2))  # canaries
        at(0.54, lambda: _redrive(stage, 100_000, 8))  # the rest
        at(0.74, backup.restore, "database restored")
        at(
            0.84, lambda: _redrive(stage, 100_000, 8)
        )  # redrive the ones that died again
        at(1.0, lambda: None)
    finally:
        over.set()
        producer.join()
    return ask(stage, began, time.time()) | {"events": events}


def _open(stage: Rehearsal, program: str) -> None:
    """Start an exporter, two workers, and Prometheus that watches them.

    Start the next exporter too.
    """
    stage.redrive("exporter", "exporter")
    for name in ("worker-1", "worker-2"):
        stage.redrive(name, "worker", "--slots", "8")
    stage.reserve("next-exporter")
    stage.observe(program, fast=False)
    for name in ("exporter", "worker-1", "worker-2"):
        stage.wait_ready(name)


def _replace_exporter(stage: Rehearsal) -> None:
    stage.redrive("next-exporter", "exporter")
    stage.wait_ready("next-exporter")
    time.sleep(10)  # both run for a while, as in a rollout
    stage.end("exporter")


def _redrive(stage: Rehearsal, limit: int, per_second: float) -> None:
    which = ("--queue", "billing", "--limit", str(limit), "--rate", str(per_second))
    why = ("--why", "the fix is out", "--actor", "ada", "--yes")
    if stage.redrive("redrive", "dlq", "redrive", *which, *why).wait(120):
        sys.exit((stage.home / "redrive.log").read_text())


def _produce(url: str, over: threading.Event) -> None:
    """Enqueue jobs at an uneven rate, like a shop, also after the database is back."""
    while not over.wait(0.25):
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(url, autocommit=True) as conn,
        ):
            _enqueue(conn, over)


def _enqueue(conn: Any, over: threading.Event) -> None:
    number = 0
    while not over.wait(0.25):
        for kind, rate in RATES.items():
            wanted = rate / 4 * random.uniform(0.5, 1.5)
            for _ in range(int(wanted) + (random.random() < wanted % 1)):
                number += 1
                enqueue(conn, kind, {"number": number}, queue=QUEUES[kind])


QUEUES = {
    "mail.welcome": "mail",
    "invoice.charge": "billing",
    "report.build": "reports",
}


def ask(stage: Rehearsal, start: float, end: float) -> dict[str, Any]:
    """Run every query of the overview.

    Returns the series by panel and by legend of the query.
    """
    board = json.loads((ROOT / "dashboards" / "overview.json").read_text())
    answers: dict[str, Any] = {"start": start, "end": end, "panels": {}}
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            expression = concrete(target["expr"], rate_interval="30s")
            found = stage.prometheus.over(expression, start, end, STEP)
            answers["panels"].setdefault(panel["title"], []).append(
                {
                    "legend": target.get("legendFormat", ""),
                    "ref": target["refId"],
                    "series": found,
                }
            )
    alerts = stage.prometheus.over('ALERTS{service="redrive"}', start, end, STEP)
    return answers | {"alerts": alerts}


if __name__ == "__main__":
    main()
