"""The shipped rules: what promtool says of them, and what every alert must carry."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from redrive.dead_letters.groups.objectives import MEANINGS
from tools.alerts.engine import LITTLE_GARBAGE
from tools.alerts.replay import needed_rules

from .conftest import RULES, RUNBOOK, UNIT_TESTS

SEVERITIES = {"critical", "warning", "info"}
GROUPING = re.compile(
    r"\b(by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)"
)
SECTION_PARTS = ("**Means:**", "**Look at:**", "**Type:**", "**Wake somebody:**")
# What DESIGN promises of the command line; a runbook may use nothing else of it.
COMMANDS = (
    "redrive breaker ls",
    "redrive queue ls",
    "redrive queue limits",
    "redrive queue set",
    "redrive queue limit",
    "redrive queue pause",
    "redrive schedule ls",
    "redrive schedule pause",
    "redrive job ls",
    "redrive job show",
    "redrive job now",
    "redrive job cancel",
    "redrive owner set",
    "redrive dlq groups",
    "redrive dlq ack",
    "redrive dlq unack",
    "redrive dlq hold",
    "redrive dlq give-up",
    "redrive dlq retry",
    "redrive dlq ls",
    "redrive dlq groups",
    "redrive dlq resolve",
    "redrive dlq show",
    "redrive dlq redrive",
    "redrive dlq dismiss",
    "redrive dlq mute",
    "redrive dlq note",
    "redrive dlq ack",
    "redrive dlq unack",
    "redrive owner set",
    "redrive worker ls",
    "redrive campaign ls",
    "redrive campaign show",
    "redrive campaign resume",
    "redrive campaign cancel",
    "redrive campaign heal",
    "redrive limit ls",
    "redrive limit set",
    "redrive purge",
    "redrive check",
)


def run(*command: str | Path) -> None:
    """Run a checker; its words are the message when it objects."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | LITTLE_GARBAGE,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid(tool: Callable[[str], str]) -> None:
    run(tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", RULES)


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.name.split(".")[0])
def test_alerts_fire_and_stay_quiet(
    tool: Callable[[str], str], path: Path, tmp_path: Path
) -> None:
    """Each case with the rules alone that it names: others take most of the time."""
    content = yaml.load(path.read_text(), yaml.CSafeLoader)
    files = list[Path]()
    for n, case in enumerate(content["tests"]):
        named = re.findall(r"\bRedrive\w+|\bredrive:[a-z0-9_:]+", json.dumps(case))
        rules, file = (tmp_path / f"{n}.{what}.yaml" for what in ("rules", "test"))
        rules.write_text(needed_rules(RULES.read_text(), named))
        file.write_text(
            json.dumps(content | {"rule_files": [rules.name], "tests": [case]})
        )
        files.append(file)
    run(tool("promtool"), "test", "rules", *files)


def test_every_alert_has_a_case_that_fires_and_one_that_is_quiet(
    alerts: dict[str, dict[str, Any]],
) -> None:
    cases = [
        case
        for path in UNIT_TESTS
        for test in yaml.load(path.read_text(), yaml.CSafeLoader)["tests"]
        for case in test.get("alert_rule_test", ())
    ]

    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == set(
        alerts
    )
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == set(
        alerts
    )


def test_every_alert_says_what_how_much_and_where_to_look(
    alerts: dict[str, dict[str, Any]],
) -> None:
    for name, alert in alerts.items():
        notes = alert["annotations"]

        assert notes.keys() - {"cause"} == {
            "summary",
            "description",
            "runbook_url",
            "dashboard_url",
            "console_url",
        }, name
        assert "{{" not in notes["summary"], (
            f"{name}: a summary is the same for every alert of the name"
        )
        assert re.search(r"\$value|\d", notes["description"]), (
            f"{name}: a description has numbers"
        )
        assert notes["runbook_url"].endswith(f"/runbook.md#{name.lower()}"), name
        assert re.match(
            r"https://grafana\.example/d/redrive-[a-z-]+\?", notes["dashboard_url"]
        ), name


