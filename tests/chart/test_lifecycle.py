"""Install, upgrade, test, uninstall: what Helm asks of the cluster, in which order."""

from typing import Any

from tests.chart.conftest import EVERYTHING, read_values
from tests.chart.fakeapi import FakeCluster
from tests.chart.helm import Helm

URLS = {login: {"url": f"postgresql://{login}@h/d"} for login in ("owner", "worker", "operator")}
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
    assert {"name": "REDRIVE_SLOTS", "value": "99"} in worker["spec"]["template"]["spec"][
        "containers"
    ][0]["env"]


def test_an_upgrade_removes_the_pool_that_is_gone(helm: Helm, cluster: FakeCluster) -> None:
    pool = {"handlers": "a:b"}
    helm.release("install", cluster, VALUES | {"workers": {"a": pool, "b": pool}}, name="rel")
    helm.release("upgrade", cluster, VALUES | {"workers": {"a": pool}}, name="rel")

    deployments = {
        o["metadata"]["name"] for o in cluster.matching("apps/v1", "jobs", "deployments")
    }
    assert deployments == {"rel-worker-a", "rel-exporter"}


def test_a_migration_beside_the_release_is_another_job_at_each_revision(
    helm: Helm, cluster: FakeCluster
) -> None:
    values = VALUES | {"migrations": {"mode": "job"}}
    helm.release("install", cluster, values, name="rel")
    helm.release("upgrade", cluster, values, name="rel")

    jobs = [change for change in cluster.changes if change[1] == "Job"]
    assert jobs == [
        ("create", "Job", "rel-migrate-0-1-0-1"),
        ("create", "Job", "rel-migrate-0-1-0-2"),
        ("delete", "Job", "rel-migrate-0-1-0-1"),
    ]


def test_uninstalling_leaves_nothing(helm: Helm, cluster: FakeCluster) -> None:
    helm.release("install", cluster, read_values(EVERYTHING), name="rel")
    assert len(cluster.objects) > 20
    helm.run("uninstall", kubeconfig=cluster.kubeconfig, name="rel")

    assert cluster.objects == {}
