"""The example configuration of Alertmanager: who hears of what, and what is inhibited."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ALERTMANAGER


def amtool(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it."""
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def pagerduty() -> dict[str, Any]:
    """The receiver that pages."""
    receivers = yaml.safe_load(ALERTMANAGER.read_text())["receivers"]
    return next(
        r["pagerduty_configs"][0] for r in receivers if r["name"] == "redrive-pagerduty"
    )


def test_the_configuration_is_valid(tool: Callable[[str], str]) -> None:
    done = amtool(tool("amtool"), "check-config", ALERTMANAGER)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("service=redrive severity=critical queue=mail", "redrive-pagerduty"),
        ("service=redrive severity=warning queue=mail", "redrive-tickets"),
        ("service=redrive severity=info", "redrive-quiet"),
        # Each team has its own PagerDuty service and its own channel.
        (
            "service=redrive severity=critical queue=pay owner=payments",
            "payments-pagerduty",
        ),
        ("service=redrive severity=warning owner=payments", "payments-slack"),
        ("service=redrive severity=info owner=payments", "redrive-quiet"),
        ("service=redrive severity=critical owner=mail", "redrive-pagerduty"),
        ("service=web severity=critical owner=payments", "default"),
        ("service=redrive", "redrive-tickets"),
        ("service=web severity=critical", "default"),
    ],
)
def test_each_severity_reaches_its_receiver(
    tool: Callable[[str], str], labels: str, receiver: str
) -> None:
    routes = ("config", "routes", "test", f"--config.file={ALERTMANAGER}")
    done = amtool(
        tool("amtool"), *routes, f"--verify.receivers={receiver}", *labels.split()
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_reaches_a_receiver_of_ours(
    tool: Callable[[str], str], alerts: dict[str, dict[str, Any]]
) -> None:
    wanted = {
        "critical": "redrive-pagerduty",
        "warning": "redrive-tickets",
        "info": "redrive-quiet",
    }
    for name, alert in alerts.items():
        labels = [f"{key}={value}" for key, value in alert["labels"].items()]
        done = amtool(
            tool("amtool"),
            "config",
            "routes",
            "test",
            f"--config.file={ALERTMANAGER}",
            *labels,
        )

        assert done.stdout.strip() == wanted[alert["labels"]["severity"]], name


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("critical", "critical"),
        ("warning", "warning"),
        ("info", "info"),
        ("page", "info"),
        ("", "info"),
    ],
)
def test_severities_are_ones_pagerduty_knows(
    tool: Callable[[str], str], ours: str, theirs: str
) -> None:
    data: dict[str, object] = {
        "receiver": "r",
        "status": "firing",
        "alerts": [],
        "commonLabels": {"severity": ours},
    }
    text = f"--template.text={pagerduty()['severity']}"
    done = subprocess.run(
        [
            tool("amtool"),
            "template",
            "render",
            "--template.glob=none/*.tmpl",
            text,
            "--template.data=/dev/stdin",
        ],
        input=json.dumps(data),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.stdout.strip() == theirs, done.stderr


def test_an_incident_is_a_family_and_a_queue() -> None:
    route = yaml.safe_load(ALERTMANAGER.read_text())["route"]["routes"][0]

    assert route["group_by"] == [
        "alert_family",
        "cluster",
        "cell",
        "namespace",
        "job",
        "queue",
        "owner",
    ]
    assert all("group_by" not in inner for inner in route["routes"])


def has_queue(alert: dict[str, Any]) -> bool:
    return "$labels.queue" in alert["annotations"]["dashboard_url"]


def test_a_page_silences_only_the_ticket_about_the_same_trouble(
    alerts: dict[str, dict[str, Any]],
) -> None:
    rule, *_ = yaml.safe_load(ALERTMANAGER.read_text())["inhibit_rules"]

    assert rule["source_matchers"] == ['service="redrive"', 'severity="critical"']
    assert rule["target_matchers"] == ['service="redrive"', 'severity="warning"']
    assert rule["equal"] == [
        "cluster",
        "cell",
        "namespace",
        "job",
        "queue",
        "owner",
        "alert_family",
    ]
    # Labels that are missing on both sides count as equal: what has no queue must not share a
    # family with what has one.
    with_queue = {a["labels"]["alert_family"] for a in alerts.values() if has_queue(a)}
    critical = {
        a["labels"]["alert_family"]
        for a in alerts.values()
        if a["labels"]["severity"] == "critical" and not has_queue(a)
    }

    assert not with_queue & critical


def test_a_page_links_to_runbook_dashboard_console_and_acts_and_holds_no_secret() -> (
    None
):
    receiver = pagerduty()

    assert [link["text"] for link in receiver["links"]] == [
        "Runbook",
        "Dashboard",
        "Console",
        "Act",
    ]
    assert "routing_key" not in receiver
    assert receiver["routing_key_file"]
    assert receiver["send_resolved"] is True
