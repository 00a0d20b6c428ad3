"""What comes out of which values."""

from typing import Any

import pytest

from redrive.settings import Settings
from tests.chart.conftest import EVERYTHING, EXAMPLES, Render, read_values
from tests.chart.helm import CHART, ROOT, Release
from tests.chart.rendered import LOGINS, environment, pods_of
from tests.commands import commands


def test_the_least_that_installs_has_an_exporter_and_timers_but_no_workers(
    render: Render,
) -> None:
    release = render({"database": LOGINS})

    assert release.names() == {
        "ServiceAccount/rel",
        "Deployment/rel-exporter",
        "Service/rel-exporter",
        "Job/rel-migrate",
        "CronJob/rel-purge",
        "CronJob/rel-redrive-template",
        "NetworkPolicy/rel",
        "NetworkPolicy/rel-metrics",
        "NetworkPolicy/rel-test",
        "ConfigMap/rel-test",
        "Pod/rel-test",
    }
    assert "No workers yet" in release.notes


@pytest.mark.parametrize("path", [*EXAMPLES, EVERYTHING], ids=lambda path: path.stem)
def test_the_same_values_give_the_same_bytes(render: Render, path: Any) -> None:
    values = read_values(path)

    assert render(values).text == render(values, again=True).text


def test_the_values_that_quickstart_writes_install(render: Render) -> None:
    release = render(
        read_values(
            ROOT
            / "service"
            / "redrive"
            / "extras"
            / "quickstart"
            / "project"
            / "values.yaml"
        )
    )

    worker = environment(release, "Deployment", "rel-worker-main")
    assert worker["REDRIVE_HANDLERS"] == "handlers:jobs"


def test_each_example_is_shown_in_the_documentation() -> None:
    text = (CHART.parents[1] / "docs" / "kubernetes.md").read_text()

    assert [path.name for path in EXAMPLES if f"examples/{path.name}" not in text] == []


def test_the_program_knows_each_variable_of_the_chart(everything: Release) -> None:
    """Every pod refuses an unknown variable: the migration did, and nothing started."""
    found = {
        variable["name"]
        for each in everything.objects
        for pod in pods_of(each)
        for container in pod["containers"]
        for variable in container.get("env", ())
        if variable["name"].startswith("REDRIVE_")
    }
    options = {
        option.envvar
        for _, command in commands()
        for option in command.params
        if option.envvar
    }
    known = {f"REDRIVE_{field.upper()}" for field in Settings.model_fields}

    assert found - options - known == set()
    assert "REDRIVE_MIGRATE_PATIENCE" in found


def test_an_extra_object_knows_its_release(render: Render) -> None:
    """`extraObjects` are templates."""
    extra = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "{{ .Release.Name }}-x"},
    }

    assert (
        "ConfigMap/rel-x"
        in render({"database": LOGINS, "extraObjects": [extra]}).names()
    )


def test_the_notes_ask_for_no_address_that_is_there(everything: Release) -> None:
    assert "Links of alerts" not in everything.notes


def test_the_trial_database_says_that_it_is_thrown_away(render: Render) -> None:
    release = render({"postgres": {"trial": {"enabled": True}}})

    assert "THROW-AWAY" in release.notes
    postgres = release.get("Deployment", "rel-postgres")["spec"]["template"]["spec"]
    assert postgres["securityContext"]["runAsUser"] == 999
    assert {"name": "data", "emptyDir": {}} in postgres["volumes"]


def test_the_notes_name_three_commands_that_fit_the_release(render: Render) -> None:
    notes = render({"database": LOGINS}, name="shop").notes

    assert "helm test shop --namespace jobs" in notes
    assert "deploy/shop-exporter -- redrive queue ls" in notes
    assert "--from=cronjob/shop-redrive-template" in notes
