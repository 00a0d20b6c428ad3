"""The real promtool, amtool, Prometheus and Alertmanager, where they are installed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.programs import missing
from tools.alerts import monitoring

ROOT = Path(__file__).parents[2]
RULES = ROOT / "alerts" / "redrive.rules.yaml"
RUNBOOK = ROOT / "alerts" / "runbook.md"
ALERTMANAGER = ROOT / "alerts" / "alertmanager.example.yml"
UNIT_TESTS = sorted(Path(__file__).parent.glob("*.test.yaml"))
PACKAGES = monitoring.PACKAGES | {
    "promtool": "prometheus",
    "amtool": "prometheus-alertmanager",
}


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Find a program. Missing, it skips the test with what to install; in CI it fails it."""

    def find(name: str) -> str:
        return monitoring.find(name) or missing(
            name, f"Debian: apt-get install {PACKAGES[name]}"
        )

    return find


@pytest.fixture(scope="session")
def rules() -> list[dict[str, Any]]:
    """Every rule of the shipped file."""
    return [
        rule
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
    ]


@pytest.fixture(scope="session")
def alerts(rules: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The alerting rules of the shipped file by name."""
    return {rule["alert"]: rule for rule in rules if "alert" in rule}
