"""An incident with real workers and the command line, from the first death to the second fix."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml

from redrive import enqueue
from redrive.observability.stats import DatabaseStats
from tests.alerts.conftest import RULES, tool
from tests.cli.conftest import Redrive, redrive, started
from tests.flow.harness import Workers, wait_for
from tests.metrics.test_database import again
from tests.postgres import Database

__all__ = ["redrive", "started", "tool"]

COUNTER = "redrive_dlq_group_regressions_total"
WHY = ("--why", "ticket 4711", "--yes")


class Incident:
    """What an operator types, and workers that die of the same cause in any version."""

    def __init__(self, database: Database, workers: Workers, redrive: Redrive) -> None:
        self._database = database
        self._workers = workers
        self._redrive = redrive

    def redrive(self, *arguments: str, code: int = 0) -> str:
        """Return what a command prints."""
        done = self._redrive(*arguments, COLUMNS="300")
        assert done.code == code, done.out + done.err
        return done.out + done.err

    def dies_in(self, version: str) -> None:
        """Let a job die in this version, and wait until chores know it."""
        dead = "select count(*) from redrive.dead_letters"
        before = self._database.value(dead)
        enqueue(self._database.conn, "bill", {"n": 1})
        worker = self._workers(
            handlers="tests.flow.healed:broken", redrive_version=version
        )
        wait_for(lambda: self._database.value(dead) == before + 1)
        is_judged = (
            "select not exists (select from redrive.group_deltas) and not exists"
            " (select from redrive.groups where is_unjudged)"
        )
        wait_for(lambda: self._database.value(is_judged))
        worker.stop()


def test_a_group_is_open_resolved_regressed_and_resolved_again(
    database: Database,
    workers: Workers,
    redrive: Redrive,
    tool: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Part 5: only a version with the fix reopens a group, and alerts once."""

    incident = Incident(database, workers, redrive)
    typed, dies_in = incident.redrive, incident.dies_in
    stats = DatabaseStats(database.url)
    dies_in("1.4.0")
    dies_in("3f2a91c")
    (group,) = database.column("select fingerprint from redrive.groups")
    assert "open" in typed("dlq", "groups")
    typed("dlq", "ack", group, *WHY)

    # resolved: refused where it cannot be true or cannot be known
    said = typed("dlq", "resolve", group, "--in", "9c0ffee", *WHY, code=64)
    assert "--in: '9c0ffee' has no order; write a version such as 1.4.2" in said
    said = typed("dlq", "resolve", group, "--in", "1.3.9", *WHY, code=64)
    assert "--in: the group has failed in 1.4.0 already; give a later version" in said
    typed("dlq", "unresolve", group, *WHY, code=2)
    said = typed("dlq", "resolve", group[:8], "--in", "1.4.2", *WHY)
    assert "The group is resolved in 1.4.2." in said
    assert "It still has 2 dead letters; once 1.4.2 runs:" in said
    assert "3f2a91c has no order" in said

    # a worker of the old version dies of it: counted, not reopened
    dies_in("1.4.1")
    assert "resolved in 1.4.2 (1 since)" in typed("dlq", "groups")
    assert "no such group" in typed("dlq", "groups", "--state", "regressed")
    before = _regressions(stats)
    assert before == 0

    # a worker of a version with the fix dies of it
    dies_in("1.5.0")
    shown = typed("dlq", "groups", "--state", "regressed")
    assert "regressed in 1.5.0" in shown
    shown = typed("dlq", "show", group)
    assert "ticket 4711" in shown
    assert "1 since then in 1.4.1" in shown
    after = _regressions(stats)
    assert after == 1
    dies_in("1.5.0")
    assert _regressions(stats) == 1  # alerted once
    assert _fires(tool("promtool"), tmp_path, before, after)
    assert not _fires(tool("promtool"), tmp_path, after, after)

    # the second fix, with a backport
    fixes = ("--in", "1.5.1", "--in", "1.4.2")
    typed("dlq", "resolve", group, *fixes, *WHY)
    dies_in("1.5.0")
    assert "resolved in 1.4.2, 1.5.1 (1 since)" in typed("dlq", "groups")
    typed("dlq", "unresolve", group, *WHY)
    stats.link.close()
    actions = (
        "select action from redrive.audit where action like '%%resolve' order by id"
    )
    assert database.column(actions) == ["resolve", "resolve", "unresolve"]


def _regressions(stats: DatabaseStats) -> float:
    """Return what an exporter shows for the kind."""
    series = f'{COUNTER}{{kind="bill",queue="default"}} '
    (line,) = (line for line in again(stats).splitlines() if line.startswith(series))
    return float(line.split()[-1])


def _fires(promtool: str, home: Path, before: float, after: float) -> bool:
    """Return True if the alert fires when the counter goes from one value to the other."""
    labels = 'cluster="c",namespace="n",job="redrive",queue="default",kind="bill"'
    case = {
        "interval": "30s",
        "input_series": [
            {
                "series": f"{COUNTER}{{{labels}}}",
                "values": f"{before:g}x20 {after:g}x20",
            }
        ],
        "promql_expr_test": [
            {
                "expr": 'count(ALERTS{alertname="RedriveGroupRegressed"})',
                "eval_time": "12m",
                "exp_samples": [{"value": 1}],
            }
        ],
    }
    test = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": [case]}
    (home / "test.yaml").write_text(yaml.safe_dump(test))
    command = [promtool, "test", "rules", str(home / "test.yaml")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
