"""Rules, dashboards and monitors: what they read, and where their links lead."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.conftest import EVERYTHING, Render, read_values
from tests.chart.helm import CHART, Release
from tests.chart.rendered import KEDA, LABELLED, LOGINS, console, with_pool


def test_the_names_of_monitoring_are_words_as_well(render: Render) -> None:
    """Two objects with one label twice were refused by Helm, not by us."""
    values = {
        "database": LOGINS,
        "commonLabels": {"release": "on"},
        "monitoring": {
            "labels": {"release": "yes", "grafana_dashboard": "2"},
            "podMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
            "dashboards": {"enabled": True},
        },
    }
    release = render(values)

    assert release.get("PodMonitor", "rel")["metadata"]["labels"]["release"] == "on"
    [dashboard, *_] = [
        o for o in release.objects if "dashboard-" in o["metadata"]["name"]
    ]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_two_releases_in_one_namespace_are_two_jobs_to_prometheus(
    render: Render,
) -> None:
    """As one job, the growth of one hid behind the other's higher counter."""
    values = with_pool() | {
        "workers": {"mail": {"handlers": "a:b", "autoscaling": KEDA}},
        "monitoring": {
            "podMonitor": {"enabled": True},
            "serviceMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
        },
    }
    jobs = {}
    for name in ("one", "two"):
        release = render(values, name=name)
        monitors = [o["spec"] for o in release.objects if o["kind"].endswith("Monitor")]
        relabelings = [
            relabeling
            for spec in monitors
            for endpoint in spec.get("podMetricsEndpoints", spec.get("endpoints"))
            for relabeling in endpoint["relabelings"]
            if relabeling["targetLabel"] == "job"
        ]
        selected = set(re.findall(r'job="([^"]*)"', release.text))
        assert len(relabelings) == 2
        jobs[name] = {r["replacement"] for r in relabelings} | selected

    assert jobs == {"one": {"one"}, "two": {"two"}}


def test_the_rules_read_the_figures_of_their_release_alone(render: Render) -> None:
    """Those of another namespace were evaluated as well, without its links and silences."""
    monitoring = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    release = render({"database": LOGINS, "monitoring": monitoring}, name="shop")

    expressions = [
        rule["expr"]
        for o in release.objects
        if o["kind"] == "PrometheusRule"
        for group in o["spec"]["groups"]
        for rule in group["rules"]
    ]
    metric = re.compile(r"redrive[_:][a-z0-9_:]+([^a-z0-9_:].{36}|.{0,36})", re.DOTALL)
    assert len(expressions) > 30
    for expression in expressions:
        for found in metric.finditer(expression):
            assert found[1].startswith('{namespace="jobs",job="shop"'), expression


def test_a_monitor_takes_relabelings_and_limits(everything: Release) -> None:
    """`scrapeTimeout`, sampleLimit, relabelings and metricRelabelings could not be set."""
    spec = everything.get("PodMonitor", "everything")["spec"]
    endpoint, of_console = spec["podMetricsEndpoints"]

    assert of_console == endpoint | {"port": "http"}
    assert spec["sampleLimit"] == 50000
    assert endpoint["scrapeTimeout"] == "10s"
    assert [r["targetLabel"] for r in endpoint["relabelings"]] == [
        "job",
        "cell",
        "node",
    ]
    assert [r["action"] for r in endpoint["metricRelabelings"]] == ["drop"]


def test_workers_and_exporter_are_one_job_to_prometheus(render: Render) -> None:
    release = render(with_pool() | {"monitoring": {"podMonitor": {"enabled": True}}})

    monitor = release.get("PodMonitor", "rel")["spec"]
    [endpoint] = monitor["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [
        {"action": "replace", "targetLabel": "job", "replacement": "rel"}
    ]
    components = monitor["selector"]["matchExpressions"][0]["values"]
    assert components == ["worker", "gateway", "exporter", "console"]
    for name in ("rel-worker-mail", "rel-exporter"):
        labels = release.get("Deployment", name)["spec"]["template"]["metadata"][
            "labels"
        ]
        assert labels["app.kubernetes.io/name"] == "redrive"


def scoped(expr: str, scope: str) -> str:
    """An expression of the rules that selects series of one installation alone."""
    expr = expr.replace('job="redrive"', scope.rpartition(",")[2])
    expr = re.sub(r"(redrive[_:][a-z0-9_:]+)\{", rf"\1{{{scope},", expr)
    return re.sub(
        r"(redrive[_:][a-z0-9_:]+)([^a-z0-9_:{]|$)", rf"\1{{{scope}}}\2", expr
    )


