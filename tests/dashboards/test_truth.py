"""What panels show is what happened, also across rollouts, restores, births and gaps.

Prometheus's own engine evaluates the shipped rules over series that are made up, and then the very
queries of the panels.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.promql import ask
from tools.dashboards.rehearsal import concrete

from .conftest import BOARDS, ROOT, panels, queries

RULES = ROOT / "alerts" / "redrive.rules.yaml"


class Story(NamedTuple):
    """Samples every 30 s for 20 minutes of what died; `total`: how many really did."""

    pods: Mapping[str, str]
    total: int


STORIES = {
    # 60 seen by one exporter, 60 by the next
    "a rollout of the exporter": Story(
        {"a": "5000+3x20 stale", "b": "_x20 5060+3x20"}, 120
    ),
    "a restore of the database": Story({"a": "5000+1x20 4000x20"}, 20),
    "dead letters after a restore": Story({"a": "5000x20 4000+2x20"}, 38),
    "the birth of a kind that is all poison": Story({"a": "_x20 60x20"}, 60),
    "a gap of eight minutes": Story({"a": "5000x10 _x16 5300x14"}, 300),
    "every second scrape failing": Story(
        {"a": " _ ".join(f"{5000 + n}" for n in range(21))}, 20
    ),
    "three exporters of one database": Story(dict.fromkeys("abc", "5000+1x40"), 40),
    "nothing at all": Story({"a": "5000x40"}, 0),
}


def added(labels: str, pods: Mapping[str, str]) -> dict[str, str]:
    """Series of one reason, and that the installation was there all the time."""
    where = 'namespace="shop", job="redrive"'
    found = {
        f'redrive_dlq_added_total{{{where}, instance="{pod}", queue="mail", {labels}}}': text
        for pod, text in pods.items()
    }
    found[
        f'redrive_queue_depth{{{where}, instance="a", queue="mail", state="ready"}}'
    ] = "0x40"
    found[f'redrive_stats_timestamp_seconds{{{where}, instance="a"}}'] = "1x40"
    return found


def panel(board: str, title: str, shown: str = "20m") -> str:
    """The query of a panel as Grafana sends it."""
    (query,) = (
        q
        for q in queries(board)
        if q.panel == title and "redrive:objective:max" not in q.expression
    )
    return concrete(query.expression, rate_interval="2m", shown=shown)


@pytest.fixture
def look(tool: Callable[[str], str], tmp_path: Path) -> Callable[..., float]:
    """Ask a query of a story; its one value."""

    def answer(series: Mapping[str, str], expression: str, minute: float = 20) -> float:
        (value,) = ask(
            tool("promtool"), tmp_path, series, expression, minute=minute, rules=RULES
        )
        return value

    return answer


LABELS = 'kind="welcome", reason="expired"'


@pytest.mark.parametrize("name", STORIES)
def test_what_was_added_in_the_range_is_what_died(
    name: str, look: Callable[..., float]
) -> None:
    """120 read 60 after a rollout of the exporter, a restore as growth by the whole total."""
    story = STORIES[name]
    said = look(
        added(LABELS, story.pods), panel("dead-letters.json", "Added in this range")
    )

    assert said == story.total


@pytest.mark.parametrize("board", ["overview.json", "dead-letters.json"])
def test_a_restore_is_no_growth(board: str, look: Callable[..., float]) -> None:
    """2,400 a minute were shown."""
    series = added(LABELS, STORIES["a restore of the database"].pods)
    title = "Added per minute by reason"

    assert look(series, panel(board, title), 11) <= 2
    assert look(series, panel(board, title), 13) == 0


@pytest.mark.parametrize("board", ["overview.json", "dead-letters.json"])
def test_a_new_kind_that_pages_is_seen(board: str, look: Callable[..., float]) -> None:
    """It read 0."""
    series = added(LABELS, STORIES["the birth of a kind that is all poison"].pods)
    expression = panel(board, "Added per minute by reason")

    assert look(series, expression, 11) > 20


def test_a_rollout_shows_a_steady_rate(look: Callable[..., float]) -> None:
    """Whoever saw a part told a part."""
    series = added(LABELS, STORIES["a rollout of the exporter"].pods)
    expression = panel("dead-letters.json", "Added per minute by reason")

    assert [look(series, expression, minute) for minute in (9, 10, 11, 12)] == [6] * 4


OF_A_MOMENT = [
    (name, each["title"], each["targets"][0]["expr"])
    for name, board in BOARDS.items()
    for each in panels(board)
    if each["type"] == "stat" and not each["targets"][0]["instant"]
]


@pytest.mark.parametrize(("board", "title", "expression"), OF_A_MOMENT)
def test_a_number_is_0_when_it_is_over(
    board: str, title: str, expression: str, tool: Callable[[str], str], tmp_path: Path
) -> None:
    """A panel shows the last value in its range: 17 jobs were retried for as long as it was."""
    answer = partial(
        ask, tool("promtool"), tmp_path, expression=concrete(expression), minute=20
    )
    reads = 'redrive_stats_up{namespace="shop", job="redrive", instance="a"}'

    assert answer({reads: "1x40"}) == [0]
    says_nothing = board != "worker.json" and title != "Alerts firing"
    assert answer({reads: "0x40"}) == ([] if says_nothing else [0])


def test_without_the_rules_there_is_an_estimate(
    look: Callable[..., float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    none = tmp_path / "none.yaml"
    none.write_text("groups: []\n")
    monkeypatch.setattr(f"{__name__}.RULES", none)
    series = added(LABELS, {"a": "5000+3x40"})

    in_range = panel("dead-letters.json", "Added in this range")
    assert look(series, in_range) == pytest.approx(120)
    by_reason = panel("dead-letters.json", "Added per minute by reason")
    assert look(series, by_reason) == pytest.approx(6)


def test_counters_of_the_database_are_shown_by_what_was_recorded() -> None:
    """The recorded series were on no panel."""
    asked = " ".join(query.expression for query in queries())
    rules = yaml.safe_load(RULES.read_text())["groups"]
    recorded = {
        rule["record"] for group in rules for rule in group["rules"] if "record" in rule
    }
    growth = {name for name in recorded if name.endswith(":growth")}

    assert len(growth) == 5
    assert {name for name in growth if name not in asked} == set()


def test_the_interval_of_the_rules_is_the_one_that_the_panels_divide_by() -> None:
    (group,) = (
        group
        for group in yaml.safe_load(RULES.read_text())["groups"]
        if group["name"] == "redrive.dashboards"
    )
    divided = {
        query.expression.split(" or ")[0].rsplit("/", 1)[1].strip()
        for query in queries()
        if "avg_over_time" in query.expression
    }

    assert {group["interval"]} == {f"{seconds}s" for seconds in divided}


@pytest.mark.parametrize("name", BOARDS)
def test_what_is_called_an_objective_is_the_objective(name: str) -> None:
    """14.4 times of it was called so."""
    for each in panels(BOARDS[name]):
        for target in each.get("targets", ()):
            if target.get("legendFormat", "").startswith("objective of"):
                assert target["expr"].startswith(
                    "max by (queue) (redrive:objective:max{"
                ), target


def test_memory_is_shown_against_its_limit(look: Callable[..., float]) -> None:
    """The runbook sent its reader to a panel that was not there."""
    names = (
        "process_resident_memory",
        "redrive_runners_resident_memory",
        "redrive_memory_limit",
    )
    worker = '_bytes{namespace="shop", job="redrive", instance="w"}'
    values = ("100x40", "40x40", "512x40")
    series = {name + worker: text for name, text in zip(names, values, strict=True)}
    used, limit = (q.expression for q in queries("worker.json") if q.panel == "Memory")

    assert look(series, concrete(used)) == 140
    assert look(series, concrete(limit)) == 512
