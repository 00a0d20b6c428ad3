"""Prometheus and Alertmanager on this machine, with the shipped rules and routes.

Only their durations are divided and the required addresses filled in.
"""

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

from redrive.database.embedded import free_port
from tools.alerts.pager import KEY, Pager

PACKAGES = {"prometheus": "prometheus", "alertmanager": "prometheus-alertmanager"}
"""Program -> the Debian package that contains it."""

ALERTS = Path(__file__).parents[2] / "alerts"
"""The shipped rules and routes."""

SECONDS = {"s": 1, "m": 60, "h": 3600}
DURATION = re.compile(
    r"(?P<before>\[|offset |(?:interval|wait|for): )(?P<number>\d+)(?P<unit>[smh])(?P<after>\]|\b)"
)


def find(program: str) -> str | None:
    """Return a program's path. Debian's alertmanager is prometheus-alertmanager."""
    return shutil.which(program) or shutil.which(f"prometheus-{program}")


def shortened(text: str, faster: int) -> str:
    """Return rules or routes with every duration divided."""

    def divide(found: re.Match[str]) -> str:
        milliseconds = int(found["number"]) * SECONDS[found["unit"]] * 1000 // faster
        before = found["before"]
        after = found["after"]

        return f"{before}{milliseconds}ms{after}"

    return DURATION.sub(divide, text)


@dataclass
class Monitoring:
    """Prometheus and Alertmanager, with all their files in `home`.

    `targets`: scraped every second. `pager`: receives pages and tickets. `prometheus`,
    `alertmanager`: ports on loopback.
    """

    home: Path
    pager: Pager
    targets: list[str]
    faster: int = 60
    prometheus: int = field(default_factory=free_port)
    alertmanager: int = field(default_factory=free_port)

    def write_configuration(self) -> None:
        """Write all files that both programs need to start, except for the rules."""
        (self.home / "alertmanager.yml").write_text(self._routes())
        (self.home / "pagerduty.key").write_text(KEY)
        # JSON is valid YAML.
        (self.home / "prometheus.yml").write_text(json.dumps(self._scrapes(), indent=2))

    def commands(self) -> dict[str, list[str]]:
        """Return the command that starts each program."""
        return {
            "alertmanager": [
                find("alertmanager") or "alertmanager",
                f"--config.file={self.home}/alertmanager.yml",
                f"--storage.path={self.home}/alertmanager",
                f"--web.listen-address=127.0.0.1:{self.alertmanager}",
                "--cluster.listen-address=",
            ],
            "prometheus": [
                find("prometheus") or "prometheus",
                f"--config.file={self.home}/prometheus.yml",
                f"--storage.tsdb.path={self.home}/prometheus",
                f"--web.listen-address=127.0.0.1:{self.prometheus}",
                "--rules.alert.resend-delay=1s",
            ],
        }

    def write_rules(self) -> None:
        """Write the rules."""
        text = (ALERTS / "redrive.rules.yaml").read_text()
        (self.home / "rules.yaml").write_text(shortened(text, self.faster))

    def growth(self, queue: str) -> list[float]:
        """Return the recorded growth of a queue's dead letters; empty at first."""
        return self._query(f'redrive:dlq_added:increase5m{{queue="{queue}"}}')

    def _query(self, expression: str) -> list[float]:
        path = f"/api/v1/query?query={quote(expression)}"
        address = f"http://127.0.0.1:{self.prometheus}{path}"

        try:
            with urlopen(address, timeout=5) as answer:
                found = json.load(answer)
        except OSError:
            # Prometheus does not answer yet.
            return []

        return [float(series["value"][1]) for series in found["data"]["result"]]

    def _routes(self) -> str:
        text = shortened((ALERTS / "alertmanager.example.yml").read_text(), self.faster)
        for shipped, ours in {
            "http://tickets.example/alertmanager": f"http://{self.pager.address}/tickets",
            "/etc/alertmanager/secrets/redrive-pagerduty": json.dumps(
                f"{self.home}/pagerduty.key"
            ),
        }.items():
            text = text.replace(shipped, ours)

        return f"global: {{pagerduty_url: 'http://{self.pager.address}/v2/enqueue'}}\n{text}"

    def _scrapes(self) -> dict[str, object]:
        labels = {"cluster": "demo", "namespace": "shop"}
        return {
            "global": {"scrape_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "alerting": {
                "alertmanagers": [
                    {
                        "static_configs": [
                            {"targets": [f"127.0.0.1:{self.alertmanager}"]}
                        ]
                    }
                ]
            },
            "scrape_configs": [
                {
                    "job_name": "redrive",
                    "static_configs": [{"targets": self.targets, "labels": labels}],
                }
            ],
        }
