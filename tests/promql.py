"""Ask Prometheus's own engine, over series that are made up and rules that are shipped."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools.alerts.replay import needed_rules

GOT = re.compile(r"^\s*got:\s*(.*)$", re.MULTILINE)


def ask(
    promtool: str,
    home: Path,
    series: Mapping[str, str],
    expression: str,
    *,
    minute: float,
    rules: Path | None = None,
) -> list[float]:
    """Return the values that an expression has then; `series` as promtool's tests write them,
    a sample every 30 s.

    promtool says what it found when it is not what was expected, so nothing that can be is.
    """
    test = {
        "interval": "30s",
        "input_series": [
            {"series": name, "values": text} for name, text in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": f"{minute * 60:g}s",
                "exp_samples": [{"labels": '{expected="nothing"}', "value": -1}],
            }
        ],
    }
    used = home / "used.rules.yaml"
    asked = re.findall(r"redrive:[a-z0-9_:]+", expression)
    used.write_text(needed_rules(rules.read_text(), asked) if rules else "groups: []")
    made = {"rule_files": [str(used)], "evaluation_interval": "30s"}
    path = home / "story.yaml"
    path.write_text(json.dumps(made | {"tests": [test]}))
    done = subprocess.run(
        [promtool, "test", "rules", path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    found = GOT.search(said)
    assert found, said
    if found[1] == "nil":
        return []
    return [json.loads(sample.rsplit(" ", 1)[1]) for sample in found[1].split(", {")]
