"""The rules of several releases, each made for its own namespace."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.alerts.engine import World, fired

from .conftest import RULES
from .scope import NAME, scoped
from .situations import dead, exporter, step_up, well
from .test_rules import run

SELECTOR = re.compile(NAME + r"\{([^}]*)\}")


@pytest.fixture
def of_release(tmp_path: Path) -> Callable[[str], Path]:
    """Writes the rules of a namespace, as the chart renders them."""

    def write(namespace: str) -> Path:
        rules = yaml.safe_load(RULES.read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule["expr"] = scoped(rule["expr"], f'namespace="{namespace}"')
        path = tmp_path / f"{namespace}.yaml"
        path.write_text(yaml.safe_dump(rules))
        return path

    return write


def test_every_selector_can_be_scoped(rules: list[dict[str, Any]]) -> None:
    """What the chart's two replacements do to each expression."""
    for rule in rules:
        names = re.findall(NAME, rule["expr"])
        scopes = [
            inner
            for _, inner in SELECTOR.findall(scoped(rule["expr"], 'namespace="n"'))
        ]

        assert names, rule
        assert len(scopes) == len(names), rule["expr"]
        assert all(inner.startswith('namespace="n"') for inner in scopes), rule["expr"]
        assert not re.search(r'__name__|\{\}|"redrive[_:]', rule["expr"]), rule["expr"]
        for name, matcher in re.findall(r'(\w+)="(redrive)"', rule["expr"]):
            assert (name, matcher) == ("job", "redrive"), (
                "the chart puts the release's job there"
            )


def test_scoped_rules_are_valid(
    tool: Callable[[str], str], of_release: Callable[[str], Path]
) -> None:
    run(
        tool("promtool"),
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
        of_release("n"),
    )


@pytest.mark.parametrize(
    ("namespace", "pages"),
    [
        ("n", set()),
        ("m", {"RedriveDeadLettersGrowingFast"}),
        ("gone", {"RedriveMetricsAbsent"}),
    ],
)
def test_each_release_pages_for_itself(
    tool: Callable[[str], str],
    of_release: Callable[[str], Path],
    tmp_path: Path,
    namespace: str,
    pages: set[str],
) -> None:
    """Each evaluated the other's, too."""
    world = World(40)
    well(world)
    well(world, namespace="m")
    dead(world, step_up(10, 0, 60), namespace="m")
    exporter(world, namespace="gone")
    world.lose(lambda step: step >= 10, 'namespace="gone"')

    looks = fired(
        tool("promtool"), of_release(namespace), world, tmp_path / "test.yaml"
    )

    alerts = {alert for seen in looks.values() for alert in seen}
    assert {alert.name for alert in alerts} == pages
    assert {alert.namespace for alert in alerts} <= {namespace}
