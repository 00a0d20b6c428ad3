"""The console: who signs in, with which rights, and from where."""

from redrive.settings import load as load_settings
from tests.chart.conftest import Render
from tests.chart.helm import Release
from tests.chart.rendered import LABELLED, console, environment, pods_of, settings


def test_a_console_knows_the_logins_of_its_roles_and_no_other(render: Render) -> None:
    release = render(console())

    assert settings(release, "Deployment", "rel-console", "REDRIVE_CONSOLE") == {
        "REDRIVE_CONSOLE_PORT": "9809",
        "REDRIVE_CONSOLE_VIEWER_URL_FILE": "/etc/redrive/console/viewer/url",
        "REDRIVE_CONSOLE_OPERATOR_URL_FILE": "/etc/redrive/console/operator/url",
        "REDRIVE_CONSOLE_TOKENS": "/etc/redrive/console/tokens",
    }
    assert "REDRIVE_DATABASE_URL_FILE" not in environment(
        release, "Deployment", "rel-console"
    )
    (pod,) = pods_of(release.get("Deployment", "rel-console"))
    projected = next(v["projected"] for v in pod["volumes"] if v["name"] == "secrets")
    assert [
        (
            s["secret"]["name"],
            s["secret"]["items"][0]["key"],
            s["secret"]["items"][0]["path"],
        )
        for s in projected["sources"]
    ] == [
        ("seers", "url", "viewer/url"),
        ("rel-database-console-operator", "url", "operator/url"),
        ("tokens", "list", "tokens"),
    ]
    assert [s["secret"]["secretName"] for s in pod["volumes"] if "secret" in s] == []
    assert "PodDisruptionBudget" not in {o["kind"] for o in release.objects}


def test_each_way_to_sign_in_reaches_the_console(everything: Release) -> None:
    found = settings(everything, "Deployment", "everything-console", "REDRIVE_CONSOLE")

    assert (
        load_settings(**{name[8:].lower(): value for name, value in found.items()})
        is not None
    )
    assert (
        found["REDRIVE_CONSOLE_GROUPS"]
        == "oncall=operator,role:leads=approver,staff=viewer"
    )
    assert found["REDRIVE_CONSOLE_PROXIES"] == "10.9.0.1,fd00::/8"
    assert found["REDRIVE_CONSOLE_OIDC_ISSUER"] == "https://id.example/realms/staff"
    secret = found["REDRIVE_CONSOLE_OIDC_CLIENT_SECRET_FILE"]
    assert secret == "/etc/redrive/console/oidc/secret"
    assert found["REDRIVE_CONSOLE_KEY_FILE"] == "/etc/redrive/console/key"
    assert found["REDRIVE_CONSOLE_URL"] == "https://redrive.example"


def test_the_console_trusts_the_authority_of_its_provider(
    everything: Release, render: Render
) -> None:
    (pod,) = pods_of(everything.get("Deployment", "everything-console"))
    projected = next(v["projected"] for v in pod["volumes"] if v["name"] == "secrets")
    file = {"key": "bundle.pem", "path": "oidc/ca.crt"}

    assert {"configMap": {"name": "authorities", "items": [file]}} in projected[
        "sources"
    ]
    found = environment(everything, "Deployment", "everything-console")
    assert found["SSL_CERT_FILE"] == "/etc/redrive/console/oidc/ca.crt"
    public = render(console())
    assert "SSL_CERT_FILE" not in environment(public, "Deployment", "rel-console")


def test_the_console_is_reached_by_its_host_from_where_it_may_be(
    everything: Release,
) -> None:
    rule = everything.get("Ingress", "everything-console")["spec"]["rules"][0]
    route = everything.get("HTTPRoute", "everything-console")["spec"]
    policy = everything.get("NetworkPolicy", "everything-console")["spec"]
    service = everything.get("Service", "everything-console")["spec"]
    budget = everything.get("PodDisruptionBudget", "everything-console")["spec"]

    assert (rule["host"], route["hostnames"]) == (
        "redrive.example",
        ["redrive.example"],
    )
    assert (
        rule["http"]["paths"][0]["backend"]["service"]["name"] == "everything-console"
    )
    assert route["rules"] == [
        {"backendRefs": [{"name": "everything-console", "port": 80}]}
    ]
    assert service["ports"][0]["targetPort"] == "http"
    assert policy["ingress"][0]["ports"] == [{"port": 9809, "protocol": "TCP"}]
    assert len(policy["ingress"][0]["from"]) == 2
    assert policy["egress"] == [{"ports": [{"port": 443, "protocol": "TCP"}]}]
    assert budget["maxUnavailable"] == 1


def test_exporter_and_console_of_all_cells_have_their_file_and_nobody_else(
    render: Render,
) -> None:
    """Workers are of one cell, and say which: rules hold them against the figures of that cell."""
    values = console(logins={}, url="https://mine.example") | {
        "cells": {"name": "eu", "existingSecret": "fleet", "key": "all.yaml"},
        "workers": {"main": {"handlers": "a:b"}},
        "monitoring": {
            "prometheusRule": {"enabled": True},
            "podMonitor": {"enabled": True},
        },
    }
    release = render(values)

    for name in ("rel-exporter", "rel-console"):
        (pod,) = pods_of(release.get("Deployment", name))
        container = pod["containers"][0]
        env = {variable["name"]: variable["value"] for variable in container["env"]}
        assert env["REDRIVE_DATABASES"] == "/etc/redrive/cells/all.yaml"
        mount = {"name": "cells", "mountPath": "/etc/redrive/cells", "readOnly": True}
        assert mount in container["volumeMounts"]
        secret = {"secretName": "fleet", "defaultMode": 0o440}
        assert {"name": "cells", "secret": secret} in pod["volumes"]
    assert "REDRIVE_CONSOLE_OPERATOR_URL_FILE" not in release.text
    assert "REDRIVE_DATABASES" not in environment(
        release, "Deployment", "rel-worker-main"
    )
    for endpoint in release.get("PodMonitor", "rel")["spec"]["podMetricsEndpoints"]:
        of_workers = {"sourceLabels": [COMPONENT], "regex": "worker|gateway"}
        assert endpoint["relabelings"][1] == LABELLED | of_workers
    of_cell = "https://mine.example{{ with $labels.cell }}/cells/{{ . }}{{ end }}/"
    rules = next(o for o in release.objects if o["kind"] == "PrometheusRule")["spec"][
        "groups"
    ]
    links = [
        r["annotations"]["console_url"]
        for g in rules
        for r in g["rules"]
        if "alert" in r
    ]
    assert [link for link in links if not link.startswith(of_cell)] == []


COMPONENT = "__meta_kubernetes_pod_label_app_kubernetes_io_component"
