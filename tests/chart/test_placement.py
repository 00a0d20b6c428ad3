"""Where pods run, and what every object carries."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chart.conftest import EVERYTHING, Render, read_values
from tests.chart.helm import HelmRefusedError, Release
from tests.chart.rendered import GATEWAY, pods_of, with_pool

ZONE = {
    "topologyKey": "topology.kubernetes.io/zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
}
CONSOLE = {
    "enabled": True,
    "url": "https://redrive.example",
    "logins": {"viewer": {"existingSecret": "viewer"}},
    "tokens": {"existingSecret": "tokens"},
}


def pods(release: Release) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod template, with the kind of its object."""
    for found in release.objects:
        spec = found.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if found["kind"] == "Pod":
            yield found["kind"], found
        elif "template" in spec:
            yield found["kind"], spec["template"]


def spread(release: Release, name: str) -> list[dict[str, Any]]:
    spec = release.get("Deployment", name)["spec"]["template"]["spec"]
    return spec.get("topologySpreadConstraints", [])


def test_every_object_has_the_common_annotations_beside_its_own(render: Render) -> None:
    release = render(read_values(EVERYTHING))

    assert [
        f"{found['kind']}/{found['metadata']['name']}"
        for found in release.objects
        if found["metadata"].get("annotations", {}).get("example.com/team") != "money"
    ] == ["ConfigMap/handlers", "Pod/everything-test"]  # one of yours, and a pod
    exporter = release.get("Service", "everything-exporter")
    assert exporter["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    hook = release.get("Job", "everything-migrate")["metadata"]["annotations"]
    assert hook["helm.sh/hook"] == "pre-install,pre-upgrade"


def test_common_annotations_replace_no_pod(render: Render) -> None:
    plain, annotated = (
        list(pods(render(values)))
        for values in (
            with_pool(),
            with_pool() | {"commonAnnotations": {"example.com/team": "money"}},
        )
    )

    assert [pod for kind, pod in annotated if kind == "Deployment"] == [
        pod for kind, pod in plain if kind == "Deployment"
    ]


def test_an_annotation_of_an_object_wins_over_a_common_one(render: Render) -> None:
    release = render(
        with_pool(deploymentAnnotations={"example.com/team": "mail"})
        | {"commonAnnotations": {"example.com/team": "money"}}
    )

    worker = release.get("Deployment", "rel-worker-mail")
    assert worker["metadata"]["annotations"] == {"example.com/team": "mail"}


@pytest.mark.parametrize("of_parent", ["parent", {"name": "parent"}])
def test_every_pod_pulls_with_the_secrets_of_the_parent_chart_too(
    render: Render, of_parent: Any
) -> None:
    release = render(
        read_values(EVERYTHING)
        | {"global": {"imagePullSecrets": [of_parent, "pull"], "storageClass": "x"}}
    )

    assert {
        tuple(secret["name"] for secret in pod["spec"]["imagePullSecrets"])
        for _, pod in pods(release)
    } == {("pull", "parent")}


def test_constraints_of_a_pool_replace_the_spread_of_the_chart(render: Render) -> None:
    release = render(with_pool(topologySpreadConstraints=[ZONE]))

    assert spread(release, "rel-worker-mail") == [
        ZONE
        | {
            "labelSelector": {
                "matchLabels": {
                    "app.kubernetes.io/name": "redrive",
                    "app.kubernetes.io/instance": "rel",
                    "app.kubernetes.io/component": "worker",
                    "redrive/pool": "mail",
                }
            }
        }
    ]


def test_constraints_hold_although_the_spread_of_the_chart_is_off(
    render: Render,
) -> None:
    release = render(with_pool(topologySpread=False, topologySpreadConstraints=[ZONE]))

    assert len(spread(release, "rel-worker-mail")) == 1


def test_a_selector_of_a_constraint_stays_as_it_is(render: Render) -> None:
    own = ZONE | {"labelSelector": {"matchLabels": {"app": "other"}}}

    release = render(with_pool(topologySpreadConstraints=[own]))

    assert spread(release, "rel-worker-mail") == [own]


def test_exporter_and_console_have_constraints_of_their_own(render: Render) -> None:
    own = {"topologySpreadConstraints": [ZONE]}
    plain = render(with_pool() | {"console": CONSOLE})
    release = render(with_pool() | {"console": CONSOLE | own, "exporter": own})

    assert spread(plain, "rel-exporter") == []
    assert [one["topologyKey"] for one in spread(plain, "rel-console")] == [
        "kubernetes.io/hostname"
    ]
    for component in ("exporter", "console"):
        (constraint,) = spread(release, f"rel-{component}")
        labels = constraint["labelSelector"]["matchLabels"]
        assert labels["app.kubernetes.io/component"] == component


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (with_pool(topologySpreadConstraints=[ZONE, ZONE]), "workers.mail"),
        (
            with_pool() | {"exporter": {"topologySpreadConstraints": [ZONE, ZONE]}},
            "exporter",
        ),
    ],
)
def test_a_constraint_that_is_there_twice_is_refused(
    render: Render, values: dict[str, Any], named: str
) -> None:
    with pytest.raises(
        HelmRefusedError, match=rf"{named}\.topologySpreadConstraints: .* twice"
    ):
        render(values)


@pytest.mark.parametrize("component", ["exporter", "console", "gateway"])
def test_a_component_adds_to_the_placement_of_all_pods(
    render: Render, component: str
) -> None:
    values = with_pool() | {
        "pods": {
            "priorityClassName": "low",
            "nodeSelector": {"disk": "ssd", "zone": "a"},
            "tolerations": [{"key": "all"}],
        },
        "console": CONSOLE,
        "gateway": GATEWAY,
    }
    values[component] = values.get(component, {}) | {
        "priorityClassName": "high",
        "nodeSelector": {"zone": "b"},
        "tolerations": [{"key": "own"}],
        "podLabels": {"example.com/tier": "web"},
    }

    release = render(values)

    template = release.get("Deployment", f"rel-{component}")["spec"]["template"]
    assert template["metadata"]["labels"]["example.com/tier"] == "web"
    spec = template["spec"]
    assert spec["priorityClassName"] == "high"
    assert spec["nodeSelector"] == {"disk": "ssd", "zone": "b"}
    assert [one["key"] for one in spec["tolerations"]] == ["all", "own"]
    others = release.get("Deployment", "rel-worker-mail")["spec"]["template"]["spec"]
    assert others["nodeSelector"] == {"disk": "ssd", "zone": "a"}


def test_a_registry_of_a_parent_chart_is_that_of_all_images(render: Render) -> None:
    release = render(
        {
            "global": {"imageRegistry": "mirror.example:5000/all"},
            "postgres": {"trial": {"enabled": True}},
            "image": {"repository": "ghcr.io/acme/redrive", "tag": "1"},
            "workers": {
                "own": {"handlers": "a:b", "image": "acme/jobs:2"},
                "plain": {"handlers": "a:b"},
            },
        }
    )
    images = {
        container["image"]
        for found in release.objects
        for pod in pods_of(found)
        for container in pod["containers"] + pod.get("initContainers", [])
    }

    assert images == {
        "mirror.example:5000/all/acme/redrive:1",
        "mirror.example:5000/all/acme/jobs:2",
        "mirror.example:5000/all/library/postgres:17-bookworm",
    }
