"""What docs/compatibility.md says is what is tested and asked for."""

import re
import tomllib
from pathlib import Path

import yaml

from redrive.database.schema.migrate import OLDEST_SERVER, migrations
from tests.sql.test_migrations import RELEASED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compatibility.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]


def stated(what: str) -> list[str]:
    (cell,) = re.findall(rf"^\| {what} \| (.*?) \|", PAGE, re.MULTILINE)
    return cell.split(", ")


def test_each_python_and_postgres_is_tested() -> None:
    pythons = stated("Python")
    classified = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))

    assert pythons == classified == JOBS["everything"]["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert stated("Postgres") == JOBS["postgres"]["strategy"]["matrix"]["postgres"]
    assert int(stated("Postgres")[0]) * 10_000 == OLDEST_SERVER


def test_the_chart_asks_for_the_kubernetes_that_is_stated() -> None:
    chart = yaml.safe_load((ROOT / "helm" / "redrive" / "Chart.yaml").read_text())

    assert stated("Kubernetes") == [
        f"{chart['kubeVersion'].strip('>=').removesuffix('.0-0')} or newer"
    ]


def test_the_schema_serves_the_release_before() -> None:
    assert [
        m.name for m in migrations() if m.version > RELEASED and m.serves > RELEASED
    ] == []