def test_the_rules_are_installed_as_they_are_tested(everything: Release) -> None:
    """But for the selectors, and new groups, which these values ask for."""
    for path in (CHART / "files" / "alerts").glob("*.yaml"):
        name = "everything-" + path.stem.removeprefix("redrive.").replace(".", "-")
        rules = yaml.safe_load(path.read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule["expr"] = scoped(rule["expr"], 'namespace="jobs",job="rel"')
                if rule.get("alert") == "RedriveGroupNew":
                    rule["labels"]["severity"] = "warning"
        assert everything.get("PrometheusRule", name)["spec"] == rules


@pytest.mark.parametrize("wanted", [False, True])
def test_new_groups_are_told_only_if_somebody_wants_it(
    render: Render, wanted: bool
) -> None:
    rule = {"enabled": True} | ({"newGroups": True} if wanted else {})
    monitoring = {"prometheusRule": rule, "podMonitor": {"enabled": True}}
    release = render({"database": LOGINS, "monitoring": monitoring})

    severities = {
        rule["alert"]: rule["labels"]["severity"]
        for o in release.objects
        if o["kind"] == "PrometheusRule"
        for group in o["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }

    assert severities["RedriveGroupRegressed"] == "warning"
    assert severities["RedriveGroupNew"] == ("warning" if wanted else "info")


def test_the_chart_and_the_plain_rules_have_the_same_alerts(render: Render) -> None:
    monitoring = {"prometheusRule": {"enabled": True}, "podMonitor": {"enabled": True}}
    release = render({"database": LOGINS, "monitoring": monitoring})
    [rule] = [o for o in release.objects if o["kind"] == "PrometheusRule"]

    def alerts(groups: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            r["alert"]: (r["labels"], r.get("for"), r.get("keep_firing_for"))
            for group in groups
            for r in group["rules"]
            if "alert" in r
        }

    plain = yaml.safe_load(
        (CHART.parents[1] / "alerts" / "redrive.rules.yaml").read_text()
    )
    assert alerts(rule["spec"]["groups"]) == alerts(plain["groups"])


def test_an_alert_can_be_left_out_and_links_can_lead_to_ones_own_runbook(
    render: Render,
) -> None:
    rule = {
        "enabled": True,
        "disabledAlerts": ["RedriveMetricsAbsent"],
        "runbookUrl": "https://wiki.example/redrive",
        "grafanaUrl": "https://graphs.example/",
        "consoleUrl": "https://shop.example/dead",
    }
    monitoring = {"prometheusRule": rule, "podMonitor": {"enabled": True}}
    release = render({"database": LOGINS, "monitoring": monitoring})

    groups = [
        group
        for o in release.objects
        if o["kind"] == "PrometheusRule"
        for group in o["spec"]["groups"]
    ]
    alerts = {
        rule["alert"]: rule["annotations"]
        for group in groups
        for rule in group["rules"]
        if "alert" in rule
    }
    assert "RedriveDeadLettersGrowingFast" in alerts
    assert "RedriveMetricsAbsent" not in alerts
    page = alerts["RedriveDeadLettersGrowingFast"]
    assert page["runbook_url"].startswith("https://wiki.example/redrive#")
    assert page["dashboard_url"].startswith("https://graphs.example/d/")
    of_cell = "{{ with $labels.cell }}/cells/{{ . }}{{ end }}"
    assert page["console_url"].startswith(
        f"https://shop.example/dead{of_cell}/dead-letters?"
    )
    links = {
        link
        for notes in alerts.values()
        for name, link in notes.items()
        if name.endswith("_url")
    }
    assert [
        link
        for link in links
        if not link.startswith(("https://wiki.", "https://graphs.", "https://shop."))
    ] == []


def test_dashboards_lead_to_ones_own_runbook(render: Render) -> None:
    monitoring = {
        "dashboards": {"enabled": True},
        "prometheusRule": {"runbookUrl": "https://wiki.example/redrive"},
    }
    release = render({"database": LOGINS, "monitoring": monitoring})

    text = "".join(
        o["data"][name]
        for o in release.objects
        if "dashboard-" in o["metadata"]["name"]
        for name in o["data"]
    )
    assert "https://wiki.example/redrive" in text
    assert "runbooks.example" not in text


def test_links_without_an_address_are_left_out(render: Render) -> None:
    """Whoever was woken was sent to runbooks.example and grafana.example."""
    monitoring = {
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    }
    release = render({"database": LOGINS, "monitoring": monitoring})

    assert re.findall(r"\w+\.example\b", release.text) == []
    (rules,) = (o for o in release.objects if o["kind"] == "PrometheusRule")
    alerts = [
        r for group in rules["spec"]["groups"] for r in group["rules"] if "alert" in r
    ]
    assert {name for alert in alerts for name in alert["annotations"]} == {
        "summary",
        "cause",
        "description",
    }
    boards = [
        json.loads(text)
        for o in release.objects
        if "-dashboard-" in o["metadata"]["name"]
        for text in o["data"].values()
    ]
    assert len(boards) == 3
    for board in boards:
        assert "${runbook}" not in json.dumps(board)
        assert "job" in {variable["name"] for variable in board["templating"]["list"]}
        assert len(board["links"]) == 1
    assert "monitoring.prometheusRule: runbookUrl, grafanaUrl." in release.notes


def test_dashboards_are_installed_as_they_are(
    render: Render, with_dashboard: Path
) -> None:
    release = render(read_values(EVERYTHING), chart=with_dashboard)

    shipped = {
        name: text
        for o in release.objects
        if o["kind"] == "ConfigMap" and "-dashboard-" in o["metadata"]["name"]
        for name, text in o["data"].items()
    }
    assert shipped == {
        path.name: path.read_text()
        for path in (with_dashboard / "files" / "dashboards").glob("*.json")
    }


def test_alerts_lead_to_the_console_of_the_release(render: Render) -> None:
    rules = {
        "monitoring": {
            "prometheusRule": {"enabled": True},
            "podMonitor": {"enabled": True},
        }
    }
    release = render(console(url="https://mine.example") | rules)

    assert "console_url: https://mine.example/dead-letters?queue=" in release.text
    assert "redrive.example" not in release.text


def test_a_release_of_one_cell_says_so_in_all_its_figures(everything: Release) -> None:
    endpoints = everything.get("PodMonitor", "everything")["spec"][
        "podMetricsEndpoints"
    ]

    assert [endpoint["relabelings"][1] for endpoint in endpoints] == [
        LABELLED,
        LABELLED,
    ]
    assert "REDRIVE_DATABASES" not in everything.text
