"""What an installation meets in its life, besides faults: a password that is rotated, a database
that is restored, a neighbour of the same name, no pods at all. Nobody restarts anything.
"""

import json
from collections.abc import Iterator

import pytest

from trials.cluster.kubernetes import (
    HELMS,
    Release,
    eventually,
    installed,
    make_ledger,
    unique,
)

pytestmark = pytest.mark.slow

INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
SERVICE = "kubernetes.io/service-name"
OWNER = "redrive_trial_owner"
RESTORE = """
createdb --username {owner} restored
pg_restore --username {owner} --dbname restored /tmp/backup
psql --username {owner} --dbname postgres --quiet --set ON_ERROR_STOP=1 <<SQL
alter database redrive allow_connections false;
select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = 'redrive';
alter database redrive rename to forgotten;
alter database restored rename to redrive;
drop database forgotten with (force);
SQL
"""


def in_postgres(release: Release, script: str) -> str:
    """Run a script in the pod of the database."""
    command = ("exec", "--stdin", f"deploy/{release.name}-postgres", "--", "sh", "-e")
    return release.kubectl(*command, stdin=script)


def test_a_password_is_rotated_and_no_pod_is_restarted(fleet: Release) -> None:
    """By what docs/kubernetes.md says, and with the minute that a kubelet takes."""
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    fleet.wait_for_ends(fleet.enqueue("shop.work", 8))
    before = fleet.restarts()

    fleet.sql("""
        alter role redrive_trial_worker password 'rotated-5ac1';
        select pg_terminate_backend(pid) from pg_stat_activity
        where usename = 'redrive_trial_worker';
    """)
    selector = ("--selector", "redrive/pool=main", "--tail", "-1")
    eventually(
        "the log says that the login is refused",
        lambda: "the server refused the login" in fleet.kubectl("logs", *selector),
    )
    url = f"postgresql://redrive_trial_worker:rotated-5ac1@{fleet.name}-postgres:5432/redrive"
    fleet.kubectl(
        *("patch", "secret", f"{fleet.name}-database-worker", "--patch"),
        json.dumps({"stringData": {"url": url}}),
    )
    jobs = fleet.enqueue("shop.work", 20)

    fleet.wait_for_ends(jobs)
    eventually("two workers are ready", lambda: len(fleet.workers()) == 2)
    assert fleet.restarts() == before
    assert "rotated-5ac1" not in fleet.kubectl("logs", *selector)


def test_a_database_is_restored_under_its_workers(fleet: Release) -> None:
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    fleet.wait_for_ends(fleet.enqueue("shop.work", 8))
    in_postgres(
        fleet, f"pg_dump --username {OWNER} --format custom --file /tmp/backup redrive"
    )
    forgotten = fleet.enqueue("shop.work", 20)
    fleet.wait_for_ends(forgotten)
    before = fleet.restarts()

    in_postgres(fleet, RESTORE.format(owner=OWNER))

    assert fleet.ledger(forgotten) == []
    again = fleet.enqueue("shop.work", 40)
    assert set(forgotten) & set(again), "ids did not come again: nothing was tried here"
    ends = fleet.wait_for_ends(again)
    eventually("two workers are ready", lambda: len(fleet.workers()) == 2)
    assert sorted(row[0] for row in ends) == sorted(again), "lost, or ended twice"
    assert fleet.dead_letters("--kind", "shop.work") == []
    assert fleet.restarts() == before


def test_workers_are_scaled_to_none_and_back(fleet: Release) -> None:
    """What an autoscaler reads is there without a worker, and nothing counts as lost."""
    deployment = f"deploy/{fleet.name}-worker-main"
    fleet.kubectl("scale", deployment, "--replicas", "0")
    # One that is asked to go may claim until it has heard so.
    eventually(
        "no worker", lambda: fleet.get("pods", "--selector", "redrive/pool=main") == []
    )
    jobs = fleet.enqueue("shop.work", 10)

    ready = 'redrive_queue_depth{queue="default",state="ready"} 10.0'
    eventually("the exporter says what waits", lambda: ready in fleet.metrics())
    eventually("nobody is lost", lambda: "redrive_workers_lost 0.0" in fleet.metrics())

    fleet.kubectl("scale", deployment, "--replicas", "2")
    ends = fleet.wait_for_ends(jobs)
    assert [row[1:] for row in ends] == [[1, 1]] * 10


