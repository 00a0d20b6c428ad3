"""Helm against an API that only records its requests. No cluster, no database."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.fakeapi import FakeCluster, fake_cluster
from tests.chart.helm import CHART, HELM_IS_THERE, Helm, Release
from tests.programs import missing

EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
EVERYTHING = Path(__file__).parent / "everything.yaml"
"""Values that turn everything on: each template renders."""

Render = Callable[..., Release]


def read_values(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text(), yaml.CSafeLoader)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helm]:
    if not HELM_IS_THERE:
        missing("helm-sdkpy", "pip: tests/chart/requirements.txt")
    process = Helm(tmp_path_factory.mktemp("helm"))
    yield process
    process.close()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    """Install into a cluster of its own, and say what was installed. The same values are rendered
    once.
    """
    rendered: dict[str, Release] = {}

    def render(
        values: dict[str, Any],
        *,
        name: str = "rel",
        chart: Path = CHART,
        again: bool = False,
    ) -> Release:
        key = json.dumps([name, str(chart), values])
        if again or key not in rendered:
            with fake_cluster() as cluster:
                rendered[key] = helm.release(
                    "install", cluster, values, name=name, chart=chart
                )
        return rendered[key]

    return render


@pytest.fixture(scope="session")
def with_dashboard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart and one more dashboard, with text that both Grafana and Helm would expand."""
    chart = tmp_path_factory.mktemp("chart") / "redrive"
    shutil.copytree(CHART, chart)
    (chart / "files" / "dashboards").mkdir(exist_ok=True)
    (chart / "files" / "dashboards" / "sample.json").write_text(
        '{"legend": "{{queue}} <b> \\u00e9 é", "n": 1}\n'
    )
    return chart


@pytest.fixture(scope="session")
def everything(render: Render) -> Release:
    return render(read_values(EVERYTHING))
