"""Hostile names in alerts, through the shipped templates of a real Alertmanager."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

from tests.flow.harness import wait_for
from tools.alerts.monitoring import Monitoring
from tools.alerts.pager import KEY, Pager

from .test_pagerduty import answers, running

HOSTILE = {
    "template": '{{ .CommonLabels.job }}{{ template "x" . }}',
    "half a template": "{{ range .Alerts }}",
    "quotes": '"}, "routing_key": "stolen", "x": {"y": "',
    "backslash": "\\",
    "line ends": "a\r\nX-Header: 1\n\n{}",
    "terminal": "\x1b[2J\x07",
    "HTML": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "Slack": "<!channel> <https://evil.example|Act> *x* `y`",
    "Markdown": "[Act](https://evil.example)",
    "address": "https://evil.example/",
    "host": "@evil.example/",
    "path": "../../../evil",
    "query": "pay&queue=other&next=https://evil.example#x",
    "scheme": "javascript:alert(1)",
    "group of the expression": "$1 ${1} $0",
    "other directions": "\u202epay\u2066",
    "long": "q" * 2_000,
}
HOSTS = {
    "Runbook": "runbook.example",
    "Dashboard": "grafana.example",
    "Console": "redrive.example",
    "Act": "redrive.example",
}


def _alert(text: str, number: int) -> dict[str, Any]:
    """Return an alert that has a text in each place that a name can reach."""
    now = datetime.now(UTC)
    names = dict.fromkeys(("queue", "kind", "group", "cell", "owner"), text)
    return {
        "labels": names
        | {
            "alertname": "RedriveDeadLettersGrowingFast",
            "alert_family": f"family-{number}",
            "service": "redrive",
            "severity": "critical",
            "namespace": "shop",
            "job": "redrive",
        },
        "annotations": {
            "summary": f"Dead letters of {text} grow.",
            "description": f"12 jobs of queue {text} died.",
            "runbook_url": "https://runbook.example/",
            "dashboard_url": f"https://grafana.example/d/x?var-queue={text}",
            "console_url": f"https://redrive.example/cells/{text}/jobs?queue={text}",
        },
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(hours=1)).isoformat(),
    }


def test_no_name_of_a_metric_calls_a_channel_of_slack(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    tool("alertmanager")
    pager = Pager()
    monitoring = Monitoring(tmp_path, pager, [], faster=150)
    monitoring.write_configuration()
    routes = tmp_path / "alertmanager.yml"
    webhook = tmp_path / "slack"
    webhook.write_text(f"http://{pager.address}/slack")
    shipped = "/etc/alertmanager/secrets/payments-slack"
    routes.write_text(routes.read_text().replace(shipped, str(webhook)))
    alert = _alert(HOSTILE["Slack"], 0)
    alert["labels"] |= {"owner": "payments", "severity": "warning"}

    _sent(monitoring, pager, tmp_path, [alert], lambda: pager.tickets)

    ((message,),) = [ticket["attachments"] for ticket in pager.tickets[:1]]
    for text in (message["title"], message["text"]):
        assert "&lt;!channel&gt; &lt;https://evil.example|Act&gt;" in text
        assert "<" not in text


def test_no_name_breaks_a_page_or_leads_elsewhere(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Neither a queue nor a cell can change the link Act."""
    tool("alertmanager")
    pager = Pager()
    monitoring = Monitoring(tmp_path, pager, [], faster=150)
    monitoring.write_configuration()
    alerts = [_alert(text, n) for n, text in enumerate(HOSTILE.values())]

    def all_came() -> bool:
        return len(_pages(pager)) >= len(HOSTILE)

    log = _sent(monitoring, pager, tmp_path, alerts, all_came)

    pages = _pages(pager)
    assert set(pages) == set(HOSTILE.values()), log[-2000:]
    for text, page in pages.items():
        assert page["routing_key"] == KEY
        assert page["payload"]["class"] == "RedriveDeadLettersGrowingFast"
        assert page["payload"]["custom_details"]["num_firing"] == "1"
        assert f"queue {text} died." in page["payload"]["custom_details"]["firing"]
        hosts = {
            link["text"]: urlsplit(str(link["href"])).netloc for link in page["links"]
        }
        assert hosts == HOSTS
        (act,) = (link["href"] for link in page["links"] if link["text"] == "Act")
        asked = parse_qs(act.rpartition("/act?")[2])
        assert asked == {"queue": [text]}


def _pages(pager: Pager) -> dict[str, dict[str, Any]]:
    return {event["payload"]["component"]: event for event in list(pager.events)}


def _sent(
    monitoring: Monitoring,
    pager: Pager,
    home: Path,
    alerts: list[dict[str, Any]],
    came: Callable[[], object],
) -> str:
    """Send alerts to an Alertmanager until its messages have come; return its log."""
    address = f"http://127.0.0.1:{monitoring.alertmanager}"
    log = home / "alertmanager.log"
    with pager.serve(), running(log, *monitoring.commands()["alertmanager"]):
        wait_for(lambda: answers(f"{address}/-/ready"))
        body = json.dumps(alerts).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"{address}/api/v2/alerts", body, headers), timeout=30):
            pass
        pager.until(came, 180)
    return log.read_text()
