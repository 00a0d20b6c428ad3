"""Install, upgrade, test, uninstall: what Helm asks of the cluster, in which order."""

from typing import Any

import pytest

from tests.chart.conftest import EVERYTHING, Render, read_values
from tests.chart.fakeapi import FakeCluster, fake_cluster
from tests.chart.helm import Helm, Release
from tests.chart.rendered import pods_of

URLS = {
    login: {"url": f"postgresql://{login}@h/d"}
    for login in ("owner", "worker", "operator")
}
VALUES: dict[str, Any] = {"database": URLS, "workers": {"mail": {"handlers": "a:b"}}}


def test_the_migration_is_through_before_anything_else_begins(
    helm: Helm, cluster: FakeCluster
) -> None:
    helm.release("install", cluster, VALUES, name="rel")

    assert cluster.changes[:4] == [
        ("create", "Secret", "rel-database-owner"),
        ("create", "Job", "rel-migrate"),
        ("delete", "Job", "rel-migrate"),
        ("delete", "Secret", "rel-database-owner"),
    ]
    assert ("create", "Deployment", "rel-worker-mail") in cluster.changes[4:]
    assert {verb for verb, _, _ in cluster.changes[4:]} == {"create"}


def test_an_upgrade_migrates_first_and_touches_only_what_changed(
    helm: Helm, cluster: FakeCluster
) -> None:
    helm.release("install", cluster, VALUES, name="rel")
    cluster.changes.clear()
    helm.release(
        "upgrade",
        cluster,
        VALUES | {"workers": {"mail": {"handlers": "a:b", "slots": 99}}},
        name="rel",
    )

    assert cluster.changes[:2] == [
        ("create", "Secret", "rel-database-owner"),
        ("create", "Job", "rel-migrate"),
    ]
    rest = cluster.changes[4:]
    assert [change for change in rest if change[0] != "patch"] == []
    worker = cluster.matching("apps/v1", "jobs", "deployments", "rel-worker-mail")[0]
    assert {"name": "REDRIVE_SLOTS", "value": "99"} in worker["spec"]["template"][
        "spec"
    ]["containers"][0]["env"]


def test_an_upgrade_removes_the_pool_that_is_gone(
    helm: Helm, cluster: FakeCluster
) -> None:
    pool = {"handlers": "a:b"}
    helm.release(
        "install", cluster, VALUES | {"workers": {"a": pool, "b": pool}}, name="rel"
    )
    helm.release("upgrade", cluster, VALUES | {"workers": {"a": pool}}, name="rel")

    deployments = {
        o["metadata"]["name"]
        for o in cluster.matching("apps/v1", "jobs", "deployments")
    }
    assert deployments == {"rel-worker-a", "rel-exporter"}


JOB_MODE = VALUES | {"migrations": {"mode": "job"}}


def test_a_migration_beside_the_release_is_another_job_at_each_revision(
    helm: Helm, cluster: FakeCluster
) -> None:
    helm.release("install", cluster, JOB_MODE, name="rel")
    helm.release("upgrade", cluster, JOB_MODE, name="rel")

    jobs = [change for change in cluster.changes if change[1] == "Job"]
    (_, _, first), (_, _, second), third = jobs
    assert [verb for verb, _, _ in jobs] == ["create", "create", "delete"]
    assert (first[-2:], second[-2:], first[:-2]) == ("-1", "-2", second[:-2])
    assert third == ("delete", "Job", first)


def _migration(helm: Helm, values: dict[str, Any], name: str = "rel") -> dict[str, Any]:
    """The migration of a first revision, as Argo CD renders each."""
    with fake_cluster() as cluster:
        release = helm.release("install", cluster, values, name=name)
    (job,) = [
        o for o in release.objects if o["kind"] == "Job" and "-migrate-" in str(o)
    ]
    return job


@pytest.mark.parametrize(
    ("change", "is_another"),
    [
        ({"image": {"tag": "9.9.9"}}, True),
        ({"pods": {"env": [{"name": "A", "value": "b"}]}}, True),
        ({"migrations": {"mode": "job", "backoffLimit": 7}}, True),
        ({"database": URLS | {"owner": {"existingSecret": "other"}}}, True),
        ({"workers": {"mail": {"handlers": "a:b", "slots": 99}}}, False),
        ({"migrations": {"mode": "job", "annotations": {"a": "b"}}}, False),
    ],
)
def test_a_migration_that_differs_is_another_job_where_nobody_counts_revisions(
    helm: Helm, change: dict[str, Any], is_another: bool
) -> None:
    """Argo CD applied another template to the Job of the same name, which is immutable."""
    before, after = (_migration(helm, JOB_MODE | more) for more in ({}, change))

    assert (before["metadata"]["name"] != after["metadata"]["name"]) == is_another
    assert (before["spec"] != after["spec"]) == is_another


def test_the_longest_name_of_a_migration_is_one_that_a_job_may_have(helm: Helm) -> None:
    job = _migration(helm, JOB_MODE, name="a" * 35)

    assert len(job["metadata"]["name"]) + len("99999") <= 63


def test_uninstalling_leaves_nothing(helm: Helm, cluster: FakeCluster) -> None:
    helm.release("install", cluster, read_values(EVERYTHING), name="rel")
    assert len(cluster.objects) > 20
    helm.run("uninstall", kubeconfig=cluster.kubeconfig, name="rel")

    assert cluster.objects == {}


def test_each_container_says_in_its_status_why_it_ended(
    everything: Release, render: Render
) -> None:
    """Handlers that cannot be imported once were "Error, exit code 64", and the rest in the log."""
    trial = render({"postgres": {"trial": {"enabled": True}}})
    policies = {
        f"{found['kind']}/{found['metadata']['name']}: {container['name']}": (
            container.get("terminationMessagePolicy")
        )
        for found in everything.objects + trial.objects
        for pod in pods_of(found)
        for container in pod["containers"] + pod.get("initContainers", [])
        if container["image"] not in {"proxy:1", "sidecar:1"}  # of values
    }

    assert len(policies) > 10
    assert set(policies.values()) == {"FallbackToLogsOnError"}, policies
