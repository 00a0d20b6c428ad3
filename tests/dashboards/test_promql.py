"""Every query parses, by Prometheus's own parser."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml

from tools.dashboards.rehearsal import concrete

from .conftest import other_queries, queries


def test_every_query_parses(tool: Callable[[str], str], tmp_path: Path) -> None:
    """As rules, so that promtool reads them without a server."""
    found = [*queries(), *other_queries()]
    rules = [
        {"record": f"query:{number}", "expr": concrete(q.expression)}
        for number, q in enumerate(found)
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(
        yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]})
    )
    done = subprocess.run(
        [tool("promtool"), "check", "rules", path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(found)} rules found" in done.stdout


def test_nothing_is_left_of_grafanas_variables() -> None:
    for query in (*queries(), *other_queries()):
        assert "$" not in concrete(query.expression), query
