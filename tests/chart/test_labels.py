"""Labels and selectors, and values that YAML could take for something else."""

import json
import re
from typing import Any

import pytest

from tests.chart.conftest import Render
from tests.chart.helm import HelmRefusedError, Release
from tests.chart.rendered import KEDA, LOGINS, environment, pods_of, with_pool


def test_selectors_find_the_pods_of_their_own_component_only(
    everything: Release,
) -> None:
    labels = {
        o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"]
        for o in everything.objects
        if o["kind"] == "Deployment"
    }
    for o in everything.objects:
        selector = o.get("spec", {}).get("selector") or {}
        wanted = selector.get(
            "matchLabels", selector if o["kind"] == "Service" else None
        )
        if not wanted or o["kind"] in {"PodMonitor", "ServiceMonitor"}:
            continue
        matching = {
            name for name, found in labels.items() if wanted.items() <= found.items()
        }
        assert matching == {o["metadata"]["name"]}, o["kind"]


@pytest.mark.parametrize(
    "label", ["app.kubernetes.io/name", "redrive/pool", "helm.sh/chart"]
)
@pytest.mark.parametrize(
    "where",
    [("commonLabels",), ("pods", "labels"), ("workerDefaults", "podLabels")],
    ids=".".join,
)
def test_labels_of_values_never_replace_those_of_a_selector(
    render: Render, where: tuple[str, ...], label: str
) -> None:
    """CommonLabels replaced labels that selectors use, and nothing found its pods."""
    values: Any = {label: "mine"}
    for name in reversed(where):
        values = {name: values}

    with pytest.raises(HelmRefusedError) as refused:
        render(with_pool() | values)

    assert label in str(refused.value)


def test_labels_of_values_are_on_the_pods(render: Render) -> None:
    values = with_pool(podLabels={"team": "a"}) | {
        "pods": {"labels": {"team": "b", "tier": "c"}}
    }
    template = render(values).get("Deployment", "rel-worker-mail")["spec"]["template"]
    labels = template["metadata"]["labels"]

    assert (labels["team"], labels["tier"], labels["redrive/pool"]) == (
        "a",
        "c",
        "mail",
    )


def test_words_that_yaml_takes_for_something_else_stay_words(render: Render) -> None:
    """A pool named `no` gave a boolean label; names of classes and Secrets went unquoted."""
    values = {
        "database": {login: {"existingSecret": "on"} for login in LOGINS}
        | {"tls": {"mode": "verify-full", "caSecret": {"name": "1e3", "key": "yes"}}},
        "encryption": {"existingSecret": "0x10", "key": "off"},
        "workers": {
            "no": {"handlers": "a:b", "handlersConfigMap": "123", "replicas": 2}
        },
        "pods": {"priorityClassName": "1e3"},
        "serviceAccount": {"create": False, "name": "true"},
        "commonLabels": {"team": "null", "cost-center": "12345"},
        "image": {"repository": "redrive", "tag": "1.10"},
    }
    release = render(values)

    for found in release.objects:
        assert {type(v) for v in found["metadata"]["labels"].values()} == {str}
        for pod in pods_of(found):
            assert pod["priorityClassName"] == "1e3"
            assert pod.get("serviceAccountName", "true") == "true"
            secrets = [v["secret"] for v in pod["volumes"] if "secret" in v]
            assert {s["secretName"] for s in secrets} <= {"on", "1e3", "0x10"}
            assert {type(i["key"]) for s in secrets for i in s["items"]} == {str}
    worker = release.get("Deployment", "rel-worker-no")["spec"]
    assert worker["selector"]["matchLabels"]["redrive/pool"] == "no"
    [budget] = [o for o in release.objects if o["kind"] == "PodDisruptionBudget"]
    assert (
        budget["spec"]["selector"]["matchLabels"] == worker["selector"]["matchLabels"]
    )


def test_numbers_stay_numbers_when_they_are_large(render: Render) -> None:
    automatic = {"enabled": True, "filter": {"queue": ["a"]}, "limit": 1000000}
    redrive = {"activeDeadlineSeconds": 2000000, "automatic": automatic}
    release = render(
        {
            "database": LOGINS,
            "cronJobs": {"ttlSecondsAfterFinished": 1209600},
            "redrive": redrive,
        }
    )

    job = release.get("CronJob", "rel-redrive")["spec"]["jobTemplate"]["spec"]
    numbers = [job["ttlSecondsAfterFinished"], job["activeDeadlineSeconds"]]
    assert json.dumps(numbers) == "[1209600, 2000000]"
    assert (
        environment(release, "CronJob", "rel-redrive")["REDRIVE_REDRIVE_LIMIT"]
        == "1000000"
    )


def test_numbers_of_pools_stay_numbers_when_they_are_large(render: Render) -> None:
    """From a million on they were rendered with an exponent."""
    scaled = {"type": "keda", "maxReplicas": 1000000, "jobsPerPod": 5000000} | {
        "keda": KEDA["keda"] | {"fallbackReplicas": 1000000}
    }
    hpa = {"type": "hpa", "maxReplicas": 1000000, "jobsPerPod": 5000000}
    pools = {
        "a": {"replicas": 1000000},
        "b": {"autoscaling": scaled},
        "c": {"autoscaling": hpa},
    }
    defaults = {"handlers": "a:b", "terminationGracePeriodSeconds": 2000000}
    release = render({"database": LOGINS, "workerDefaults": defaults, "workers": pools})

    assert not re.search(r"\de[+]\d", release.manifest)
    assert release.get("Deployment", "rel-worker-a")["spec"]["replicas"] == 1000000
    [trigger, _] = release.get("ScaledObject", "rel-worker-b")["spec"]["triggers"]
    assert trigger["metadata"]["threshold"] == "5000000"
