"""Pools of workers: their settings, code, number and places."""

from pathlib import Path
from typing import Any

import pytest

from redrive.extras.targets.caller import register
from redrive.extras.targets.file import load
from redrive.handlers import Handlers
from tests.chart.conftest import Render
from tests.chart.helm import Release
from tests.chart.rendered import LOGINS, container, environment, settings, with_pool


def test_settings_reach_the_worker_under_their_names(render: Render) -> None:
    pool = with_pool(
        queues=["mail", "bulk"],
        slots=32,
        runners=2,
        drainTimeoutSeconds=90,
        heartbeatTtlSeconds=45,
    )
    release = render(pool)

    assert settings(release, "Deployment", "rel-worker-mail", "REDRIVE_") == {
        "REDRIVE_DATABASE_URL_FILE": "/etc/redrive/database/url",
        "REDRIVE_HANDLERS": "app.jobs:jobs",
        "REDRIVE_VERSION": "0.2.0",
        "REDRIVE_QUEUES": "mail,bulk",
        "REDRIVE_SLOTS": "32",
        "REDRIVE_RUNNERS": "2",
        "REDRIVE_HTTP_PORT": "9808",
        "REDRIVE_HEARTBEAT_TTL": "45",
        "REDRIVE_DRAIN_TIMEOUT": "90",
        "REDRIVE_LOG_FORMAT": "json",
        "REDRIVE_LOG_LEVEL": "info",
        "REDRIVE_DATABASE_METRICS": "false",
        "REDRIVE_STARTUP_TIMEOUT": "120",
    }


@pytest.mark.parametrize(
    ("image", "pool", "version"),
    [
        ({"tag": "1.4.2"}, {}, "1.4.2"),
        ({"tag": "1.4.2", "digest": f"sha256:{'a0' * 32}"}, {}, "a0a0a0a0a0a0"),
        ({}, {"image": f"host:5000/app:2@sha256:{'b1' * 32}"}, "b1b1b1b1b1b1"),
        ({}, {"image": "host:5000/app:yes"}, "yes"),
        ({}, {"image": "host:5000/app"}, None),
        ({"tag": "1.4.2"}, {"version": "1e3"}, "1e3"),
    ],
)
def test_workers_say_which_version_they_run(
    render: Render, image: dict[str, str], pool: dict[str, str], version: str | None
) -> None:
    """Without it a failure is of no version, and no deploy heals."""
    release = render(with_pool(**pool) | {"image": image})

    found = environment(release, "Deployment", "rel-worker-mail")
    assert found.get("REDRIVE_VERSION") == version


def test_all_queues_are_served_when_none_is_named(render: Render) -> None:
    assert "REDRIVE_QUEUES" not in environment(
        render(with_pool()), "Deployment", "rel-worker-mail"
    )


@pytest.mark.parametrize(
    ("pool", "grace"),
    [
        ({"drainTimeoutSeconds": 90}, 100),
        ({"drainTimeoutSeconds": 0}, 10),
        ({"drainTimeoutSeconds": 30, "terminationGracePeriodSeconds": 300}, 300),
    ],
)
def test_a_pod_is_killed_only_after_its_drain(
    render: Render, pool: dict[str, Any], grace: int
) -> None:
    pod = render(with_pool(**pool)).get("Deployment", "rel-worker-mail")["spec"][
        "template"
    ]["spec"]

    assert pod["terminationGracePeriodSeconds"] == grace


def test_a_pool_can_set_what_its_defaults_set_to_nothing_zero_and_false(
    render: Render,
) -> None:
    values = with_pool(replicas=0, queues=[], topologySpread=False) | {
        "workerDefaults": {
            "replicas": 5,
            "queues": ["mail"],
            "topologySpread": True,
            "slots": 7,
        }
    }
    release = render(values)

    deployment = release.get("Deployment", "rel-worker-mail")["spec"]
    assert deployment["replicas"] == 0
    assert "topologySpreadConstraints" not in deployment["template"]["spec"]
    found = environment(release, "Deployment", "rel-worker-mail")
    assert "REDRIVE_QUEUES" not in found
    assert found["REDRIVE_SLOTS"] == "7"


def test_a_rollout_needs_no_room_if_the_pool_says_so(render: Render) -> None:
    """Charts that people trust let the strategy, DNS and the runtime be set."""
    values = with_pool(rollingUpdate={"maxSurge": 0, "maxUnavailable": "50%"})
    pods = {
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "runtimeClassName": "gvisor",
    }
    release = render(values | {"pods": pods})

    spec = release.get("Deployment", "rel-worker-mail")["spec"]
    rollout = spec["strategy"]["rollingUpdate"]
    assert rollout == {"maxSurge": 0, "maxUnavailable": "50%"}
    for kind, name in (("Deployment", "rel-exporter"), ("Job", "rel-migrate")):
        pod = release.get(kind, name)["spec"]["template"]["spec"]
        assert pods.items() <= pod.items()


