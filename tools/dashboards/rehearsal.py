"""A small real installation, to try the queries of the dashboards.

It runs exporter, workers and Prometheus on loopback. The test of the queries uses it.
Its handlers fail when a file says so.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from redrive import Handlers, Policy
from redrive.database.embedded import free_port

ROOT = Path(__file__).parents[2]
RULES = ROOT / "alerts" / "redrive.rules.yaml"
# Without the prefix REDRIVE_, because the worker warns about unknown settings.
HOME_VARIABLE = "REHEARSAL_HOME"

HICCUPS = 0.03

jobs = Handlers()


def _is_wrong(what: str) -> bool:
    return (Path(os.environ[HOME_VARIABLE]) / what).exists()


@jobs.handle(
    "mail.welcome",
    queue="mail",
    policy=Policy(max_attempts=4, backoff=1, backoff_cap=8),
    depends_on=["mail-provider"],
)
def welcome(_payload: dict[str, Any]) -> None:
    """Send a mail; the provider fails occasionally."""
    time.sleep(random.uniform(0.01, 0.08))
    if random.random() < HICCUPS or _is_wrong("mail-provider"):
        msg = "421 service not available"
        raise ConnectionError(msg)


@jobs.handle("invoice.charge", queue="billing")
def charge(payload: dict[str, Any]) -> None:
    """Charge an invoice; one release cannot."""
    time.sleep(random.uniform(0.02, 0.15))
    if payload.get("poisoned") or _is_wrong("billing-release"):
        msg = "unsupported operand type(s) for +: 'NoneType' and 'Decimal'"
        raise TypeError(msg)


@jobs.handle(
    "report.build",
    queue="reports",
    policy=Policy(max_attempts=2, backoff=1, backoff_cap=2),
)
def report(_payload: dict[str, Any]) -> None:
    """Build a report, slowly."""
    time.sleep(random.uniform(0.3, 1.2))
    if random.random() < HICCUPS:
        msg = "report is not ready"
        raise TimeoutError(msg)


def concrete(
    expression: str, *, rate_interval: str = "10s", shown: str = "10m", **variables: str
) -> str:
    """Return the query as Grafana would send it.

    Everything is selected unless `variables` say otherwise.
    """
    values = {
        "cluster": ".*",
        "cell": ".*",
        "namespace": ".*",
        "job": ".+",
        "queue": ".+",
        "instance": ".+",
    } | variables
    values |= {"__rate_interval": rate_interval, "__range": shown}
    for name, value in sorted(values.items(), key=lambda item: -len(item[0])):
        expression = expression.replace(f"${name}", value)
    return expression


class Prometheus:
    """Client of the HTTP API of Prometheus."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **parameters: object) -> Any:
        """Return the answer."""
        with urlopen(
            f"http://{self.address}/api/v1/{path}?{urlencode(parameters)}", timeout=30
        ) as answer:
            return json.load(answer)["data"]

    def now(self, expression: str) -> list[dict[str, Any]]:
        """Return the value of each series at this moment."""
        return self.get("query", query=expression)["result"]

    @property
    def is_ready(self) -> bool:
        """Return True if Prometheus answers."""
        with (
            contextlib.suppress(OSError),
            urlopen(f"http://{self.address}/-/ready", timeout=5) as answer,
        ):
            return bool(answer.status == HTTPStatus.OK)
        return False


class Rehearsal:
    """Processes on a migrated database; `stop` ends them."""

    def __init__(self, url: str, home: Path) -> None:
        self.url, self.home = url, home
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self.prometheus = Prometheus(f"127.0.0.1:{free_port()}")

    def wrong(self, what: str, *, so: bool) -> None:
        """Break or repair a part: mail-provider, billing-release."""
        path = self.home / what
        path.touch() if so else path.unlink(missing_ok=True)

    def reserve(self, name: str) -> None:
        """Assign a port to a process before it starts.

        Prometheus is told all ports at once.
        """
        self.ports.setdefault(name, free_port())

    def redrive(
        self, name: str, *arguments: str, **env: object
    ) -> subprocess.Popen[bytes]:
        """Start `redrive exporter` or `redrive worker`."""
        self.reserve(name)
        fixed = {
            "REDRIVE_DATABASE_URL": self.url,
            "REDRIVE_HANDLERS": "tools.dashboards.rehearsal:jobs",
            "REDRIVE_HTTP_PORT": self.ports[name],
            HOME_VARIABLE: self.home,
        }
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("REDRIVE_")
        }
        environment = inherited | {
            key: str(value) for key, value in (fixed | env).items()
        }
        return self._start(
            name, [sys.executable, "-m", "redrive", *arguments], environment
        )

    def observe(self, program: str) -> None:
        """Start Prometheus with the shipped rules; all of it happens every second."""
        rules = RULES.read_text().replace("interval: 30s", "interval: 1s")
        (self.home / "rules.yaml").write_text(rules)
        targets = [f"127.0.0.1:{port}" for port in self.ports.values()]
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {
                    "job_name": "redrive",
                    "static_configs": [
                        {"targets": targets, "labels": {"namespace": "shop"}}
                    ],
                }
            ],
        }
        (self.home / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._start(
            "prometheus",
            [
                program,
                f"--config.file={self.home}/prometheus.yml",
                f"--storage.tsdb.path={self.home}/prometheus",
                f"--web.listen-address={self.prometheus.address}",
                "--log.level=warn",
            ],
            dict(os.environ),
        )
        wait_for(lambda: self.prometheus.is_ready)

    def _start(
        self, name: str, command: list[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.processes[name] = process
        return process

    def wait_ready(self, name: str) -> None:
        """Wait until the process answers /readyz.

        Raises:
            TimeoutError: it does not answer; the text has its log.
        """
        try:
            wait_for(lambda: self._get(name, "/readyz") is not None)
        except TimeoutError as error:
            raise TimeoutError(
                (self.home / f"{name}.log").read_text()[-2000:]
            ) from error

    def metrics(self, name: str) -> str:
        """Return the metrics that the process exports."""
        return self._get(name, "/metrics") or ""

    def _get(self, name: str, path: str) -> str | None:
        with (
            contextlib.suppress(OSError),
            urlopen(f"http://127.0.0.1:{self.ports[name]}{path}", timeout=5) as answer,
        ):
            return str(answer.read().decode())
        return None

    def stop(self) -> None:
        """Stop all processes."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(condition: Any, seconds: float = 180, every: float = 0.1) -> Any:
    """Poll until the condition is true; `every` is in seconds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            msg = f"it did not come true in {seconds:g} s"
            raise TimeoutError(msg)
        time.sleep(every)
    return found


@contextlib.contextmanager
def rehearsal(url: str, home: Path) -> Iterator[Rehearsal]:
    """Yield a rehearsal that is stopped at the end."""
    made = Rehearsal(url, home)
    try:
        yield made
    finally:
        made.stop()
