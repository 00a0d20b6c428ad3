"""From a counter to a page and back: a real Prometheus with the shipped rules, a real Alertmanager
with the shipped routes, and a PagerDuty of our own at the end.

Time runs 150 times faster than in the shipped file: windows, `for` and intervals are shortened,
nothing else.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tests.flow.harness import wait_for
from tools.alerts.monitoring import PACKAGES, Monitoring, shortened
from tools.alerts.pager import KEY, Pager

from .conftest import RULES

FASTER = 150


class Exporter:
    """What Prometheus scrapes; whatever grows has grown since the last time."""

    def __init__(self) -> None:
        self.growing: set[tuple[str, str]] = set()
        self.totals = {("mail", "welcome"): 5000, ("billing", "charge"): 70_000}
        self.scrapes = 0

    def collect(self) -> Iterator[Metric]:
        for series in list(self.growing):
            self.totals[series] = self.totals.get(series, 0) + 100
        self.scrapes += 1
        added = CounterMetricFamily(
            "redrive_dlq_added", "", labels=["queue", "kind", "reason"]
        )
        depth = GaugeMetricFamily("redrive_queue_depth", "", labels=["queue", "state"])
        objective = GaugeMetricFamily(
            "redrive_queue_objective", "", labels=["queue", "objective"]
        )
        for series, count in self.totals.items():
            added.add_metric([*series, "not_retryable"], count)
        for queue in ("mail", "billing"):
            depth.add_metric([queue, "ready"], 0)
            objective.add_metric([queue, "dlq_added_5m"], 50)
        yield from (
            added,
            depth,
            objective,
            GaugeMetricFamily("redrive_stats_timestamp_seconds", "", time.time()),
        )

    @contextmanager
    def serve(self) -> Iterator[int]:
        """Answer on a port, from a thread."""
        registry = CollectorRegistry()
        registry.register(self)
        server, thread = start_http_server(0, "127.0.0.1", registry)
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@contextmanager
def running(log: Path, *command: str) -> Iterator[None]:
    """Run a program in the background, its words in a file."""
    with (
        log.open("w") as words,
        subprocess.Popen(command, stdout=words, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture
def exporter() -> Exporter:
    return Exporter()


@pytest.fixture
def pager(
    exporter: Exporter, tool: Callable[[str], str], tmp_path: Path
) -> Iterator[Pager]:
    """Everything up and scraping."""
    for program in PACKAGES:
        tool(program)
    pager = Pager()
    with ExitStack() as stack:
        stack.enter_context(pager.serve())
        target = f"127.0.0.1:{stack.enter_context(exporter.serve())}"
        monitoring = Monitoring(tmp_path, pager, [target], faster=FASTER)
        monitoring.write_rules()
        monitoring.write_configuration()
        for name, command in monitoring.commands().items():
            stack.enter_context(running(tmp_path / f"{name}.log", *command))
        wait_for(
            lambda: exporter.scrapes >= 3,
            what=(tmp_path / "prometheus.log").read_text(),
        )
        yield pager


@pytest.fixture
def alertmanager(
    tool: Callable[[str], str], tmp_path: Path
) -> Iterator[tuple[Pager, str]]:
    """An Alertmanager without a Prometheus, and the address at which it takes alerts."""
    tool("alertmanager")
    pager = Pager()
    monitoring = Monitoring(tmp_path, pager, [], faster=FASTER)
    monitoring.write_configuration()
    address = f"http://127.0.0.1:{monitoring.alertmanager}"
    with (
        pager.serve(),
        running(tmp_path / "alertmanager.log", *monitoring.commands()["alertmanager"]),
    ):
        wait_for(lambda: answers(f"{address}/-/ready"))
        yield pager, f"{address}/api/v2/alerts"


def answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=30):
            return True
    except OSError:
        return False


def raise_alerts(
    address: str,
    shipped: dict[str, dict[str, Any]],
    alerts: list[tuple[str, str, str]],
    *,
    ends: bool,
) -> None:
    """Send alerts, each by name, namespace and queue, as Prometheus would; or end them."""
    now = datetime.now(UTC)
    body = [
        {
            "labels": {
                "alertname": name,
                "cluster": "c",
                "namespace": namespace,
                "job": "redrive",
                "queue": queue,
                **shipped[name]["labels"],
            },
            "annotations": {
                "summary": shipped[name]["annotations"]["summary"],
                "runbook_url": shipped[name]["annotations"]["runbook_url"],
            },
            "startsAt": now.isoformat(),
            "endsAt": (now if ends else now + timedelta(hours=1)).isoformat(),
        }
        for name, namespace, queue in alerts
    ]
    request = Request(
        address, json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=30):
        pass


def test_one_trouble_is_one_incident_and_no_ticket(
    alertmanager: tuple[Pager, str], alerts: dict[str, dict[str, Any]]
) -> None:
    """Three incidents for one trouble; what is of another queue or release is another."""
    pager, address = alertmanager
    trouble = [
        (f"RedriveDeadLetter{which}", "n", "pay")
        for which in ("sGrowingFast", "OnCriticalQueue", "BudgetBurningFast")
    ]
    inhibited = [
        (f"RedriveDeadLetter{which}", "n", "pay")
        for which in ("sGrowingSteadily", "BudgetBurningSlowly")
    ]
    others = [
        ("RedriveDeadLettersGrowingSteadily", "n", "mail"),
        ("RedriveDeadLettersGrowingSteadily", "m", "pay"),
        ("RedriveQueueWaitTooLong", "n", "pay"),
    ]
    raise_alerts(address, alerts, [*trouble, *inhibited, *others], ends=False)

    assert pager.until(lambda: pager.events and len(pager.tickets) >= len(others), 180)
    raise_alerts(address, alerts, trouble, ends=True)
    assert pager.until(lambda: pager.sent("resolve", "pay"), 180)
    keys = {event["dedup_key"] for event in pager.events}
    assert len(keys) == 1, "one incident, opened and closed"
    [source] = {event["payload"]["source"] for event in pager.sent("trigger", "pay")}
    assert source == "n/redrive/pay", "the release and the queue, and not Redrive"
    [page] = {event["payload"]["summary"] for event in pager.sent("trigger", "pay")}
    assert all(name in page for name, *_ in trouble)
    assert page.endswith(
        alerts[page.split(",", maxsplit=1)[0]]["annotations"]["summary"]
    )
    ticketed = {
        (
            alert["labels"]["alertname"],
            alert["labels"]["namespace"],
            alert["labels"]["queue"],
        )
        for ticket in pager.tickets[: len(others)]
        for alert in ticket["alerts"]
    }
    assert ticketed == set(others)


def test_when_nothing_moves_the_queues_that_wait_are_silent(
    alertmanager: tuple[Pager, str], alerts: dict[str, dict[str, Any]]
) -> None:
    """Each of them would be an incident of its own, for one lock."""
    pager, address = alertmanager
    whole = ("RedriveNothingMoves", "n", "")
    waiting = [
        (f"RedriveQueue{which}", "n", "pay") for which in ("Stalled", "WaitTooLong")
    ]
    other = ("RedriveQueueWaitTooLong", "m", "pay")
    raise_alerts(address, alerts, [whole, *waiting, other], ends=False)

    assert pager.until(lambda: pager.sent("trigger", "") and pager.tickets, 180)
    assert not pager.sent("trigger", "pay")
    ticketed = {
        a["labels"]["namespace"] for ticket in pager.tickets for a in ticket["alerts"]
    }
    assert "m" in ticketed


def test_messages_that_die_elsewhere_are_a_page_and_no_ticket_beside_it(
    alertmanager: tuple[Pager, str], alerts: dict[str, dict[str, Any]]
) -> None:
    """The gateway takes them in as dead letters, so two alerts see them."""
    pager, address = alertmanager
    page = ("RedriveDeadLettersGrowingFast", "n", "gateway")
    same = ("RedriveGatewayDeadLettersGrow", "n", "")
    other = ("RedriveGatewayDeadLettersGrow", "m", "")
    raise_alerts(address, alerts, [page, same, other], ends=False)

    assert pager.until(lambda: pager.sent("trigger", "gateway") and pager.tickets, 180)
    ticketed = {
        a["labels"]["namespace"] for ticket in pager.tickets for a in ticket["alerts"]
    }
    assert ticketed == {"m"}


def incidents(pager: Pager, action: str, queue: str) -> set[str]:
    """By their keys: whoever is away for two seconds, five minutes of the rules, tells twice."""
    return {event["dedup_key"] for event in pager.sent(action, queue)}


def test_every_duration_is_shortened() -> None:
    text = shortened(RULES.read_text(), FASTER)

    assert "[2006ms]" in text
    assert "for: 400ms" in text
    assert not re.search(r"(\[|: |offset )\d+[smh]\b", text)


@pytest.mark.slow
def test_growth_pages_once_per_queue_and_resolves(
    pager: Pager, exporter: Exporter
) -> None:
    old = pager.sent("trigger", "mail") + pager.sent("trigger", "billing")
    assert not old, "75,000 old dead letters page nobody"

    exporter.growing.add(("mail", "welcome"))

    assert pager.until(lambda: pager.sent("trigger", "mail"), 180), "growth pages"
    page, *_ = pager.sent("trigger", "mail")
    assert page["routing_key"] == KEY
    assert page["payload"]["severity"] == "critical"
    assert page["payload"]["class"] == "RedriveDeadLettersGrowingFast"
    assert page["payload"]["component"] == "mail"
    assert page["payload"]["source"] == "shop/redrive/mail"
    cause = "Mostly kind welcome, reason not_retryable."
    assert cause in page["payload"]["summary"]
    assert cause in page["payload"]["custom_details"]["firing"]
    assert page["payload"]["group"] == "demo/shop/redrive"
    firing = page["payload"]["custom_details"]["firing"]
    assert re.search(r"\d+ jobs of queue mail .* objective is at most 50\.", firing)
    links = {link["text"]: link["href"] for link in page["links"]}
    assert links["Runbook"].endswith("/runbook.md#redrivedeadlettersgrowingfast")
    assert "var-namespace=shop" in links["Dashboard"]
    assert links["Console"].endswith("?queue=mail")
    assert re.fullmatch(r"https?://[^/]+(/cells/[^/]+)?/act\?queue=mail", links["Act"])

    exporter.growing |= {("mail", "reminder"), ("billing", "charge")}

    assert pager.until(lambda: pager.sent("trigger", "billing"), 180), (
        "another queue is another incident"
    )
    other, *_ = pager.sent("trigger", "billing")
    assert other["dedup_key"] != page["dedup_key"]
    seen = exporter.scrapes
    wait_for(lambda: exporter.scrapes >= seen + 2)
    assert incidents(pager, "trigger", "mail") == {page["dedup_key"]}, (
        "a second kind of the same queue is the same incident"
    )

    exporter.growing.clear()

    assert pager.until(
        lambda: pager.sent("resolve", "mail") and pager.sent("resolve", "billing"), 60
    )
    assert incidents(pager, "resolve", "mail") == {page["dedup_key"]}
    assert incidents(pager, "resolve", "billing") == {other["dedup_key"]}
    ticketed = [
        alert["labels"] for ticket in pager.tickets for alert in ticket["alerts"]
    ]
    assert [labels for labels in ticketed if "queue" in labels] == [], (
        "a page makes no ticket"
    )