def test_every_alert_can_be_routed(alerts: dict[str, dict[str, Any]]) -> None:
    for name, alert in alerts.items():
        labels = alert["labels"]

        assert set(labels) == {"severity", "service", "alert_family"}, name
        assert labels["severity"] in SEVERITIES, name
        assert labels["service"] == "redrive", name


def test_each_objective_has_a_default_for_all_queues(
    rules: list[dict[str, Any]],
) -> None:
    [expr] = [r["expr"] for r in rules if r.get("record") == "redrive:objective:max"]

    assert set(re.findall(r'objective="(\w+)"', expr)) == set(MEANINGS)


def test_no_label_holds_a_value(alerts: dict[str, dict[str, Any]]) -> None:
    """A label that changes with the value makes a new alert at every evaluation."""
    for name, alert in alerts.items():
        assert not any("{{" in value for value in alert["labels"].values()), name


def test_every_grouping_keeps_the_cluster(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        for word, labels in GROUPING.findall(rule["expr"]):
            if word == "group_left" and labels in {"owner", "objective"}:
                continue  # its `on` is the grouping
            assert word in {"by", "on"}, rule["expr"]
            assert "cluster" in labels.split(",")[0] or (word, labels) == ("on", ""), (
                rule["expr"]
            )


def test_every_absent_waits(alerts: dict[str, dict[str, Any]]) -> None:
    """A restart of Prometheus must not page."""
    assert all(
        "for" in alert for alert in alerts.values() if "absent(" in alert["expr"]
    )


def sections() -> dict[str, str]:
    """The runbook by heading."""
    parts = re.split(r"^## (\w+)\n", RUNBOOK.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_runbook_has_one_section_per_alert(
    alerts: dict[str, dict[str, Any]],
) -> None:
    found = {
        name: text for name, text in sections().items() if name.startswith("Redrive")
    }

    assert set(found) == set(alerts)
    for name, text in found.items():
        places = [text.find(part) for part in SECTION_PARTS]

        assert -1 not in places, (name, SECTION_PARTS[places.index(-1)])
        assert places == sorted(places), name


def lines() -> list[str]:
    """The lines of the runbook's blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", RUNBOOK.read_text(), flags=re.DOTALL)
    return [
        line for block in blocks for line in block.replace("\\\n", " ").splitlines()
    ]


def typed() -> list[str]:
    """The commands of ours that the runbook types."""
    return [
        found[0]
        for line in lines()
        for found in re.finditer(r"(?<=^r )redrive [^#]*[^# ]", line)
    ]


def test_an_operator_needs_only_kubectl_for_the_runbook() -> None:
    """It typed curl and psql, and commands of ours on the operator's machine."""
    definition = re.compile(r"(?:alias )?(\w+)(?:=|\(\) )")
    ours = {found[1] for line in lines() if (found := definition.match(line))}
    programs = {
        part.split()[0]
        for line in lines()
        if not definition.match(line)
        for part in f" {line}".split(" | ")
    }

    assert programs <= ours | {"kubectl", "grep", "tail"}
    # commands in sentences, and not mere names of commands
    assert not re.findall(r"`redrive [^`]*(?:<|--why)[^`]*`", RUNBOOK.read_text())


def test_the_runbook_types_only_what_is_promised() -> None:
    assert len(typed()) > len(COMMANDS)
    for command in typed():
        assert command.startswith(COMMANDS), command


def test_the_command_line_knows_every_option_the_runbook_types() -> None:
    from redrive.cli.main import cli

    for line in typed():
        found: click.Command = cli
        for word in line.split()[1:]:
            if not isinstance(found, click.Group):
                break
            inner = found.get_command(click.Context(found), word)
            assert inner is not None, line
            found = inner
        known = {option for param in found.params for option in param.opts}
        unknown = set(re.findall(r"(?<= )--[a-z-]+", line)) - known

        assert not unknown, (line, unknown)
