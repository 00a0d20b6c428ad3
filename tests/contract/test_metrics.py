"""Metrics, alerts, dashboards and docs say the same: what is used exists, what exists is used or
explained.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from prometheus_client.metrics_core import Metric

from redrive.observability import process
from tests import pages
from tests.postgres import Database
from tests.programs import missing
from tools.metrics_page import (
    NOT_SHOWN,
    of_a_gateway,
    of_a_worker,
    of_the_console,
    of_the_database,
    recorded,
    series,
    used,
)

ROOT = Path(__file__).parents[2]
# The rows that the card of the project names, with exactly these labels.
PROMISED = {
    "redrive_jobs_inflight": ("queue", "kind"),
    "redrive_job_retries": ("queue", "kind", "reason"),
    "redrive_dlq_depth": ("queue", "reason"),
    "redrive_dlq_added": ("queue", "kind", "reason"),
    "redrive_dlq_added_per_minute": ("queue",),
}


@pytest.fixture
def exported(database: Database) -> dict[str, Metric]:
    """Every family by its name, of a worker, of the database, and of any process."""
    mine = (
        family for family in process.collect() if family.name.startswith("redrive_")
    )
    families = [
        *of_a_worker(),
        *of_the_database(database.url),
        *of_the_console(),
        *of_a_gateway(),
        *mine,
    ]
    found = {family.name: family for family in families}

    assert len(found) == len(families), "two families of one name"
    return found


def test_every_metric_that_is_used_is_exported(exported: dict[str, Metric]) -> None:
    known = {name for family in exported.values() for name in series(family)}

    assert set(used()) - known == set()


def test_queries_on_pages_are_of_metrics_that_exist(
    exported: dict[str, Metric], tmp_path: Path
) -> None:
    """Pages show queries, and Prometheus can parse them."""
    promtool = shutil.which("promtool") or missing("promtool", "Prometheus")
    known = {name for family in exported.values() for name in series(family)}
    queries = [block.text for block in pages.blocks("promql")]
    rules = [{"record": f"query:{n}", "expr": q} for n, q in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))

    done = subprocess.run(
        [promtool, "check", "rules", file], capture_output=True, text=True, check=False
    )

    assert queries
    assert done.returncode == 0, done.stderr
    named = {
        name for query in queries for name in re.findall(r"(?<!:)\bredrive_\w+", query)
    }
    assert named - known == set()


def test_every_recorded_series_that_is_used_is_recorded() -> None:
    rules = yaml.safe_load((ROOT / "alerts" / "redrive.rules.yaml").read_text())
    names = {
        rule["record"]
        for group in rules["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    boards = " ".join(path.read_text() for path in (ROOT / "dashboards").glob("*.json"))

    assert recorded(boards) <= names
    assert recorded(boards), "the window of an alert is shown by the alert's own number"


def test_every_metric_that_is_exported_is_shown_or_explained(
    exported: dict[str, Metric],
) -> None:
    where = used()
    for name, family in exported.items():
        assert series(family) & set(where) or name in NOT_SHOWN, (
            f"{name} is on no dashboard, in no alert, and unexplained"
        )

    assert set(NOT_SHOWN) <= set(exported)


def test_every_metric_is_on_a_dashboard(exported: dict[str, Metric]) -> None:
    """An alert that fires on something one cannot look at sends its reader away empty-handed."""
    where = used()
    for name, family in exported.items():
        shown = set().union(*(where.get(each, set()) for each in series(family)))

        assert shown - {"alerts"} or name in NOT_SHOWN, name


def test_the_metrics_that_are_promised_have_their_labels(
    exported: dict[str, Metric],
) -> None:
    assert {name: tuple(exported[name]._labelnames) for name in PROMISED} == PROMISED


def test_names_follow_the_conventions(exported: dict[str, Metric]) -> None:
    for name, family in exported.items():
        assert re.fullmatch(r"redrive_[a-z0-9_]+", name)
        assert family.documentation.endswith("."), name
        assert not {"job", "instance", "id", "tenant", "message"} & set(
            family._labelnames
        ), name
        if family.type == "histogram":
            assert name.endswith("_seconds"), name


def test_the_names_of_opentelemetry_are_its_own_and_ours_are_exported(
    exported: dict[str, Metric],
) -> None:
    """No mapping was to be found."""
    section = (
        (ROOT / "docs" / "observability.md")
        .read_text()
        .split("## Names of OpenTelemetry")[1]
    )
    table = re.findall(
        r"^\| `(messaging\.[\w.]+)` \| `(redrive_\w+)` \|", section, re.MULTILINE
    )
    theirs = {
        value for name, value in vars(messaging_metrics).items() if "MESSAGING_" in name
    }
    ours = {
        name for family in exported.values() for name in series(family) | {family.name}
    }

    assert len(table) == 4
    assert {name for name, _ in table} <= theirs
    assert {name for _, name in table} <= ours
