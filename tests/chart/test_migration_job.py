"""The migration, and what is put into the database beside it."""

import json
from typing import Any

import pytest

from redrive.cli.support.exits import Exit
from tests.chart.conftest import Render
from tests.chart.helm import Release
from tests.chart.rendered import LOGINS, container, environment


@pytest.mark.parametrize(
    ("values", "mode", "is_hook"),
    [
        ({"database": LOGINS}, "hook", True),
        ({"database": LOGINS}, "job", False),
        ({"postgres": {"trial": {"enabled": True}}}, "hook", False),
    ],
)
def test_the_migration_is_a_hook_unless_its_database_comes_with_the_release(
    render: Render, values: dict[str, Any], mode: str, is_hook: bool
) -> None:
    release = render(values | {"migrations": {"mode": mode}})

    assert [hook["kind"] for hook in release.hooks].count("Job") == int(is_hook)
    assert len(release.names("Job")) == 1


def test_migrations_can_be_left_to_the_user(render: Render) -> None:
    logins = {login: LOGINS[login] for login in ("worker", "operator")}
    release = render({"database": logins, "migrations": {"mode": "none"}})

    assert release.names("Job") == set()
    assert (
        "redrive migrate --purge-every '17 3 * * *' --redrive-every 'never'"
        in release.notes
    )


@pytest.mark.parametrize(
    ("deadline", "patience"), [(240, "180s"), (3600, "2700s"), (10, "7s")]
)
def test_the_migration_gives_up_with_a_reason_before_its_deadline(
    render: Render, deadline: int, patience: str
) -> None:
    """Kubernetes deleted the pod at 240 s, and its reason with it; it waited for 600 s."""
    release = render(
        {"database": LOGINS, "migrations": {"activeDeadlineSeconds": deadline}}
    )
    spec = release.get("Job", "rel-migrate")["spec"]
    ignored, fatal = spec["podFailurePolicy"]["rules"]

    assert spec["activeDeadlineSeconds"] == deadline
    found = environment(release, "Job", "rel-migrate")
    assert found["REDRIVE_MIGRATE_PATIENCE"] == patience
    shown = container(release, "Job", "rel-migrate")["terminationMessagePolicy"]
    assert shown == "FallbackToLogsOnError"
    assert ignored["action"] == "Ignore"
    # A failed pod of a failed Job stays; another try would run into the deadline.
    assert fatal["action"] == "FailJob"
    assert Exit.SCHEMA in fatal["onExitCodes"]["values"]


def test_the_owners_url_is_in_the_cluster_only_while_it_migrates(
    everything: Release,
) -> None:
    found = everything.get("Secret", "everything-database-owner")["metadata"][
        "annotations"
    ]

    assert found["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert (
        found["helm.sh/hook-delete-policy"]
        == "before-hook-creation,hook-succeeded,hook-failed"
    )


def test_a_pod_may_wait_for_the_schema_as_long_as_it_does(everything: Release) -> None:
    for name in ("everything-exporter", "everything-worker-plain"):
        probe = container(everything, "Deployment", name)["startupProbe"]
        wait = int(
            environment(everything, "Deployment", name)["REDRIVE_STARTUP_TIMEOUT"] or 0
        )
        assert probe["periodSeconds"] * probe["failureThreshold"] > wait


def test_objectives_are_put_into_the_database_after_each_install_and_upgrade(
    everything: Release, render: Render
) -> None:
    job = everything.get("Job", "everything-objectives")
    command = container(everything, "Job", "everything-objectives")["args"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    assert command[:2] == ["objective", "apply"]
    assert json.loads(command[2]) == {
        "payments": {"page_on_first_dead_letter": 1, "dead_ratio": 0.001},
        "payments/charge.card": {"dlq_added_5m": 3},
        "*": {"dlq_oldest_age_seconds": 2592000},
    }
    assert (
        "Job/rel-objectives"
        not in render({"database": LOGINS, "queues": {"mail": {}}}).names()
    )


def test_owners_are_put_into_the_database_after_each_install_and_upgrade(
    everything: Release, render: Render
) -> None:
    """Who cares for a queue is written down beside its thresholds."""
    job = everything.get("Job", "everything-owners")
    command = container(everything, "Job", "everything-owners")["args"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    assert command[:2] == ["owner", "apply"]
    assert json.loads(command[2]) == {
        "payments": {"owner": "money", "contact": "#money"},
        "*/mail.send": {"owner": "mail"},
    }
    assert (
        "Job/rel-owners"
        not in render({"database": LOGINS, "queues": {"mail": {}}}).names()
    )


def test_retention_is_put_into_the_database_after_each_install_and_upgrade(
    everything: Release, render: Render
) -> None:
    job = everything.get("Job", "everything-retention")
    command = container(everything, "Job", "everything-retention")["args"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    assert command[:4] == ["retention", "set", "audit=800d", "keys=14d"]
    assert "Job/rel-retention" not in render({"database": LOGINS}).names()


@pytest.mark.parametrize(
    ("purge", "said"),
    [
        ({}, "17 3 * * *"),
        ({"schedule": "0 3 * * 1"}, "0 3 * * 1"),
        ({"schedule": "0 3 * * 1", "every": "2w"}, "2w"),
        ({"suspend": True}, "17 3 * * *"),  # a pause is what nobody remembers
        ({"every": ""}, "never"),
        ({"enabled": False}, "never"),
    ],
)
def test_the_migration_says_what_is_expected_to_run(
    render: Render, purge: dict[str, Any], said: str
) -> None:
    """A purge that never ran was never missed, and a weekly one was missed each week."""
    release = render({"database": LOGINS, "purge": purge})
    found = environment(release, "Job", "rel-migrate")

    assert (found["REDRIVE_PURGE_EVERY"], found["REDRIVE_REDRIVE_EVERY"]) == (
        said,
        "never",
    )
    if purge.get("enabled", True):
        told = environment(release, "CronJob", "rel-purge").get(
            "REDRIVE_PURGE_EVERY", "never"
        )
        assert told == said
