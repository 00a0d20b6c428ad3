"""Draw the overview for the README: `python -m tools.dashboards.picture`; --help says the rest.

It lets a real installation run through an incident (Postgres, exporter, two workers, Prometheus
with the shipped rules), asks Prometheus the very queries of the dashboard, and draws the answers.
Nothing is made up; no Grafana runs. It needs matplotlib, which nothing else here does: `pip install
matplotlib`.
"""

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from redrive import enqueue
from tools.dashboards.rehearsal import ROOT, Rehearsal, concrete, prometheus_program, rehearsal
from tools.scratch import scratch_postgres

STEP = 5.0
RATES = {"mail.welcome": 14.0, "invoice.charge": 5.0, "report.build": 0.9}


def main() -> None:
    """Run it, or draw what was kept of a run."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("output", nargs="?", type=Path, default=ROOT / "docs" / "overview.png")
    options.add_argument("--minutes", type=float, default=12, help="how long the incident takes")
    options.add_argument(
        "--data", type=Path, help="keep the answers here; draw them again when they are there"
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
    """An incident from its beginning to its end. Returns the answers to every query of the
    overview.
    """
    program = prometheus_program()
    if program is None:
        sys.exit("prometheus is missing: install it (Debian: apt-get install prometheus)")
    with (
        scratch_postgres() as postgres,
        psycopg.connect(postgres.url(), autocommit=True) as conn,
        rehearsal(postgres.url(), postgres.home) as stage,
    ):
        return _incident(stage, program, conn, seconds)


def _incident(stage: Rehearsal, program: str, conn: Any, seconds: float) -> dict[str, Any]:
    conn.execute(
        "select redrive.set_objective_v1('billing', 'dlq_added_5m', 60, 'picture', 'a busy queue')"
    )
    _open(stage, program)
    over = threading.Event()
    producer = threading.Thread(target=_produce, args=(stage.url, over))
    producer.start()
    began = time.time()

    def at(share: float, act: Callable[[], object]) -> None:
        time.sleep(max(0.0, began + share * seconds - time.time()))
        act()

    try:
        at(0.10, lambda: stage.wrong("mail-provider", so=True))  # retries, no dead letters
        at(0.14, lambda: stage.wrong("mail-provider", so=False))
        at(0.28, lambda: stage.wrong("billing-release", so=True))  # a release that cannot charge
        at(0.46, lambda: stage.wrong("billing-release", so=False))  # undone
        at(0.58, lambda: _redrive(stage, 20, 2))  # canaries
        at(0.66, lambda: _redrive(stage, 100_000, 6))  # the rest
        at(1.0, lambda: None)
    finally:
        over.set()
        producer.join()
    return ask(stage, began, time.time())


def _open(stage: Rehearsal, program: str) -> None:
    """Start an exporter, two workers, and Prometheus that watches them."""
    stage.redrive("exporter", "exporter")
    for name in ("worker-1", "worker-2"):
        stage.redrive(name, "worker", "--slots", "8")
    stage.observe(program, fast=False)
    for name in ("exporter", "worker-1", "worker-2"):
        stage.wait_ready(name)


def _redrive(stage: Rehearsal, limit: int, per_second: float) -> None:
    which = ("--queue", "billing", "--limit", str(limit), "--rate", str(per_second))
    why = ("--why", "the fix is out", "--actor", "ada", "--yes")
    if stage.redrive("redrive", "dlq", "redrive", *which, *why).wait(120):
        sys.exit((stage.home / "redrive.log").read_text())


def _produce(url: str, over: threading.Event) -> None:
    """Enqueue as a shop would: unevenly."""
    with psycopg.connect(url, autocommit=True) as conn:
        number = 0
        while not over.wait(0.25):
            for kind, rate in RATES.items():
                wanted = rate / 4 * random.uniform(0.5, 1.5)
                for _ in range(int(wanted) + (random.random() < wanted % 1)):
                    number += 1
                    enqueue(conn, kind, {"number": number}, queue=QUEUES[kind])


QUEUES = {"mail.welcome": "mail", "invoice.charge": "billing", "report.build": "reports"}


def ask(stage: Rehearsal, start: float, end: float) -> dict[str, Any]:
    """Every query of the overview: panel -> legend of the query -> the series."""
    board = json.loads((ROOT / "dashboards" / "overview.json").read_text())
    answers: dict[str, Any] = {"start": start, "end": end, "panels": {}}
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            expression = concrete(target["expr"], rate_interval="30s")
            found = stage.prometheus.over(expression, start, end, STEP)
            answers["panels"].setdefault(panel["title"], []).append(
                {"legend": target.get("legendFormat", ""), "ref": target["refId"], "series": found}
            )
    alerts = stage.prometheus.over('ALERTS{service="redrive"}', start, end, STEP)
    return answers | {"alerts": alerts}


if __name__ == "__main__":
    main()
