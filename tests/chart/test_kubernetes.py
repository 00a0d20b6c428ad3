"""What the chart renders is valid, harmless and keeps its secrets."""

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest
from kubernetes_validate import utils

from tests.chart.conftest import EVERYTHING, EXAMPLES, Render, read_values
from tests.chart.rendered import pods_of

VALUES = {path.stem: read_values(path) for path in [*EXAMPLES, EVERYTHING]} | {
    "trial-closed": {
        "postgres": {"trial": {"enabled": True}},
        "networkPolicy": {"enabled": True},
    }
}
VERSIONS = [
    v for v in dict.fromkeys(utils.all_versions()) if int(v.split(".")[1]) >= 30
]
OF_OTHERS = re.compile(
    r"^(monitoring\.coreos\.com|keda\.sh|gateway\.networking\.k8s\.io)/"
)
"""Kinds that no Kubernetes brings; the tests on a real cluster check them against their own
definitions.
"""


@pytest.fixture(params=VALUES)
def objects(request: pytest.FixtureRequest, render: Render) -> list[dict[str, Any]]:
    return render(VALUES[request.param]).objects


@contextmanager
def read_once(validating: Any) -> Iterator[None]:
    """The schemas of Kubernetes are large."""
    original = validating.schema_contents
    validating.schema_contents = lru_cache(maxsize=None)(original)
    yield
    validating.schema_contents = original


@pytest.fixture(autouse=True, scope="module")
def _schemas_are_read_once() -> Iterator[None]:
    with read_once(utils):
        yield


def test_the_oldest_and_the_newest_kubernetes_are_among_those_checked() -> None:
    assert VERSIONS[0].startswith("1.30")
    assert len(VERSIONS) >= 8


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(objects: list[dict[str, Any]], version: str) -> None:
    for found in objects:
        if not OF_OTHERS.match(found["apiVersion"]):
            utils.validate(found, version, strict=True)


SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
}
VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def violations(pod: dict[str, Any]) -> Iterator[str]:
    """The controls of the Pod Security standard "restricted", one by one."""
    own = pod.get("securityContext", {})
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name):
            yield name
    if {s["name"] for s in own.get("sysctls", [])} - SAFE_SYSCTLS:
        yield "sysctls"
    for volume in pod.get("volumes", []):
        if set(volume) - {"name"} - VOLUMES:
            yield f"volume {volume['name']}"
    for c in [
        *pod.get("initContainers", []),
        *pod["containers"],
        *pod.get("ephemeralContainers", []),
    ]:
        security = c.get("securityContext", {})
        effective = own | security
        checks = {
            "privileged": not security.get("privileged"),
            "allowPrivilegeEscalation": security.get("allowPrivilegeEscalation")
            is False,
            "capabilities.drop": "ALL"
            in security.get("capabilities", {}).get("drop", []),
            "capabilities.add": set(security.get("capabilities", {}).get("add", []))
            <= {"NET_BIND_SERVICE"},
            "runAsNonRoot": effective.get("runAsNonRoot") is True,
            "runAsUser": effective.get("runAsUser") != 0,
            "seccompProfile": effective.get("seccompProfile", {}).get("type")
            in {"RuntimeDefault", "Localhost"},
            "procMount": security.get("procMount", "Default") == "Default",
            "hostPort": not any(port.get("hostPort") for port in c.get("ports", [])),
            "seLinuxOptions": not effective.get("seLinuxOptions"),
            "appArmor": effective.get("appArmorProfile", {}).get(
                "type", "RuntimeDefault"
            )
            != "Unconfined",
            # beyond the standard
            "readOnlyRootFilesystem": security.get("readOnlyRootFilesystem") is True,
            "memory limit": "memory" in c.get("resources", {}).get("limits", {}),
        }
        yield from (
            f"{c['name']}: {name}" for name, is_kept in checks.items() if not is_kept
        )


def test_every_pod_keeps_the_restricted_standard(objects: list[dict[str, Any]]) -> None:
    pods = [pod for found in objects for pod in pods_of(found)]

    assert len(pods) >= 4
    assert [v for pod in pods for v in violations(pod)] == []


def test_the_checker_of_the_standard_sees_what_breaks_it() -> None:
    bad = {
        "hostPID": True,
        "volumes": [{"name": "host", "hostPath": {}}],
        "containers": [{"name": "c"}],
    }

    assert set(violations(bad)) == {
        "hostPID",
        "volume host",
        "c: allowPrivilegeEscalation",
        "c: capabilities.drop",
        "c: runAsNonRoot",
        "c: seccompProfile",
        "c: readOnlyRootFilesystem",
        "c: memory limit",
    }


def test_no_pod_gets_a_token_or_the_addresses_of_services(
    objects: list[dict[str, Any]],
) -> None:
    for found in objects:
        for pod in pods_of(found):
            assert pod["automountServiceAccountToken"] is False
            assert pod["enableServiceLinks"] is False
        if found["kind"] == "ServiceAccount":
            assert found["automountServiceAccountToken"] is False


def test_nothing_asks_for_rights_in_the_cluster(objects: list[dict[str, Any]]) -> None:
    kinds = {found["kind"] for found in objects}

    assert [
        kind
        for kind in kinds
        if "Role" in kind or kind in {"Namespace", "CustomResourceDefinition"}
    ] == []


def test_a_secret_stands_in_secrets_only(render: Render) -> None:
    secret = "s3cr3t-of-the-database"  # invented here
    values = {
        "database": {
            login: {"url": f"postgresql://u:{secret}@h/d"}
            for login in ("owner", "worker", "operator")
        },
        "workers": {"mail": {"handlers": "a:b"}},
        "networkPolicy": {"enabled": True},
    }
    release = render(values)

    encoded = base64.b64encode(values["database"]["owner"]["url"].encode()).decode()
    holding = {
        f"{o['kind']}/{o['metadata']['name']}"
        for o in release.objects
        if secret in json.dumps(o) or encoded in json.dumps(o)
    }
    assert holding == {
        f"Secret/rel-database-{login}" for login in ("owner", "worker", "operator")
    }
    assert secret not in release.notes


def test_the_trials_password_reaches_its_pods_through_secrets_only(
    render: Render,
) -> None:
    password = "pw-of-the-trial"  # invented here
    release = render({"postgres": {"trial": {"enabled": True, "password": password}}})

    assert {o["kind"] for o in release.objects if password in json.dumps(o)} == {
        "Secret"
    }
    assert password not in release.notes


def test_images_are_named_in_full_and_can_be_pinned(render: Render) -> None:
    digest = "sha256:" + "a" * 64
    image = {"repository": "r.example/redrive", "digest": digest}
    release = render({"postgres": {"trial": {"enabled": True}}, "image": image})

    images = {
        c["image"]
        for o in release.objects
        for pod in pods_of(o)
        for c in pod["containers"]
    }
    assert images == {
        f"r.example/redrive@{digest}",
        "docker.io/library/postgres:17-bookworm",
    }


def test_every_object_is_in_the_namespace_and_carries_the_common_labels(
    render: Render,
) -> None:
    for found in render(
        {
            **VALUES["everything"],
            "extraObjects": [],
            "commonLabels": {"team": "payments"},
        }
    ).objects:
        meta = found["metadata"]
        assert meta["namespace"] == "jobs", meta["name"]
        assert meta["labels"]["app.kubernetes.io/instance"] == "rel"
        assert meta["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert meta["labels"]["team"] == "payments"
