"""Friday evening: three workers, an exporter, Prometheus with the shipped rules, Alertmanager with
the shipped routes, and a PagerDuty of our own. Poison comes in, the page arrives, the cause is
fixed, `redrive dlq redrive`, it resolves.

Time runs 60 times faster than in the shipped rules: windows, `for` and intervals are shortened,
nothing else.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from redrive.database.embedded import free_port
from tests.alerts.test_pagerduty import running
from tests.flow.harness import ROOT, Workers, wait_for, workers_on
from tests.postgres import Database
from tools.alerts.monitoring import PACKAGES, Monitoring
from tools.alerts.pager import Pager

pytestmark = [pytest.mark.scenario, pytest.mark.slow]

ALERT = "RedriveDeadLettersGrowingFast"
OLD, POISON = 300, 120


class Scenario:
    """What runs, and what was told of it so far."""

    def __init__(self, database: Database, workers: Workers, pager: Pager) -> None:
        self.database, self.workers, self.pager = database, workers, pager
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        """One line of the timeline."""
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def redrive(self, *arguments: str) -> str:
        """A command of the CLI."""
        done = subprocess.run(
            [sys.executable, "-m", "redrive", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ
            | {"REDRIVE_DATABASE_URL": self.database.url, "REDRIVE_ACTOR": "on-call"},
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def enqueue(self, address: str, n: int) -> None:
        """Mails to send."""
        self.database.rows(
            "select redrive.enqueue("
            "'mail.welcome', jsonb_build_object('to', %s::text), queue => 'mail')"
            " from generate_series(1, %s)",
            address,
            n,
        )

    def queue(self) -> dict[str, Any]:
        """The line of `redrive queue ls`."""
        lines = self.redrive("queue", "ls", "--json").splitlines()
        return next(line for line in map(json.loads, lines) if line["queue"] == "mail")

    def dead(self, n: int) -> None:
        """Wait until this number of letters is open and nothing else is left."""
        seen = "select count(*) filter (where state = 'open') from redrive.dead_letters"
        wait_for(
            lambda: (
                self.database.value(seen) == n
                and not self.database.value("select count(*) from redrive.jobs")
            )
        )

    def page(self, action: str) -> dict[str, Any]:
        """Wait for the event about the growth."""

        def found() -> list[dict[str, Any]]:
            # an incident is of all alerts of its family, and its summary names them
            sent = self.pager.sent(action, "mail")
            return [event for event in sent if ALERT in event["payload"]["summary"]]

        assert self.pager.until(found, 180), f"no {action} came: {self.pager.events}"
        return found()[0]


def _alert(event: dict[str, Any]) -> str:
    """The alert that an event is about; a resolve says it in its summary only."""
    return (
        event["payload"].get("class")
        or re.findall(r"Redrive\w+", event["payload"]["summary"])[0]
    )


@pytest.fixture
def scenario(
    database: Database, tool: Callable[[str], str], tmp_path: Path
) -> Iterator[Scenario]:
    """Everything up, and a dead letter queue that is large and calm."""
    for program in PACKAGES:
        tool(program)
    with ExitStack() as stack:
        pager, exporter = Pager(), free_port()
        stack.enter_context(pager.serve())
        workers = stack.enter_context(workers_on(database.url, tmp_path))
        scenario = Scenario(database, workers, pager)
        for _ in range(3):
            workers(handlers="trials.scenario.handlers:jobs", redrive_heartbeat_ttl=10)
        for worker in workers.started:
            worker.wait_ready()
        scenario.tell("three workers are ready")
        scenario.enqueue('"ada"@example.com', OLD)
        scenario.enqueue("grace@example.com", 1000)
        scenario.dead(OLD)
        scenario.tell(
            f"1000 mails were sent; {OLD} dead letters are older than what Prometheus knows"
        )
        stack.enter_context(
            running(
                tmp_path / "exporter.log",
                *(sys.executable, "-m", "redrive", "exporter"),
                *("--database-url", database.url, "--http-port", str(exporter)),
            )
        )
        targets = [
            f"127.0.0.1:{where}"
            for where in (exporter, *(worker.port for worker in workers.started))
        ]
        monitoring = Monitoring(tmp_path, pager, targets)
        monitoring.write_rules()
        monitoring.write_configuration()
        for name, command in monitoring.commands().items():
            stack.enter_context(running(tmp_path / f"{name}.log", *command))
        wait_for(
            lambda: monitoring.growth("mail") == [0.0],
            what=(tmp_path / "prometheus.log").read_text(),
        )
        scenario.tell(
            "exporter, Prometheus and Alertmanager are up; growth by the recording rule: 0"
        )
        yield scenario


def test_poison_pages_and_resolves_after_the_redrive(
    scenario: Scenario, tmp_path: Path
) -> None:
    # Sixty times faster, the seconds until the exporter is first scraped count as minutes without
    # figures.
    paged = {_alert(event) for event in scenario.pager.events} - {
        "RedriveMetricsAbsent"
    }
    assert not paged, "old dead letters page nobody"

    scenario.enqueue('"linus"@example.com', POISON)
    scenario.tell(f"{POISON} jobs came that the handler cannot read")
    scenario.dead(OLD + POISON)
    scenario.tell(f"all of them are dead letters; open now: {scenario.queue()['dead']}")
    page = scenario.page("trigger")
    scenario.tell(f"PagerDuty rings: {page['payload']['summary']}")
    said = page["payload"]["custom_details"]["firing"].strip()
    scenario.tell(f"  {said}")
    for link in page["links"]:
        scenario.tell(f"  {link['text']}: {link['href']}")

    numbers = re.search(
        r"([\d.]+) jobs of queue mail were dead-lettered .* objective is at most 20\.",
        said,
    )
    assert numbers, said
    assert 20 < float(numbers[1]) <= POISON, (
        "growth, counted once although four processes report it"
    )
    assert page["payload"]["severity"] == "critical"
    told = json.dumps(scenario.pager.events + scenario.pager.tickets)
    assert "example.com" not in told, "no payload leaves"
    assert "foreseen" not in told, "no text of an error leaves"

    (tmp_path / "fixed").touch()
    scenario.tell("the handler is fixed")
    shown = scenario.redrive("dlq", "redrive", "--queue", "mail", "--dry-run")
    assert scenario.queue()["dead"] == OLD + POISON, shown
    why = ("--why", "addresses in quotes are read now")
    done = json.loads(
        scenario.redrive("dlq", "redrive", "--queue", "mail", *why, "--yes", "--json")
    )
    scenario.tell(
        f"redrive dlq redrive --queue mail: {done['redriven']} of {done['matched']} redriven"
    )
    scenario.dead(0)
    scenario.tell("all of them have succeeded; open now: 0")
    resolved = scenario.page("resolve")
    scenario.tell("PagerDuty: resolved")

    assert resolved["dedup_key"] == page["dedup_key"]
    assert scenario.pager.until(lambda: not scenario.pager.unresolved(), 180), (
        scenario.pager.unresolved()
    )
    alerts = sorted(set(map(_alert, scenario.pager.events)))
    scenario.tell(f"no incident is open; there were: {', '.join(alerts)}")