def test_an_upgrade_puts_right_what_was_typed_at_night(fleet: Release) -> None:
    """Helm 4 refuses to overwrite changes by others, unless the flag of the docs is given."""
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    worker, purge = f"deploy/{fleet.name}-worker-main", f"cronjob/{fleet.name}-purge"
    fleet.kubectl("scale", worker, "--replicas", "1")
    fleet.kubectl("patch", purge, "--patch", '{"spec": {"suspend": true}}')
    flag = []
    if fleet.run_helm("version", "--short").startswith("v4"):
        with pytest.raises(AssertionError, match='conflict with "kubectl"'):
            fleet.upgrade()
        flag = ["--force-conflicts"]

    fleet.upgrade(*flag)

    suspended = ("--output", "jsonpath={.spec.suspend}")
    assert fleet.kubectl("get", purge, *suspended) == "false"
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    fleet.wait_for_ends(fleet.enqueue("shop.work", 8))


@pytest.fixture
def neighbour(settings: list[str]) -> Iterator[Release]:
    """Another release of the same name, in a namespace of its own."""
    with installed(HELMS[0], unique("neighbour"), settings) as release:
        yield release


def test_two_releases_of_one_name_do_not_know_of_each_other(
    fleet: Release, neighbour: Release
) -> None:
    """In two namespaces each has its objects, its database and its figures."""
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    neighbour.enqueue("shop.poison", 5)
    fleet.wait_for_ends(fleet.enqueue("shop.work", 5))
    eventually("5 dead letters", lambda: len(neighbour.dead_letters()) == 5)

    assert fleet.name == neighbour.name
    assert fleet.dead_letters() == []
    assert 'kind="shop.poison"' not in fleet.metrics()
    before = fleet.restarts()
    neighbour.run_helm("uninstall", neighbour.name, "--wait", "--timeout", "5m")

    fleet.wait_for_ends(fleet.enqueue("shop.work", 5))
    assert fleet.restarts() == before


def test_two_releases_in_one_namespace_share_nothing(
    fleet: Release, settings: list[str]
) -> None:
    """Each has its objects, its database, its figures and its name for Prometheus."""
    eventually("two workers", lambda: len(fleet.workers()) == 2)
    second = Release(HELMS[0], fleet.namespace, settings, name="second")
    before = fleet.restarts()
    second.install()
    make_ledger(second)
    eventually("two more workers", lambda: len(second.workers()) == 2)
    second.test()

    second.enqueue("shop.poison", 5)
    fleet.wait_for_ends(fleet.enqueue("shop.work", 5))
    eventually("5 dead letters", lambda: len(second.dead_letters()) == 5)
    assert fleet.dead_letters() == []
    assert 'kind="shop.poison"' not in fleet.metrics()
    for release in (fleet, second):
        [service] = release.get(
            "services", "--selector", f"{INSTANCE}={release.name},{COMPONENT}=exporter"
        )
        slices = release.get(
            "endpointslices", "--selector", f"{SERVICE}={service['metadata']['name']}"
        )
        pods = {end["targetRef"]["name"] for s in slices for end in s["endpoints"]}
        assert pods == {p["metadata"]["name"] for p in release.pods("exporter")}
        selected = {
            expression
            for budget in release.get("pdb", "--selector", f"{INSTANCE}={release.name}")
            for expression in [budget["spec"]["selector"]["matchLabels"][INSTANCE]]
        }
        assert selected == {release.name}

    second.run_helm("uninstall", second.name, "--wait", "--timeout", "5m")
    ours = ("--selector", f"{INSTANCE}=second")
    eventually(
        "everything of the second is gone",
        lambda: second.get("all,secrets,configmaps,pdb", *ours) == [],
    )
    fleet.wait_for_ends(fleet.enqueue("shop.work", 5))
    assert fleet.restarts() == before
