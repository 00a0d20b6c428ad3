"""From a counter to a page and back: a real Prometheus with the shipped rules, a real Alertmanager with the shipped
routes, and a PagerDuty of our own at the end.

Time runs 150 times faster than in the shipped file: windows, `for` and intervals are shortened, nothing else.
"""

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ALERTMANAGER, RULES

FASTER = 150
KEY = "0123456789abcdef0123456789abcdef"
SECONDS = {"s": 1, "m": 60, "h": 3600}
DURATION = re.compile(r"(?P<before>\[|offset |(?:interval|for): )(?P<number>\d+)(?P<unit>[smh])(?P<after>\]|\b)")


def shortened(text: str, faster: int = FASTER) -> str:
    """The rules, with every duration divided."""

    def divide(found: re.Match[str]) -> str:
        milliseconds = int(found["number"]) * SECONDS[found["unit"]] * 1000 // faster
        return f"{found['before']}{milliseconds}ms{found['after']}"

    return DURATION.sub(divide, text)


class Fakes:
    """The exporter that Prometheus scrapes and the PagerDuty that Alertmanager calls, on one port."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.growing: set[tuple[str, str]] = set()
        self.totals = {("mail", "welcome"): 5000, ("billing", "charge"): 70_000}
        self.events: list[dict[str, Any]] = []
        self.tickets: list[dict[str, Any]] = []
        self.scrapes = 0
        fakes = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

            def answer(self, status: int, body: str) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def do_GET(self) -> None:
                self.answer(200, fakes.scrape())

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with fakes.changed:
                    (fakes.events if self.path == "/v2/enqueue" else fakes.tickets).append(body)
                    fakes.changed.notify_all()
                self.answer(202, '{"status": "success"}')

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def scrape(self) -> str:
        """What the exporter says; whatever grows has grown since the last time."""
        with self.changed:
            for series in self.growing:
                self.totals[series] = self.totals.get(series, 0) + 100
            self.scrapes += 1
            self.changed.notify_all()
            lines = [
                f'redrive_dlq_added_total{{queue="{queue}",kind="{kind}",reason="not_retryable"}} {count}'
                for (queue, kind), count in self.totals.items()
            ]
        for queue in ("mail", "billing"):
            lines.append(f'redrive_queue_depth{{queue="{queue}",state="ready"}} 0')
            lines.append(f'redrive_queue_objective{{queue="{queue}",objective="dlq_added_5m"}} 50')
        lines.append(f"redrive_stats_timestamp_seconds {time.time()}")
        return "\n".join(lines) + "\n"

    def until(self, what: Callable[[], object], seconds: float) -> bool:
        """Wait for something to become so."""
        with self.changed:
            return bool(self.changed.wait_for(what, seconds))

    def sent(self, action: str, queue: str) -> list[dict[str, Any]]:
        """The events of one kind about one queue."""
        return [
            event for event in self.events
            if event["event_action"] == action and queue in event["payload"]["summary"]
        ]  # fmt: skip

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Answer, from a thread."""
        thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(log: Path, *command: str) -> Iterator[None]:
    """Run a program in the background, its words in a file."""
    with log.open("w") as words, subprocess.Popen(command, stdout=words, stderr=subprocess.STDOUT) as process:
        try:
            yield
        finally:
            process.terminate()


def alertmanager_config(fakes: Fakes, folder: Path) -> str:
    """The shipped example with our addresses, our key and short intervals."""
    key = folder / "key"
    key.write_text(KEY)
    config = yaml.safe_load(ALERTMANAGER.read_text())
    config["global"] = {"pagerduty_url": f"http://{fakes.address}/v2/enqueue"}
    config["route"]["routes"][0] |= {"group_wait": "200ms", "group_interval": "1s"}
    for receiver in config["receivers"]:
        for pagerduty in receiver.get("pagerduty_configs", ()):
            pagerduty["routing_key_file"] = str(key)
        for webhook in receiver.get("webhook_configs", ()):
            webhook["url"] = f"http://{fakes.address}/tickets"
    return yaml.safe_dump(config)


