"""The rules of Grafana's dashboard-linter 0.2.0, for dashboards that are shipped to people we do
not know.
"""

import re
from typing import Any

import pytest

from redrive.observability import process
from tools.metrics_page import of_a_worker, series

from .conftest import BOARDS, SELECTOR, Query, other_queries, panels, queries

UNITS = {
    "short",
    "none",
    "percent",
    "percentunit",
    "s",
    "ops",
    "cpm",
    "bytes",
    "bool_yes_no",
}
NEEDS_TARGETS = {"stat", "timeseries", "table", "heatmap"}
# instance is on the dashboard that shows workers one by one: the others add up over them, and a
# figure of the database has no instance of its own.
WITH_INSTANCE = {"worker.json"}
# A metric that is asked for without a queue has none.
COUNTED = ("rate", "irate", "increase")
GROWN = {"avg_over_time": "$__rate_interval", "sum_over_time": "$__range"}
"""What each is asked over, of what a counter rose by since the evaluation before."""
OF_EACH_PROCESS = {"redrive_stats_up", "ALERTS"}.union(
    *map(series, (*of_a_worker(), *process.collect()))
)

every_board = pytest.mark.parametrize("name", BOARDS)
every_query = pytest.mark.parametrize(
    "query", [*queries()], ids=lambda q: f"{q.board}:{q.panel}"
)


def variables(name: str) -> dict[str, dict[str, Any]]:
    """By name."""
    return {
        variable["name"]: variable for variable in BOARDS[name]["templating"]["list"]
    }


def matchers(found: re.Match[str]) -> set[str]:
    """What a selector asks for."""
    return {part.strip() for part in found["matchers"].split(", ")}


@every_board
def test_template_datasource_rule(name: str) -> None:
    datasource = variables(name)["datasource"]

    assert (datasource["type"], datasource["query"], datasource["label"]) == (
        "datasource",
        "prometheus",
        "Data source",
    )


@every_board
@pytest.mark.parametrize(
    ("variable", "all_value"),
    [
        ("job", ".+"),
        ("instance", ".+"),
        ("queue", ".+"),
        ("namespace", ".*"),
        ("cell", ".*"),
        ("cluster", ".*"),
    ],
)
def test_template_job_and_instance_rules(
    name: str, variable: str, all_value: str
) -> None:
    """Namespace and cluster may be missing from the series, outside Kubernetes or with one
    Prometheus per cluster.
    """
    if variable == "instance" and name not in WITH_INSTANCE:
        assert variable not in variables(name)
        return
    found = variables(name)[variable]

    assert found["type"] == "query"
    assert found["datasource"]["uid"] == "${datasource}"
    assert found["label"] == variable.title()
    assert found["multi"]
    assert found["includeAll"]
    assert found["allValue"] == all_value


@every_board
def test_template_on_time_change_reload_rule(name: str) -> None:
    assert {v["refresh"] for v in variables(name).values() if v["type"] == "query"} == {
        2
    }


@every_board
def test_every_variable_is_used_by_the_dashboard(name: str) -> None:
    asked = " ".join(
        q.expression for q in (*queries(name), *other_queries()) if q.board == name
    )

    for variable in set(variables(name)) - {"datasource", "runbook"}:
        assert f"${variable}" in asked, variable


@every_board
def test_panel_rules(name: str) -> None:
    """Four rules: panel-datasource, panel-title-description, panel-units, panel-no-targets."""
    for panel in panels(BOARDS[name]):
        title = panel["title"]
        assert title, panel["id"]
        assert len(panel["description"]) > 8, title
        if panel["type"] in NEEDS_TARGETS:
            assert panel["datasource"]["uid"] == "${datasource}", title
            assert panel["targets"], title
            assert {t["datasource"]["uid"] for t in panel["targets"]} == {
                "${datasource}"
            }, title
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, title


@every_query
def test_every_metric_is_chosen_by_matchers(query: Query) -> None:
    """One that stands alone would ignore all variables, and the rules below would not see it."""
    plain = SELECTOR.sub("", query.expression)

    assert not re.search(r"\bredrive[_:]\w", plain), plain


@every_query
def test_target_job_and_instance_rules(query: Query) -> None:
    selectors = [*SELECTOR.finditer(query.expression)]

    assert selectors
    for found in selectors:
        wanted = {'job=~"$job"', 'cluster=~"$cluster"'}
        if query.board in WITH_INSTANCE:
            wanted.add('instance=~"$instance"')
        if found["metric"] != "ALERTS":
            wanted.add('namespace=~"$namespace"')
        assert wanted <= matchers(found), found[0]


@every_query
def test_target_rate_interval_rule(query: Query) -> None:
    """Only the window of an objective or the range that is shown may stand for it, and only in
    increase().
    """
    for found in SELECTOR.finditer(query.expression):
        if found["range"]:
            call = found["call"]
            if found["metric"].endswith(":growth"):
                assert found["range"] == GROWN[call], found[0]
                continue
            assert call in COUNTED, found[0]
            if call == "increase":
                assert found["range"] in {"5m", "1h", "$__range"}, found[0]
            else:
                assert found["range"] == "$__rate_interval", found[0]


@every_query
def test_target_counter_agg_rule(query: Query) -> None:
    for found in SELECTOR.finditer(query.expression):
        is_counted = bool(found["range"]) and found["call"] in COUNTED
        assert is_counted == found["metric"].endswith(
            ("_total", "_bucket", "_sum", "_count")
        ), found[0]


@every_query
def test_figures_of_the_database_are_not_added_up_over_the_processes_that_export_them(
    query: Query,
) -> None:
    for found in SELECTOR.finditer(query.expression):
        if found["metric"] not in OF_EACH_PROCESS and not found["metric"].startswith(
            "redrive:"
        ):
            before = query.expression[: found.start("metric")]
            assert re.search(
                r"\bmax(?: by \([^)]*\))? ?\((?:(?:rate|increase)\()?$", before
            ), query.expression


@every_board
def test_uneditable_rule(name: str) -> None:
    assert BOARDS[name]["editable"] is False


@every_board
def test_nothing_names_a_host_but_the_placeholder_of_the_runbook(name: str) -> None:
    urls = {
        url
        for v in variables(name).values()
        for url in re.findall(r"https?://[^\"/]+", str(v.get("query")))
    }

    assert urls == {"https://runbooks.example"}
