"""The queries of docs/slos.md, on a database that three exporters show and two workers serve."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tools.alerts.engine import GROUPS, STEP, World
from tools.alerts.replay import needed_rules

from .conftest import ROOT, RULES
from .situations import minute

MINUTES = 130


def database(world: World) -> None:
    """Nine of ten jobs of a minute succeed, and three of four redriven ones. One in ten
    minutes no worker is alive.
    """
    of_an_exporter = {
        ("stats_timestamp_seconds",): lambda now: now * 60,
        ("stats_up",): lambda _: 1,
        ("workers",): lambda now: 0 if now % 10 < 1 else 2,
        ("queue_oldest_ready_age_seconds", "queue=q"): lambda now: (
            700 if now % 10 < 1 else 20
        ),
        ("dlq_oldest_age_seconds", "queue=q"): lambda now: 3e5 if now % 10 < 5 else 60,
        ("dlq_removed_total", "queue=q", "action=dismissed"): lambda now: (
            7000 + 2 * now
        ),
        ("redrive_outcomes_total", "queue=q", "outcome=succeeded"): lambda now: 3 * now,
        ("redrive_outcomes_total", "queue=q", "outcome=dead_again"): lambda now: now,
    }
    of_a_worker = {
        ("job_attempts_total", "queue=q", "kind=k", "outcome=dead"): lambda now: now,
        ("job_attempts_total", "queue=q", "kind=k", "outcome=succeeded"): lambda now: (
            9 * now
        ),
        ("job_wait_seconds_bucket", "queue=q", "le=60.0"): lambda now: 8 * now,
        ("job_wait_seconds_count", "queue=q"): lambda now: 10 * now,
    }
    for pods, series in (("abc", of_an_exporter), ("vw", of_a_worker)):
        for pod in pods:
            for (name, *labels), value in series.items():
                world.put(
                    f"redrive_{name}",
                    lambda n, value=value: value(minute(world, n)),
                    pod=pod,
                    **dict(label.split("=") for label in labels),
                )


def results(promtool: str, queries: list[str], scratch: Path) -> list[float]:
    """What each query returns at the end, for its only series."""
    world = World(MINUTES * 60 // STEP)
    database(world)
    records = re.findall(r"redrive:[a-z0-9_:]+", " ".join(queries))
    (scratch / RULES.name).write_text(needed_rules(RULES.read_text(), records))
    test = {
        "rule_files": [str(scratch / RULES.name)],
        "evaluation_interval": f"{STEP}s",
        "group_eval_order": list(GROUPS),
        "tests": [
            {
                "interval": f"{STEP}s",
                "input_series": list(world.lines()),
                "promql_expr_test": [
                    {
                        "expr": query.replace("[30d", "[1h"),
                        "eval_time": f"{(MINUTES - 1) * 60}s",
                        "exp_samples": [],
                    }
                    for query in queries
                ],
            }
        ],
    }
    (scratch / "test.json").write_text(json.dumps(test))
    done = subprocess.run(
        [promtool, "test", "rules", scratch / "test.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    words = done.stdout + done.stderr
    got = re.findall(r"got: (.*)", words)
    assert len(got) == len(queries), words
    return [float(one.split()[-1]) for one in got]


def test_the_queries_of_the_service_levels_count_the_database_once(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "slos.md").read_text()
    queries = re.findall(r"```promql\n(.*?)```", page, re.DOTALL)

    found = [round(value, 1) for value in results(tool("promtool"), queries, tmp_path)]

    begins, done, budget, dismissed, failed, decided, processed, waited, redriven = (
        found
    )
    assert (begins, done, budget) == (0.8, 0.9, -99)
    assert 118 <= dismissed <= 122, "two a minute, and not six"
    assert failed == 0.1
    assert decided == 0.5
    assert (processed, waited) == (0.9, 0.9)
    assert redriven == 0.8