def prometheus_config(alertmanager: int, *targets: str) -> str:
    """Scrape every second."""
    labels = {"cluster": "test", "namespace": "shop"}
    return yaml.safe_dump({
        "global": {"scrape_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]},
        "scrape_configs": [
            {"job_name": "redrive", "static_configs": [{"targets": list(targets), "labels": labels}]},
        ],
    })  # fmt: skip


@pytest.fixture
def fakes(tool: Callable[[str], str], tmp_path: Path) -> Iterator[Fakes]:
    """Everything up and scraping."""
    prometheus, alertmanager = tool("prometheus"), tool("alertmanager")
    fakes, port = Fakes(), free_port()
    (tmp_path / "alertmanager.yml").write_text(alertmanager_config(fakes, tmp_path))
    (tmp_path / "prometheus.yml").write_text(prometheus_config(port, fakes.address))
    (tmp_path / "rules.yaml").write_text(shortened(RULES.read_text()))
    with ExitStack() as stack:
        stack.enter_context(fakes.serve())
        stack.enter_context(running(
            tmp_path / "alertmanager.log", alertmanager, f"--config.file={tmp_path}/alertmanager.yml",
            f"--storage.path={tmp_path}/am", f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ))  # fmt: skip
        stack.enter_context(running(
            tmp_path / "prometheus.log", prometheus, f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/tsdb", f"--web.listen-address=127.0.0.1:{free_port()}",
            "--rules.alert.resend-delay=1s",
        ))  # fmt: skip
        up = fakes.until(lambda: fakes.scrapes >= 3, 30)

        assert up, (tmp_path / "prometheus.log").read_text()
        yield fakes


def test_every_duration_is_shortened() -> None:
    text = shortened(RULES.read_text())

    assert "[2006ms]" in text
    assert "for: 400ms" in text
    assert not re.search(r"(\[|: |offset )\d+[smh]\b", text)


@pytest.mark.slow
def test_growth_pages_once_per_queue_and_resolves(fakes: Fakes) -> None:
    old = fakes.sent("trigger", "mail") + fakes.sent("trigger", "billing")
    assert not old, "75,000 old dead letters page nobody"

    fakes.growing.add(("mail", "welcome"))

    assert fakes.until(lambda: fakes.sent("trigger", "mail"), 20), "growth pages"
    [page] = fakes.sent("trigger", "mail")
    assert page["routing_key"] == KEY
    assert page["payload"]["severity"] == "critical"
    assert page["payload"]["class"] == "RedriveDeadLettersGrowingFast"
    assert page["payload"]["component"] == "mail"
    assert page["payload"]["group"] == "test/shop/redrive"
    firing = page["payload"]["custom_details"]["firing"]
    assert re.search(r"\d+ jobs of queue mail .* objective is at most 50\.", firing)
    links = {link["text"]: link["href"] for link in page["links"]}
    assert links["Runbook"].endswith("/runbook.md#redrivedeadlettersgrowingfast")
    assert "var-namespace=shop" in links["Dashboard"]
    assert links["Console"].endswith("?queue=mail")

    fakes.growing |= {("mail", "reminder"), ("billing", "charge")}

    assert fakes.until(lambda: fakes.sent("trigger", "billing"), 20), "another queue is another incident"
    [other] = fakes.sent("trigger", "billing")
    assert other["dedup_key"] != page["dedup_key"]
    seen = fakes.scrapes
    assert fakes.until(lambda: fakes.scrapes >= seen + 2, 10)
    assert fakes.sent("trigger", "mail") == [page], "a second kind of the same queue is the same incident"

    fakes.growing.clear()

    assert fakes.until(lambda: fakes.sent("resolve", "mail") and fakes.sent("resolve", "billing"), 30)
    assert [event["dedup_key"] for event in fakes.sent("resolve", "mail")] == [page["dedup_key"]]
    assert [event["dedup_key"] for event in fakes.sent("resolve", "billing")] == [other["dedup_key"]]
    assert not fakes.tickets, "a page makes no ticket"
