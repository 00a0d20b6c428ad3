"""The rules of Grafana's dashboard-linter 0.2.0, for dashboards that are shipped to people we do
not know.
"""

import re
from typing import Any, NamedTuple

import pytest

from redrive.observability import process
from tools.metrics_page import of_a_gateway, of_a_worker, of_the_console, series

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
    *map(
        series, (*of_a_worker(), *of_a_gateway(), *of_the_console(), *process.collect())
    )
)

every_board = pytest.mark.parametrize("name", BOARDS)


class Found(NamedTuple):
    """A metric that a query asks for."""

    query: Query
    match: re.Match[str]

    @property
    def metric(self) -> str:
        return self.match["metric"]

    @property
    def call(self) -> str:
        return self.match["call"]

    @property
    def over(self) -> str | None:
        return self.match["range"]

    @property
    def matchers(self) -> set[str]:
        return {part.strip() for part in self.match["matchers"].split(", ")}

    @property
    def before(self) -> str:
        return self.query.expression[: self.match.start("metric")]

    def __repr__(self) -> str:
        return f"{self.query.board}: {self.query.panel}: {self.match[0]}"


SELECTORS = [
    Found(query, match)
    for query in queries()
    for match in SELECTOR.finditer(query.expression)
]


def variables(name: str) -> dict[str, dict[str, Any]]:
    """By name."""
    return {
        variable["name"]: variable for variable in BOARDS[name]["templating"]["list"]
    }


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


def test_every_metric_is_chosen_by_matchers() -> None:
    """One that stands alone would ignore all variables, and the rules below would not see it."""
    plain = {query: SELECTOR.sub("", query.expression) for query in queries()}

    assert [q for q, text in plain.items() if re.search(r"\bredrive[_:]\w", text)] == []
    assert [q for q in queries() if not SELECTOR.search(q.expression)] == []


def test_target_job_and_instance_rules() -> None:
    def wanted(found: Found) -> set[str]:
        names = ["job", "cluster"]
        if found.query.board in WITH_INSTANCE:
            names.append("instance")
        if found.metric != "ALERTS":
            names.append("namespace")
        return {f'{name}=~"${name}"' for name in names}

    assert [found for found in SELECTORS if not wanted(found) <= found.matchers] == []


def test_target_rate_interval_rule() -> None:
    """Only the window of an objective or the range that is shown may stand for it, and only in
    increase().
    """

    def allowed(found: Found) -> set[str | None]:
        if found.metric.endswith(":growth"):
            return {GROWN.get(found.call)} - {None}
        if found.call == "increase":
            return {"5m", "1h", "$__range"}
        return {"$__rate_interval"} if found.call in COUNTED else set()

    assert [
        found
        for found in SELECTORS
        if found.over is not None and found.over not in allowed(found)
    ] == []


def test_target_counter_agg_rule() -> None:
    counters = ("_total", "_bucket", "_sum", "_count")

    assert [
        found
        for found in SELECTORS
        if (found.over is not None and found.call in COUNTED)
        != found.metric.endswith(counters)
    ] == []


def test_figures_of_the_database_are_not_added_up_over_the_processes_that_export_them() -> (
    None
):
    greatest = re.compile(r"\bmax(?: by \([^)]*\))? ?\((?:(?:rate|increase)\()?$")

    assert [
        found
        for found in SELECTORS
        if found.metric not in OF_EACH_PROCESS
        and not found.metric.startswith("redrive:")
        and not greatest.search(found.before)
    ] == []


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
