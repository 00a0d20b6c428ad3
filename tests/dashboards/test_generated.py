"""The committed dashboards are what the programs make, are what Grafana's own types say, and hang
together.
"""

import json
import re
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.dashboards.generate import files
from tools.dashboards.parts import Made

from .conftest import BOARDS, ROOT, panels

RULES = [
    rule
    for group in yaml.load(
        (ROOT / "alerts" / "redrive.rules.yaml").read_text(), yaml.CSafeLoader
    )["groups"]
    for rule in group["rules"]
    if "alert" in rule
]
ALERTS = {rule["alert"]: rule["annotations"] for rule in RULES}
RUNBOOK = (ROOT / "alerts" / "runbook.md").read_text()


def test_there_are_three() -> None:
    assert sorted(BOARDS) == ["dead-letters.json", "overview.json", "worker.json"]


@pytest.mark.parametrize("name", BOARDS)
def test_grafanas_types_know_every_field(name: str) -> None:
    """What the types do not know would be lost on the way through them."""
    read = Made.from_json(json.loads((ROOT / "dashboards" / name).read_text()))
    again = json.loads(json.dumps(read, cls=JSONEncoder))

    for link in again["links"]:
        link.pop("placement", None)  # a constant that the types put in; we take it out
    assert again == BOARDS[name]


def test_the_cluster_can_be_shown() -> None:
    hidden = [_cluster(json.loads(text or "")) for text in files().values()]
    shown = [
        _cluster(json.loads(text or "")) for text in files(show_cluster=True).values()
    ]

    assert {variable.get("hide", 0) for variable in hidden} == {2}
    assert {variable.get("hide", 0) for variable in shown} == {0}


def _cluster(board: dict[str, Any]) -> dict[str, Any]:
    return next(v for v in board["templating"]["list"] if v["name"] == "cluster")


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_has_a_number_and_a_place_of_its_own(name: str) -> None:
    board = BOARDS[name]
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        across, down = (
            range(place[at], place[at] + place[size]) for at, size in ("xw", "yh")
        )
        cells = {(x, y) for x in across for y in down}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells

    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize("name", BOARDS)
def test_titles_are_told_apart(name: str) -> None:
    by_kind = [(panel["type"], panel["title"]) for panel in panels(BOARDS[name])]

    assert len(set(by_kind)) == len(by_kind)


def test_what_alerts_link_to_exists_and_takes_what_they_pass() -> None:
    boards = {
        board["uid"]: {v["name"] for v in board["templating"]["list"]}
        for board in BOARDS.values()
    }
    for alert, notes in ALERTS.items():
        found = re.match(
            r"https://grafana\.example/d/([\w-]+)\?(.*)", notes["dashboard_url"]
        )

        assert found, alert
        assert found[1] in boards, alert
        assert set(re.findall(r"var-(\w+)=", found[2])) <= boards[found[1]], alert


def test_from_the_page_to_a_panel_to_the_runbook() -> None:
    """The dashboard an alert links to has a panel that leads to the alert's section."""
    linked = {
        (board["uid"], link["url"])
        for board in BOARDS.values()
        for panel in panels(board)
        for link in panel.get("links", ())
    }
    for alert, notes in ALERTS.items():
        uid = re.findall(r"/d/([\w-]+)", notes["dashboard_url"])[0]

        assert (uid, f"${{runbook}}#{alert.lower()}") in linked, f"{alert} on {uid}"

    sections = {
        f"${{runbook}}#{title.lower()}"
        for title in re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    }
    assert {url for _, url in linked} <= sections


def test_the_runbook_names_panels_that_exist() -> None:
    titles = [
        panel["title"].lower() for board in BOARDS.values() for panel in panels(board)
    ]
    boards = {
        board["title"].removeprefix("Redrive / ").lower() for board in BOARDS.values()
    }
    for line in RUNBOOK.splitlines():
        if line.startswith("**Look at:**") and "Dashboard" in line:
            for name in re.findall(
                r"\*([A-Z][^*]+)\*", line.removeprefix("**Look at:**")
            ):
                if name != "Status > Targets":
                    assert name.lower() in boards or any(
                        t.startswith(name.lower()) for t in titles
                    ), name


def test_links_between_dashboards_lead_somewhere() -> None:
    uids = {board["uid"] for board in BOARDS.values()}

    assert set(re.findall(r"/d/([\w-]+)\?", json.dumps(list(BOARDS.values())))) <= uids


def test_thresholds_are_data_drawn_dashed() -> None:
    """Every objective that is a number over time has a panel with its line."""
    drawn = set()
    for board in BOARDS.values():
        for panel in panels(board):
            for target in panel.get("targets", ()):
                if target["refId"] == "objective":
                    drawn |= set(re.findall(r'objective="(\w+)"', target["expr"]))
                    dashed = [
                        o
                        for o in panel["fieldConfig"]["overrides"]
                        if o["matcher"]["options"] == "objective"
                    ]
                    assert any(
                        p["id"] == "custom.lineStyle"
                        for o in dashed
                        for p in o["properties"]
                    ), panel["title"]

    assert drawn == {
        "dlq_added_5m",
        "dlq_added_1h",
        "dlq_oldest_age_seconds",
        "failed_ratio",
        "dlq_unacknowledged_age_seconds",
        "dead_ratio",
        "ready_age_seconds",
    }


@pytest.mark.parametrize("name", BOARDS)
def test_alerts_and_deployments_are_marked(name: str) -> None:
    marks = {mark["name"]: mark["expr"] for mark in BOARDS[name]["annotations"]["list"]}

    assert marks["Alerts"].startswith('ALERTS{service="redrive", alertstate="firing"')
    assert "redrive_build_info" in marks["Deployments"]
