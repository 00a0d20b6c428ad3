"""Logins, certificates, keys, and who may be reached from where."""

import json
from typing import Any

import pytest

from tests.chart.conftest import Render
from tests.chart.helm import Release
from tests.chart.rendered import LOGINS, pods_of, settings, with_pool


def secrets_of(release: Release) -> dict[str, set[str]]:
    """The Secrets that each container has mounted."""
    return {
        f"{o['kind']}/{o['metadata']['name']}/{c['name']}": {
            v["secret"]["secretName"]
            for v in pod["volumes"]
            if v.get("secret")
            and v["name"] in {mount["name"] for mount in c["volumeMounts"]}
        }
        for o in release.objects
        for pod in pods_of(o)
        for c in pod["containers"]
    }


def test_each_part_has_the_login_it_needs_and_no_other(render: Render) -> None:
    """What listens on the network has the viewer's login, and no keyring."""
    values = with_pool() | {
        "database": LOGINS | {"viewer": {"existingSecret": "viewer"}},
        "encryption": {"existingSecret": "keyring"},
        "redrive": {"automatic": {"enabled": True, "filter": {"queue": ["mail"]}}},
    }

    assert secrets_of(render(values)) == {
        "Job/rel-migrate/redrive": {"owner"},
        "Deployment/rel-worker-mail/worker": {"worker", "keyring"},
        "Pod/rel-test/canary": {"worker"},
        "Deployment/rel-exporter/exporter": {"viewer"},
        "Deployment/rel-exporter/tools": {"operator", "keyring"},
        "CronJob/rel-purge/redrive": {"operator"},
        "CronJob/rel-redrive/redrive": {"operator"},
        "CronJob/rel-redrive-template/redrive": {"operator"},
    }


def test_without_a_viewer_the_exporter_has_the_operators_login_and_the_notes_say_so(
    render: Render,
) -> None:
    """Values that name three logins go on; the keyring is out of reach all the same."""
    release = render({"database": LOGINS, "encryption": {"existingSecret": "keyring"}})

    assert secrets_of(release)["Deployment/rel-exporter/exporter"] == {"operator"}
    assert "database.viewer" in release.notes


