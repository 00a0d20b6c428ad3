"""Grafana's own dashboard-linter over the dashboards, with its exclusions in dashboards/.lint.

No package index has the program, so tests run it only where somebody has put it on the PATH.
test_lint.py holds the dashboards to the same rules everywhere.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import BOARDS, ROOT
from .test_lint import WITH_INSTANCE

VERSION = "v0.1.1"
"""The version that judged the dashboards last."""

LINTED = ROOT / "dashboards"
EXCLUDED = yaml.safe_load((LINTED / ".lint").read_text())
OF_AN_INSTANCE = {"template-instance-rule", "target-instance-rule"}


@pytest.fixture(scope="session")
def linter() -> str:
    """The program: DASHBOARD_LINTER, or the one on the PATH."""
    found = os.environ.get("DASHBOARD_LINTER") or shutil.which("dashboard-linter")
    if not found:
        pytest.skip(
            f"dashboard-linter {VERSION} is missing: see docs/grafana.md#change-them"
        )
    return found


def lint(linter: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [linter, "lint", "--strict", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", BOARDS)
def test_grafanas_own_linter_finds_nothing(linter: str, name: str) -> None:
    done = lint(linter, LINTED / name)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_judges(linter: str, tmp_path: Path) -> None:
    text = (LINTED / "worker.json").read_text()
    (tmp_path / ".lint").write_text((LINTED / ".lint").read_text())
    broken = tmp_path / "worker.json"
    broken.write_text(text.replace('"editable": false', '"editable": true'))

    assert lint(linter, broken).returncode != 0


def entries(rule: dict[str, Any]) -> set[str]:
    return {entry["dashboard"] for entry in rule["entries"]}


def test_every_exclusion_has_a_reason_and_names_dashboards() -> None:
    titles = {board["title"] for board in BOARDS.values()}

    assert set(EXCLUDED) == {"exclusions"}
    for name, rule in EXCLUDED["exclusions"].items():
        assert len(rule["reason"]) > 40, name
        assert rule["entries"], f"{name} would be off for all dashboards"
        assert entries(rule) <= titles, name


def test_only_the_rules_of_an_instance_are_left_out() -> None:
    """For the dashboards that show no worker alone."""
    without = {
        board["title"] for name, board in BOARDS.items() if name not in WITH_INSTANCE
    }

    assert EXCLUDED["exclusions"].keys() == OF_AN_INSTANCE
    assert all(entries(rule) == without for rule in EXCLUDED["exclusions"].values())
