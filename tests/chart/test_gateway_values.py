"""The gateway in the chart: its file of sources, its login and its brokers."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from redrive.extras.gateway.file import SQS, RabbitMQ, load
from tests import pages
from tests.chart.conftest import Render
from tests.chart.helm import CHART, HelmRefusedError, Release
from tests.chart.rendered import (
    GATEWAY,
    LOGINS,
    MAIL,
    ORDERS,
    SOURCES,
    container,
    environment,
)


def gateway(**more: Any) -> dict[str, Any]:
    return {"database": LOGINS, "gateway": GATEWAY | more}


def pod(release: Release) -> dict[str, Any]:
    return release.get("Deployment", "rel-gateway")["spec"]["template"]


def test_sources_of_values_are_the_file_that_the_gateway_reads(
    render: Render, tmp_path: Path
) -> None:
    release = render(gateway())
    file = tmp_path / "gateway.yaml"
    file.write_text(release.get("ConfigMap", "rel-gateway")["data"]["gateway.yaml"])

    assert set(load(file)) == {"rabbitmq.orders", "sqs.mail"}
    assert yaml.safe_load(file.read_text()) == SOURCES


def test_the_values_of_the_page_give_a_gateway_that_reads_its_secret(
    render: Render,
) -> None:
    page = "docs/moving/beside-your-queue.md"
    found = [block.text for block in pages.blocks("yaml") if block.page == page]
    [values] = [yaml.safe_load(text) for text in found if "gateway:" in text]
    release = render({"database": LOGINS} | values)

    mounts = container(release, "Deployment", "rel-gateway")["volumeMounts"]
    url = values["gateway"]["sources"]["rabbitmq"]["orders"]["url_file"]
    assert str(Path(url).parent) in {mount["mountPath"] for mount in mounts}


def test_the_login_and_the_secrets_of_brokers_are_files(render: Render) -> None:
    release = render(gateway())
    mounts = container(release, "Deployment", "rel-gateway")["volumeMounts"]
    paths = {mount["name"]: mount["mountPath"] for mount in mounts}
    secrets = {
        paths[volume["name"]]: volume["secret"]["secretName"]
        for volume in pod(release)["spec"]["volumes"]
        if "secret" in volume
    }

    assert secrets == {
        "/etc/redrive/database": "gateway-login",
        "/etc/redrive/brokers/rabbit": "rabbit",
        "/etc/redrive/brokers/other.broker": "other.broker",
    }
    found = environment(release, "Deployment", "rel-gateway")
    assert found["REDRIVE_GATEWAY"] == f"{paths['sources']}/gateway.yaml"


def test_a_config_map_replaces_the_sources_of_values(render: Render) -> None:
    none = {"rabbitmq": {}, "sqs": {}}
    own = {"existingConfigMap": "mine", "key": "sources.yaml", "sources": none}
    release = render(gateway(**own))

    assert "rel-gateway" not in release.names("ConfigMap")
    volumes = {v["name"]: v for v in pod(release)["spec"]["volumes"]}
    assert volumes["sources"]["configMap"] == {
        "name": "mine",
        "items": [{"key": "sources.yaml", "path": "gateway.yaml"}],
    }


def test_other_sources_replace_the_pods(render: Render) -> None:
    one = pod(render(gateway()))["metadata"]["annotations"]
    changed = {"sources": SOURCES | {"sqs": {}}}
    two = pod(render(gateway(**changed)))["metadata"]["annotations"]

    assert one["checksum/config"] == two["checksum/config"]
    assert one["checksum/sources"] != two["checksum/sources"]


@pytest.mark.parametrize(("replicas", "is_protected"), [(1, False), (2, True)])
def test_a_drain_of_nodes_leaves_a_gateway(
    render: Render, replicas: int, *, is_protected: bool
) -> None:
    release = render(gateway(replicas=replicas))
    assert ("rel-gateway" in release.names("PodDisruptionBudget")) == is_protected


def test_the_gateway_says_which_version_it_is(render: Render) -> None:
    release = render(gateway() | {"image": {"tag": "1.2.3"}})
    found = environment(release, "Deployment", "rel-gateway")
    assert found["REDRIVE_VERSION"] == "1.2.3"


def test_the_gateway_is_scraped_and_reaches_its_brokers(render: Render) -> None:
    monitored = {"monitoring": {"podMonitor": {"enabled": True}}}
    release = render(gateway() | monitored)
    labels = pod(release)["metadata"]["labels"]
    [selected] = release.get("PodMonitor", "rel")["spec"]["selector"][
        "matchExpressions"
    ]
    [metrics] = release.get("NetworkPolicy", "rel-metrics")["spec"]["podSelector"][
        "matchExpressions"
    ]
    policy = release.get("NetworkPolicy", "rel-gateway")["spec"]

    assert labels["app.kubernetes.io/component"] == "gateway"
    assert "gateway" in selected["values"]
    assert "gateway" in metrics["values"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    [rule] = policy["egress"]
    assert [port["port"] for port in rule["ports"]] == [5671, 5672, 443]


def test_no_gateway_by_default(render: Render) -> None:
    assert "gateway" not in render({"database": LOGINS}).manifest.replace(
        "values: [worker, gateway, exporter]", ""
    )


def test_the_throw_away_postgres_has_a_login_for_the_gateway(render: Render) -> None:
    values = {"postgres": {"trial": {"enabled": True}}}
    release = render(values | {"gateway": GATEWAY | {"login": {}}})

    assert "rel-database-gateway" in release.names("Secret")
    logins = release.get("Secret", "rel-postgres")["stringData"]["logins.sql"]
    assert "create role redrive_trial_gateway login" in logins


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"login": {}}, "gateway.login: set existingSecret"),
        ({"existingConfigMap": "mine"}, "gateway.existingConfigMap are both set"),
        ({"sources": {}}, "gateway.sources names no dead letter queue"),
        (
            {"sources": {"rabbitmq": {"orders": {"queue": "dead"}}}},
            "gateway.sources.rabbitmq.orders: set url or url_file",
        ),
        (
            {"sources": {"rabbitmq": {"orders": ORDERS | {"url": "amqp://h"}}}},
            "gateway.sources.rabbitmq.orders: set url or url_file, and not both",
        ),
        (
            {"sources": {"rabbitmq": {"a": {"queue": "d", "url": "amqp://u:p@h"}}}},
            "/gateway/sources/rabbitmq/a/url",
        ),
        ({"sources": {"sqs": {"mail": MAIL | {"que": "a"}}}}, "/gateway/sources/sqs"),
    ],
)
def test_a_gateway_that_could_not_start_is_refused(
    render: Render, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(HelmRefusedError) as refused:
        render(gateway(**values))

    assert says in str(refused.value)


def test_connections_of_the_gateway_count(render: Render) -> None:
    budget = {"database": LOGINS | {"connectionBudget": 11}}

    with pytest.raises(HelmRefusedError, match="open 18 connections"):
        render(gateway(replicas=2) | budget)


@pytest.mark.parametrize("system", [RabbitMQ, SQS])
def test_the_chart_and_the_file_of_sources_have_the_same_fields(
    system: type[RabbitMQ | SQS],
) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    fields = schema["definitions"][system.__name__.lower()]["properties"]

    assert set(fields) == set(system.model_fields)