def test_kubectl_exec_reaches_the_container_with_the_tools_which_listens_to_nobody(
    render: Render,
) -> None:
    """`kubectl exec deploy/rel-exporter -- redrive ...` goes on as it did."""
    template = render({"database": LOGINS}).get("Deployment", "rel-exporter")["spec"][
        "template"
    ]
    exporter, tools = template["spec"]["containers"]
    notes = template["metadata"]["annotations"]

    assert notes["kubectl.kubernetes.io/default-container"] == tools["name"] == "tools"
    assert "ports" not in tools
    # A place to write that both had would be a way from one to the other.
    writable = {v["name"] for v in template["spec"]["volumes"] if "emptyDir" in v}
    mounted = [m["name"] for c in (exporter, tools) for m in c["volumeMounts"]]
    assert sorted(name for name in mounted if name in writable) == ["tmp", "tools-tmp"]

    alone = render({"database": LOGINS, "exporter": {"tools": {"enabled": False}}})
    pod = alone.get("Deployment", "rel-exporter")["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["containers"]] == ["exporter"]


def test_tls_is_files_and_their_names(everything: Release) -> None:
    assert settings(everything, "Deployment", "everything-worker-plain", "PG") == {
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": "/etc/redrive/ca/ca.crt",
        "PGSSLCERT": "/etc/redrive/client/tls.crt",
        "PGSSLKEY": "/etc/redrive/client/tls.key",
    }
    pod = everything.get("Deployment", "everything-worker-plain")["spec"]["template"][
        "spec"
    ]
    client = next(v["secret"] for v in pod["volumes"] if v["name"] == "client")
    assert client["defaultMode"] == 0o440


def test_a_public_authority_needs_no_certificate_of_ones_own(render: Render) -> None:
    tls = {"mode": "verify-full", "systemCa": True}
    release = render({"database": LOGINS | {"tls": tls}})

    assert settings(release, "Deployment", "rel-exporter", "PG") == {
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": "/etc/ssl/certs/ca-certificates.crt",
    }


def test_the_exporter_and_the_tools_beside_it_know_the_disk_budget(
    render: Render,
) -> None:
    """The exporter serves it, and people run redrive check in the tools."""
    release = render({"database": LOGINS | {"diskBudgetGiB": 50}})
    pod = release.get("Deployment", "rel-exporter")["spec"]["template"]["spec"]
    budget = {"name": "REDRIVE_DISK_BUDGET_GIB", "value": "50"}

    assert [budget in container["env"] for container in pod["containers"]] == [True] * 2


def test_the_keyring_is_a_file_of_those_who_read_payloads(
    everything: Release, render: Render
) -> None:
    mounting = {
        found["metadata"]["name"]: volume["secret"]
        for found in everything.objects
        for pod in pods_of(found)
        for volume in pod["volumes"]
        if volume["name"] == "encryption"
    }

    assert set(mounting) == everything.names("Deployment")
    for name, secret in mounting.items():
        (item,) = secret["items"]
        pod = everything.get("Deployment", name)["spec"]["template"]["spec"]
        reader = next(
            c
            for c in pod["containers"]
            if c["name"] in {"worker", "tools", "console", "gateway"}
        )
        mounts = {m["name"]: m["mountPath"] for m in reader["volumeMounts"]}
        found = {e["name"]: e.get("value") for e in reader["env"]}
        assert (secret["secretName"], item["key"]) == ("keyring", "ring.txt")
        assert (
            found["REDRIVE_ENCRYPTION_KEYS_FILE"]
            == f"{mounts['encryption']}/{item['path']}"
        )
    assert "ENCRYPTION" not in render(with_pool()).text


def test_closed_to_the_network_unless_values_open_it(render: Render) -> None:
    """There was no NetworkPolicy by default, and with one any pod could read metrics."""
    urls = {
        login: {"url": "postgresql://u:5:7@[::1]:6432,h:6433/d?x=1"} for login in LOGINS
    }
    release = render(
        with_pool() | {"database": urls | {"viewer": {"url": "host=h port=6434"}}}
    )

    metrics = release.get("NetworkPolicy", "rel-metrics")["spec"]["ingress"]
    assert [
        peer for rule in metrics for peer in rule["from"] if "namespaceSelector" in peer
    ] == [
        {
            "namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": "monitoring"}
            }
        }
    ]
    names, database = release.get("NetworkPolicy", "rel")["spec"]["egress"]
    assert {port["port"] for port in names["ports"]} == {53, 5353}
    assert [port["port"] for port in database["ports"]] == [6432, 6433, 6434]
    assert "6432, 6433, 6434" in release.notes
    [handlers] = release.get("NetworkPolicy", "rel-worker")["spec"]["egress"]
    blocked = [
        block
        for peer in handlers["to"]
        for block in peer.get("ipBlock", {}).get("except", [])
    ]
    assert blocked == ["169.254.169.254/32", "fd00:ec2::254/128"]


@pytest.mark.parametrize(
    ("policy", "egress"),
    [
        ({}, [{"port": 5432, "protocol": "TCP"}]),
        ({"databasePort": 6432}, [{"port": 6432, "protocol": "TCP"}]),
    ],
)
def test_a_database_whose_url_is_a_secret_is_reached_on_the_port_that_values_name(
    render: Render, policy: dict[str, Any], egress: list[Any]
) -> None:
    """Its address is unknown then, so the port is all there is to go by."""
    release = render({"database": LOGINS, "networkPolicy": policy})

    assert release.get("NetworkPolicy", "rel")["spec"]["egress"][1] == {"ports": egress}


def test_a_part_of_a_password_is_never_taken_for_a_port(render: Render) -> None:
    logins = {
        login: {"url": "host=h password='port=4711 :4712,' user=u"} for login in LOGINS
    }
    release = render({"database": logins})

    assert "471" not in json.dumps(release.get("NetworkPolicy", "rel"))


def test_a_first_try_brings_the_logins_of_viewer_and_operator(render: Render) -> None:
    values = {"postgres": {"trial": {"enabled": True}}}
    release = render(
        values | {"console": {"enabled": True, "tokens": {"existingSecret": "t"}}}
    )

    made = {name for name in release.names("Secret") if "console" in name}
    assert made == {"rel-database-console-viewer", "rel-database-console-operator"}
    assert (
        "kubectl port-forward --namespace jobs service/rel-console 9809:80"
        in release.notes
    )