def test_handlers_from_a_configmap_are_mounted_and_importable(render: Render) -> None:
    release = render(with_pool(handlersConfigMap="my-handlers"))

    mounts = container(release, "Deployment", "rel-worker-mail")["volumeMounts"]
    assert {"name": "handlers", "mountPath": "/handlers", "readOnly": True} in mounts
    path = environment(release, "Deployment", "rel-worker-mail")["PYTHONPATH"]
    assert path.split(":")[0] == "/handlers"


def test_targets_and_their_schedules_are_a_file_of_the_pool(
    everything: Release, tmp_path: Path
) -> None:
    """It is one that a worker takes; a pool with targets needs no handlers."""
    name = "everything-worker-endpoints"
    file = tmp_path / "targets.yaml"
    file.write_text(
        everything.get("ConfigMap", f"{name}-targets")["data"]["targets.yaml"]
    )
    jobs = Handlers()
    register(jobs, load(file), 1)
    (declared,) = jobs.schedules.values()

    assert (declared.kind, declared.tz) == ("invoice.remind", "Europe/Berlin")
    assert declared.payload == '{"cents":10000000}'
    env = environment(everything, "Deployment", name)
    assert env["REDRIVE_TARGETS"] == "/targets/targets.yaml"
    mounts = container(everything, "Deployment", name)["volumeMounts"]
    assert {"name": "targets", "mountPath": "/targets", "readOnly": True} in mounts


def test_an_autoscaler_owns_the_number_of_pods(everything: Release) -> None:
    deployments = {
        o["metadata"]["name"]: o["spec"]
        for o in everything.objects
        if o["kind"] == "Deployment"
    }

    assert {name for name, spec in deployments.items() if "replicas" not in spec} == {
        f"everything-worker-{pool}" for pool in ("cpu", "jobs", "waits", "asks")
    }
    scaled = {
        o["spec"]["scaleTargetRef"]["name"]
        for o in everything.objects
        if "scaleTargetRef" in o.get("spec", {})
    }
    assert scaled == {
        name for name, spec in deployments.items() if "replicas" not in spec
    }


def test_keda_counts_what_is_ready_and_running_of_the_pools_own_queues(
    everything: Release,
) -> None:
    prometheus = everything.get("ScaledObject", "everything-worker-waits")["spec"][
        "triggers"
    ]
    postgres = everything.get("ScaledObject", "everything-worker-asks")["spec"][
        "triggers"
    ]

    labels = 'namespace="jobs",job="rel",queue=~"mail|mail[.]bulk"'
    assert all(f"{{{labels}" in t["metadata"]["query"] for t in prometheus)
    assert prometheus[0]["metadata"]["threshold"] == "16"
    assert postgres[0]["metadata"]["query"] == (
        "select coalesce(sum(running + case when paused then 0 else ready end), 0)::float8"
        " from redrive.depths_v1() where queue in ('mail')"
    )


@pytest.mark.parametrize(
    ("pool", "is_protected"),
    [
        ({"replicas": 1}, False),
        ({"replicas": 2}, True),
        ({"replicas": 2, "podDisruptionBudget": {"enabled": False}}, False),
        ({"autoscaling": {"type": "hpa"}}, True),
        ({"autoscaling": {"type": "hpa", "maxReplicas": 1}}, False),
    ],
)
def test_a_disruption_budget_needs_a_second_pod(
    render: Render, pool: dict[str, Any], is_protected: bool
) -> None:
    assert bool(render(with_pool(**pool)).names("PodDisruptionBudget")) == is_protected


def test_a_pool_has_its_own_identity_priority_and_containers(
    everything: Release,
) -> None:
    """None of these could be set, but by a fork of the chart."""
    deployment = everything.get("Deployment", "everything-worker-plain")
    pod = deployment["spec"]["template"]["spec"]

    assert deployment["metadata"]["annotations"] == {
        "example.com/team": "money",
        "reloader.stakater.com/auto": "true",
    }
    assert pod["serviceAccountName"] == "cloud-identity"
    assert pod["priorityClassName"] == "high"
    assert [c["name"] for c in pod["initContainers"]] == ["proxy"]
    assert [c["name"] for c in pod["containers"]] == ["worker", "sidecar"]
    other = everything.get("Deployment", "everything-worker-files")["spec"]["template"][
        "spec"
    ]
    assert other["serviceAccountName"] == "everything"


def test_pods_are_replaced_when_their_secret_changes(render: Render) -> None:
    def checksum(url: str) -> str:
        values = with_pool() | {"database": LOGINS | {"worker": {"url": url}}}
        template = render(values).get("Deployment", "rel-worker-mail")["spec"][
            "template"
        ]
        return template["metadata"]["annotations"]["checksum/config"]

    assert checksum("postgresql://a@b/c") != checksum("postgresql://a@b/d")
